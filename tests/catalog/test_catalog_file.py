"""A catalog file is taken exactly as it says, or refused with one line that names file, tool and key."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bridge.catalog import Tool
from bridge.catalog_file import read_catalog
from bridge.service import offered
from bridge.settings import BridgeSettings, SettingsError
from bridge.status import OutcomeRules

LEAST = """
[tools.report]
workflow = "Report"
queue = "reports"
description = "Builds a report."
input_schema = { type = "object", properties = { month = { type = "string" }, copies = {}, draft = {} } }
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "tools.toml"
    file.write_text(text, "utf-8")
    return file


def the_tool(folder: Path, *lines: str) -> Tool:
    """The one tool of the least catalog with `lines` added."""
    (tool,) = read_catalog(written(folder, "\n".join((LEAST.strip(), *lines))))
    return tool


def refusal(folder: Path, text: str) -> str:
    """The line with which this catalog is refused, without the file that it names."""
    file = written(folder, text)
    with pytest.raises(SettingsError) as caught:
        read_catalog(file)
    line = str(caught.value)
    assert line.startswith(f"catalog {file}") and "\n" not in line
    return line.removeprefix(f"catalog {file}").removeprefix(": ")


def test_what_an_entry_leaves_out_has_its_default(tmp_path: Path) -> None:
    tool = the_tool(tmp_path)
    assert (tool.name, tool.workflow_type, tool.queue, tool.task) == ("report", "Report", "reports", "optional")
    assert (tool.lifetime, tool.answer_window, tool.wait_budget) == (None, None, timedelta(0))
    assert (tool.poll_interval, tool.foreign, tool.asks_before_handle) == (timedelta(seconds=1), True, False)
    assert tool.outcome_rules == OutcomeRules()
    assert set(tool.wire) == {"name", "description", "inputSchema"}


