"""The pages about catalogs and the vendored kit say what is so: keys, examples, commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from bridge.catalog_file import Entry, read_catalog
from bridge.settings import SettingsError
from tests.docs.pages import DOCS, blocks, text_of
from tests.foreign.running import ACME, PLAIN_PYTHON, TYPESCRIPT

PAGE = "reference/catalog.md"
OFFER = DOCS / "how-to" / "offer-existing-workflows.md"
VENDOR = DOCS / "how-to" / "vendor-the-kit.md"


def test_every_key_has_its_row_and_none_is_invented() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", text_of(PAGE), re.MULTILINE)
    assert sorted(rows) == sorted(Entry.model_fields)


@pytest.mark.parametrize("name", [name for name, field in Entry.model_fields.items() if field.is_required()])
def test_a_key_that_is_needed_has_no_default_on_the_page(name: str) -> None:
    assert f"| `{name}` | |" in text_of(PAGE)


@pytest.mark.parametrize("name", ["arguments", "result", "task"])
def test_a_default_is_the_one_on_the_page(name: str) -> None:
    assert f'| `{name}` | `"{Entry.model_fields[name].default}"` |' in text_of(PAGE)


def test_every_annotation_is_named() -> None:
    annotations: Any = Entry.model_fields["annotations"].annotation
    assert issubclass(annotations, BaseModel)
    row = next(line for line in text_of(PAGE).splitlines() if line.startswith("| `annotations` |"))
    assert all(f"`{field.alias}`" in row for field in annotations.model_fields.values())


def test_the_example_is_of_a_catalog_that_is_tested() -> None:
    (example,) = blocks(DOCS / PAGE, "toml")
    assert example in (PLAIN_PYTHON / "catalog.toml").read_text("utf-8")


def test_the_error_line_is_the_programs(tmp_path: Path) -> None:
    (line,) = blocks(DOCS / PAGE, "text")
    catalog = tmp_path / "tools.toml"
    text = (PLAIN_PYTHON / "catalog.toml").read_text("utf-8")
    catalog.write_text(text.replace('lifetime = "7d"', 'lifetme = "7d"'), "utf-8")
    with pytest.raises(SettingsError) as caught:
        read_catalog(catalog)
    assert line == f"mcp-tasks: {caught.value}\n".replace(str(catalog), "tools.toml")


@pytest.mark.parametrize(
    ("page", "language", "file"),
    [
        (OFFER, "toml", PLAIN_PYTHON / "catalog.toml"),
        (OFFER, "python", PLAIN_PYTHON / "worker.py"),
        (OFFER, "json", PLAIN_PYTHON / "invoice.json"),
        (OFFER, "typescript", TYPESCRIPT / "workflows.ts"),
        (VENDOR, "toml", ACME / "tools.toml"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.stem,
)
def test_what_a_guide_shows_is_in_a_project_that_is_tested(page: Path, language: str, file: Path) -> None:
    shown = blocks(page, language)
    assert shown and all(block in file.read_text("utf-8") for block in shown)


def test_the_worker_that_the_guide_shows_is_acmes() -> None:
    tool, worker = blocks(VENDOR, "python")
    assert tool in (ACME / "workflows" / "refunds.py").read_text("utf-8")
    assert worker in (ACME / "worker.py").read_text("utf-8")
