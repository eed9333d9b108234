"""Where a tool says who may see to its tasks: its declaration, the catalog file, and the deployment's settings."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from pydantic import BaseModel

from bridge.catalog import Catalog
from bridge.catalog_file import read_catalog
from bridge.service import offered
from bridge.settings import BridgeSettings, SettingsError
from workflows.kit import Delegates, Task, tool
from workflows.kit.delegates import NOBODY

DELEGATES: Final = Delegates(read=("auditors",), answer=("managers", "leads"), cancel=("on-call",))

ENTRY: Final = """
[tools.report]
workflow = "Report"
queue = "q"
description = "Reports."
input_schema = { type = "object" }
"""
TABLE: Final = """
[tools.report.delegates]
read = ["auditors"]
answer = ["managers", "leads"]
cancel = ["on-call"]
"""


class Nothing(BaseModel):
    pass


@tool(name="declared", description="Says who.", delegates=DELEGATES)
class Declared(Task[Nothing, None]):
    async def execute(self, arguments: Nothing) -> None:
        pass


@tool(name="owned", description="Is its owner's alone.")
class Owned(Task[Nothing, None]):
    async def execute(self, arguments: Nothing) -> None:
        pass


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = ModuleType("delegating_tools")
    made.TASKS, made.ACTIVITIES = [Declared, Owned], []
    monkeypatch.setitem(sys.modules, "delegating_tools", made)
    monkeypatch.setenv("MCP_TASKS_TASKS", "delegating_tools")
    monkeypatch.setenv("MCP_TASKS_SINGLE_REPLICA", "true")


def test_a_declaration_says_who_and_a_tool_that_is_gone_says_nobody() -> None:
    catalog = offered(BridgeSettings.load())
    assert catalog.delegates("declared") == DELEGATES
    assert catalog.delegates("owned") == catalog.delegates("gone") == NOBODY


def test_a_catalog_entry_says_who(tmp_path: Path) -> None:
    file = tmp_path / "tools.toml"
    file.write_text(ENTRY + TABLE, "utf-8")
    catalog = Catalog(read_catalog(file))
    assert catalog.delegates("report") == DELEGATES
    file.write_text(ENTRY, "utf-8")
    assert not catalog.adopt(Catalog(read_catalog(file))), "no client is shown who may"
    assert catalog.delegates("report") == NOBODY


@pytest.mark.parametrize(
    "line",
    [
        'delegates = ["auditors"]',
        'delegates = { read = "auditors" }',
        "delegates = { read = [1] }",
        'delegates = { read = [""] }',
        'delegates = { reed = ["auditors"] }',
    ],
)
def test_an_entry_that_cannot_be_meant_is_named_with_what_is_accepted(tmp_path: Path, line: str) -> None:
    file = tmp_path / "tools.toml"
    file.write_text(f"{ENTRY}{line}\n", "utf-8")
    with pytest.raises(SettingsError, match="tool report: delegates must be a table of lists of groups: read, answer"):
        read_catalog(file)


def test_a_deployment_says_who_in_place_of_the_declaration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_TASKS_DELEGATES", '{"owned": {"answer": ["managers"]}, "declared": {}}')
    catalog = offered(BridgeSettings.load())
    assert catalog.delegates("owned") == Delegates(answer=("managers",))
    assert catalog.delegates("declared") == NOBODY


@pytest.mark.parametrize(
    "value", ["managers", "[]", '{"owned": []}', '{"owned": {"answer": "managers"}}', '{"owned": {"reed": []}}']
)
def test_a_setting_that_cannot_be_meant_is_named(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("MCP_TASKS_DELEGATES", value)
    with pytest.raises(SettingsError, match=r"^MCP_TASKS_DELEGATES must be a JSON object, by tool of the tasks module"):
        BridgeSettings.load()


def test_delegates_of_no_tool_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_TASKS_DELEGATES", '{"ownd": {"answer": ["managers"]}}')
    with pytest.raises(SettingsError, match=r"^MCP_TASKS_DELEGATES: the tasks module has no tool ownd$"):
        offered(BridgeSettings.load())