def test_every_key_has_its_place(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text('{"type": "array", "items": {"enum": [null]}}')
    tool = the_tool(
        tmp_path,
        'title = "Report"',
        "annotations = { readOnlyHint = true, openWorldHint = false }",
        'task = "required"',
        'lifetime = "7d"',
        "keeps_lifetime = true",
        'answer_window = "12h"',
        'poll_interval = "500ms"',
        'wait_budget = "90s"',
        "asks_before_handle = true",
        "client_capabilities = { elicitation = { form = {} } }",
        'declared_errors = ["NoSuchMonth"]',
        'output_schema_file = "out.json"',
        'result = "value"',
    )
    assert tool.wire["annotations"] == {"readOnlyHint": True, "openWorldHint": False}
    assert (tool.task, tool.foreign, tool.asks_before_handle) == ("required", False, True)
    spans = (tool.lifetime, tool.answer_window, tool.poll_interval, tool.wait_budget)
    assert [span and span.total_seconds() for span in spans] == [7 * 86400, 12 * 3600, 0.5, 90]
    assert tool.client_capabilities == {"elicitation": {"form": {}}}
    assert tool.output_schema == {"type": "array", "items": {"enum": [None]}}
    assert tool.outcome_rules == OutcomeRules(frozenset({"NoSuchMonth"}), plain_result=True)


def test_the_whole_object_is_the_one_argument_unless_said_otherwise(tmp_path: Path) -> None:
    assert the_tool(tmp_path).start_arguments({"month": "May", "more": 1}) == [{"month": "May", "more": 1}]


@pytest.mark.parametrize(
    ("call", "passed"),
    [
        ({"copies": 2, "month": "May", "draft": False}, ["May", 2, False]),
        ({"month": "May"}, ["May"]),
        ({"draft": None, "month": "May"}, ["May", None, None]),
        ({}, []),
    ],
    ids=["in the catalog's order", "nothing at the end", "null in the middle", "none"],
)
def test_named_properties_are_positional_arguments(tmp_path: Path, call: dict[str, Any], passed: list[Any]) -> None:
    tool = the_tool(tmp_path, 'arguments = ["month", "copies", "draft"]')
    assert tool.start_arguments(call) == passed


async def test_an_argument_without_a_position_is_refused_not_dropped(tmp_path: Path) -> None:
    tool = the_tool(tmp_path, 'arguments = ["month", "copies", "draft"]')
    assert "'size' was unexpected" in (await tool.arguments_problem({"month": "May", "size": 3}) or "")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('queue = "reports"', "queue is missing: the task queue that its workers poll, of 1 to 200 characters"),
        ('workflow = "Report"', "workflow is missing: the workflow's type, of 1 to 200 characters"),
        ('description = "Builds a report."', "description is missing: what the tool does, for the model"),
    ],
)
def test_a_missing_key_is_named(tmp_path: Path, line: str, problem: str) -> None:
    assert refusal(tmp_path, LEAST.replace(line, "")) == f"tool report: {problem}"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('lifetme = "7d"', "lifetme is no key; is lifetime meant?"),
        ("q = 1", "q is no key; there are workflow, queue, description, title"),
        ('task = "sometimes"', "task must be one of never, optional, required"),
        ("lifetime = 90", "lifetime must be a duration of at most 3650 days, such as"),
        ('lifetime = "0s"', "lifetime must be a duration"),
        ('lifetime = "3651d"', "lifetime must be a duration"),
        ('lifetime = "1h30m"', "lifetime must be a duration"),
        ('poll_interval = "-1s"', "poll_interval must be a duration"),
        ('keeps_lifetime = "yes"', "keeps_lifetime must be true or false"),
        (
            "annotations = { readonlyHint = true }",
            "annotations must be a table of MCP tool annotations: title, readOnly",
        ),
        ('client_capabilities = ["elicitation"]', "client_capabilities must be a table of tables called elicitation, "),
        (
            "client_capabilities = { elicitaton = {} }",
            "client_capabilities must be a table of tables called elicitation",
        ),
        ('declared_errors = "NoSuchMonth"', "declared_errors must be a list of types of application errors"),
        ("asks_before_handle = true", "asks_before_handle needs keeps_lifetime = true: "),
        ('result = "text"', "result must be one of auto, value"),
        ('arguments = "month"', 'arguments must be "object", or a list of names of properties of the input schema'),
        ('arguments = ["month"]', "arguments must name every property of the input schema once (month, copies, draft)"),
        ('arguments = ["month", "copies", "draft", "month"]', "arguments must name every property"),
        ('arguments = ["month", "copies", "drafts"]', "arguments must name every property"),
        ('input_schema_file = "x.json"', "input_schema and input_schema_file are both set; keep one"),
        (
            'output_schema_file = "x.json"',
            "output_schema_file {folder}/x.json cannot be read: No such file or directory",
        ),
        ('output_schema_file = "tools.toml"', "output_schema_file {folder}/tools.toml is not JSON: "),
        ('output_schema = { type = "objekt" }', "its output schema is not valid: "),
        (
            "output_schema = { const = 2026-01-01 }",
            "output_schema must be a JSON Schema, as a table, of values that JSON",
        ),
    ],
)
def test_what_cannot_be_used_is_named_with_what_is_accepted(tmp_path: Path, line: str, problem: str) -> None:
    expected = f"tool report: {problem.format(folder=tmp_path)}"
    assert refusal(tmp_path, f"{LEAST}{line}\n").startswith(expected)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("", "input_schema is missing: a JSON Schema, as a table, or input_schema_file: the path of"),
        ('input_schema = { type = "array" }', 'input_schema must have the type "object"'),
        ('input_schema = { type = "object", required = 1 }', "its input schema is not valid"),
        ('arguments = []\ninput_schema = { type = "object", properties = 1 }', "its input schema is not valid"),
        ('input_schema = { type = "object", maxProperties = inf }', "input_schema must be a JSON Schema, as a table"),
        (
            'arguments = []\ninput_schema = { type = "object", additionalProperties = true }',
            "input_schema must not allow additionalProperties",
        ),
        (
            'arguments = []\ninput_schema = { type = "object", patternProperties = { "." = {} } }',
            "input_schema must not have patternProperties: ",
        ),
        (
            'arguments = []\ninput_schema = { type = "object", "$ref" = "#/$defs/a", "$defs" = { a = {} } }',
            "input_schema must not have $ref: ",
        ),
        (
            'input_schema = { type = "object", "$schema" = 5 }',
            "its input schema is not valid: the JSON Schema dialect 5",
        ),
        (
            'input_schema = { type = "object", items = { x-mcp-header = "A" } }',
            "x-mcp-header found at a schema position not reachable",
        ),
    ],
)
def test_an_input_schema_that_cannot_be_used_is_refused(tmp_path: Path, schema: str, problem: str) -> None:
    text = "\n".join([*LEAST.splitlines()[:-1], schema])
    assert refusal(tmp_path, text).startswith(f"tool report: {problem}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[tools", "is not TOML: "),
        (f"tools = {'[' * 5_000}{']' * 5_000}", "nests too deeply"),
        ("", "tools is missing: one table [tools.NAME] for each tool"),
        ("[tools]", "tools must be one table [tools.NAME] for each tool"),
        ("[tools]\nreport = 1", "tool report must be a table"),
        ('[tools."a name"]', "tools must be one table [tools.NAME] for each tool; a name has 1 to 128 visible"),
        (f"[tool]\n{LEAST}", "tool is no key; is tools meant?"),
    ],
)
def test_a_file_that_is_no_catalog_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    assert refusal(tmp_path, text).lstrip().startswith(problem)


def test_a_schema_file_that_nests_too_deeply_is_refused(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text('{"type": "object", "x": ' + "[" * 50_000 + "]" * 50_000 + "}")
    line = refusal(tmp_path, f'{LEAST}output_schema_file = "deep.json"\n')
    assert line == f"tool report: output_schema_file {tmp_path}/deep.json nests too deeply"


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"tools.toml cannot be read: No such file or directory"):
        read_catalog(tmp_path / "tools.toml")


def names(**settings: Any) -> list[str]:
    return [tool.name for tool in offered(BridgeSettings.load(single_replica=True, **settings))]


def test_a_catalog_takes_the_place_of_the_sample_tools_not_of_a_module_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MCP_TASKS_TASKS", raising=False)
    catalog = written(tmp_path, LEAST)
    assert "deploy_release" in names() and "report" not in names()
    assert names(catalog=catalog) == ["report"]
    assert names(catalog=catalog, tasks="bridge.shipped") == [*names(), "report"]
    monkeypatch.setenv("MCP_TASKS_TASKS", "bridge.shipped")
    monkeypatch.setenv("MCP_TASKS_CATALOG", str(catalog))
    assert len(names()) == 4


def test_a_name_in_both_is_refused(tmp_path: Path) -> None:
    catalog = written(tmp_path, LEAST.replace("tools.report", "tools.deploy_release"))
    with pytest.raises(SettingsError, match="tool deploy_release: declared twice"):
        names(catalog=catalog, tasks="bridge.shipped")
