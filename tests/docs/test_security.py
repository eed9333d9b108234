"""The threat model names tests: each is there, and each boundary has some."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.docs.pages import DOCS
from tests.support import ROOT

PAGE: Final = (DOCS / "security.md").read_text("utf-8")

BOUNDARIES: Final = (
    "Client to bridge",
    "Browser page to bridge",
    "Proxy to bridge",
    "Bridge to authorization server",
    "Bridge to Temporal",
    "Worker to Temporal",
    "Worker to the outside",
    "Temporal's database and web page",
    "Codec server",
    "Catalog file and tasks module",
    "Logs and metrics",
    "Stdio's parent",
)

_NAMED: Final = re.compile(r"`([a-z_/]+\.py)::(\w+)`")


@pytest.mark.parametrize(("file", "test"), sorted(set(_NAMED.findall(PAGE))))
def test_a_named_test_exists(file: str, test: str) -> None:
    text = (ROOT / "tests" / file).read_text("utf-8")
    assert re.search(rf"^(async )?def {test}\(", text, re.MULTILINE)


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_each_line_about_a_boundary_names_what_holds_it(boundary: str) -> None:
    section = PAGE.split(f"## {boundary}\n")[1].split("\n## ")[0]
    _, _, *rows = [line for line in section.splitlines() if line.startswith("|")]
    assert rows
    assert all(_NAMED.search(row) for row in rows)
