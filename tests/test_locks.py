"""The lock files: whole, hashed, and of what pyproject.toml asks for.

That is what can be said of dependencies without a network; whether one has a known vulnerability cannot
(docs/how-to/fuzz-and-audit.md).
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support import ROOT

PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
DIRECT: Final = [Requirement(each) for each in PROJECT["project"]["dependencies"]]
DEVELOPMENT: Final = [Requirement(each) for each in PROJECT["project"]["optional-dependencies"]["dev"]]
BUILD: Final = [Requirement(each) for each in PROJECT["build-system"]["requires"]]
FILES: Final = ("requirements.txt", "requirements-dev.txt")
NODE_LOCKS: Final = sorted(
    file for file in (ROOT / "tests").rglob("package-lock.json") if "node_modules" not in file.parts
)

_PINNED: Final = re.compile(r"([a-z0-9][a-z0-9.-]*)==(\S+)((?: --hash=sha256:[0-9a-f]{64})+)")


def entries(file: str) -> Iterator[str]:
    """The entries of a lock file, each on one line, without comments."""
    text = re.sub(r"^ *#.*$", "", (ROOT / file).read_text("utf-8"), flags=re.MULTILINE)
    joined = re.sub(r"\\\n\s*", "", text)
    return (line.strip() for line in joined.splitlines() if line.strip())


def pins(file: str) -> dict[str, str]:
    """The version of every package in a lock file."""
    matches = [_PINNED.fullmatch(re.sub(r" +", " ", entry.split(" ;")[0])) for entry in entries(file)]
    return {match[1]: match[2] for match in matches if match}


def needed(requirements: Iterable[Requirement], extra: str = "") -> dict[str, Requirement]:
    """Those that count in this environment, by name."""
    return {
        canonicalize_name(each.name): each
        for each in requirements
        if each.marker is None or each.marker.evaluate({"extra": extra})
    }


@pytest.mark.parametrize("file", FILES)
def test_every_entry_is_a_version_with_its_hashes_and_nothing_else(file: str) -> None:
    for entry in entries(file):
        plain = re.sub(r" +", " ", entry).split(" ;")[0]
        assert _PINNED.fullmatch(plain), f"neither an address nor an option, but a pinned version with hashes: {entry}"


@pytest.mark.parametrize(
    ("file", "requirements"),
    [("requirements.txt", DIRECT), ("requirements-dev.txt", [*DIRECT, *DEVELOPMENT, *BUILD])],
    ids=FILES,
)
def test_what_the_project_asks_for_is_locked_in_a_version_that_it_allows(
    file: str, requirements: list[Requirement]
) -> None:
    locked = pins(file)
    for name, requirement in needed(requirements).items():
        assert requirement.specifier.contains(locked[name], prereleases=True), requirement


def test_what_runs_is_what_was_developed_with() -> None:
    developed = pins("requirements-dev.txt")
    assert {name: developed.get(name) for name in pins("requirements.txt")} == pins("requirements.txt")


@pytest.mark.parametrize("file", FILES)
def test_a_lock_is_complete_and_this_environment_is_made_of_it(file: str) -> None:
    locked = pins(file)
    for name, version in locked.items():
        installed = distribution(name)
        assert installed.version == version, name
        for inner in needed(map(Requirement, installed.requires or ())):
            assert inner in locked, f"{name} needs {inner}, which is not locked"


@pytest.mark.parametrize("file", NODE_LOCKS, ids=lambda file: file.parent.name)
def test_every_node_package_is_locked_by_its_digest(file: Path) -> None:
    lock = json.loads(file.read_text("utf-8"))
    asked = {**lock["packages"][""].get("dependencies", {}), **lock["packages"][""].get("devDependencies", {})}
    manifest = json.loads(file.with_name("package.json").read_text("utf-8"))
    assert asked == {**manifest.get("dependencies", {}), **manifest.get("devDependencies", {})}
    packages = {name: one for name, one in lock["packages"].items() if name and not one.get("link")}
    assert packages
    assert [name for name, one in packages.items() if not re.match("sha512-", one.get("integrity", ""))] == []
