"""What the pages point to is there, and what they show can be read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from tests.docs.pages import DOCS, PAGES, blocks, name_of
from tests.support import ROOT
from workflows.kit.contract import JsonRpcErrorDetail, OmittedView, PageForm, TaskMemo, TaskView, UpdateSignal, Wire

_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
_FENCED: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_MAKE: Final = re.compile(r"(?:`|^\$ )(?:[A-Z_]+=\S+ )*make ([a-z-]+)", re.MULTILINE)

EXAMPLES: Final[tuple[type[Wire], ...]] = (TaskMemo, TaskView, PageForm, OmittedView, UpdateSignal, JsonRpcErrorDetail)
"""The contract's JSON examples, in the order of the page."""


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return _FENCED.sub("", page.read_text("utf-8"))


def anchors(page: Path) -> set[str]:
    """What a link may name after `#`: headings in lower case, without punctuation, with dashes for spaces."""
    headings = _HEADING.findall(prose(page))
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def relative_links() -> list[tuple[Path, str]]:
    links = [(page, target) for page in PAGES for target in _LINK.findall(prose(page))]
    return [(page, target) for page, target in links if not target.startswith(("http://", "https://"))]


@pytest.mark.parametrize(
    ("page", "target"), relative_links(), ids=lambda value: name_of(value) if isinstance(value, Path) else value
)
def test_a_relative_link_leads_to_a_file_and_a_heading(page: Path, target: str) -> None:
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    assert file.is_relative_to(ROOT)
    assert file.exists()
    assert not anchor or anchor in anchors(file)


def test_no_page_says_a_thing_twice_under_the_same_heading() -> None:
    """Nor could a link lead to the second."""
    headings = {name_of(page): _HEADING.findall(prose(page)) for page in PAGES}
    assert {name for name, found in headings.items() if len(found) != len(set(found))} == set()


def test_the_index_leads_to_every_page() -> None:
    index = DOCS / "README.md"
    linked = {(DOCS / target).resolve() for page, target in relative_links() if page == index}
    assert {name_of(page) for page in DOCS.rglob("*.md")} - {name_of(page) for page in linked} == {name_of(index)}


def test_every_make_goal_that_a_page_names_exists() -> None:
    goals = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {(name_of(page), goal) for page in PAGES for goal in _MAKE.findall(page.read_text("utf-8"))}
    assert {goal for _, goal in named} >= {"demo", "test", "run", "conformance"}
    assert not {(page, goal) for page, goal in named if goal not in goals}


def test_the_contracts_examples_are_of_the_contract() -> None:
    examples: list[dict[str, Any]] = [json.loads(code) for code in blocks(DOCS / "contract.md", "json")]
    for kind, example in zip(EXAMPLES, examples, strict=True):
        read = kind.model_validate(example)
        assert not read.model_extra, f"{kind.__name__} has no such field"
        assert read.to_json().keys() == example.keys()
