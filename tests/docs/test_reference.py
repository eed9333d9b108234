"""The reference pages lag behind nothing: what the code has, they name."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any, Final

import pytest
import typer
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS
from pydantic import BaseModel

import workflows.kit
from activities import deploy_release, migrate_records, secret_store, web
from bridge import errors
from bridge.cli import app
from bridge.settings import PREFIX, BridgeSettings, CodecServerSettings, WorkerSettings
from tests.conformance.scenarios import SCENARIOS
from tests.docs.pages import text_of
from tests.support import ROOT
from workflows.kit import Task, contract, tool

SAMPLE_TOOL_VARIABLES: Final = (
    migrate_records.ROOT_VARIABLE,
    deploy_release.ROOT_VARIABLE,
    deploy_release.APPROVERS_VARIABLE,
    secret_store.FILE_VARIABLE,
    web.ALLOW_PRIVATE_VARIABLE,
)

SPOKEN: Final = frozenset({"Refusal", "MCPError", "TooMany"})
"""Exceptions whose message a client reads."""


def settings() -> set[str]:
    return {
        PREFIX + name.upper()
        for model in (BridgeSettings, WorkerSettings, CodecServerSettings)
        for name in model.model_fields
    }


@pytest.mark.parametrize("variable", sorted({*settings(), *SAMPLE_TOOL_VARIABLES}))
def test_every_setting_has_its_row(variable: str) -> None:
    assert f"| `{variable}` |" in text_of("reference/settings.md")


def test_no_setting_is_invented() -> None:
    named = set(re.findall(r"^\| `(MCP_TASKS_\w+)` \|", text_of("reference/settings.md"), re.MULTILINE))
    assert named == {*settings(), *SAMPLE_TOOL_VARIABLES}


@pytest.mark.parametrize("field", ["task_queue", "tasks", "log_level", "host", "port", "path", "max_body_bytes"])
def test_a_settings_default_is_the_one_documented(field: str) -> None:
    default = BridgeSettings.model_fields[field].default
    assert f"| `{PREFIX}{field.upper()}` | `{default}` |" in text_of("reference/settings.md")


def command_options() -> list[tuple[str, str]]:
    commands: dict[str, Any] = vars(typer.main.get_command(app))["commands"]
    return [
        (name, option)
        for name, command in commands.items()
        for parameter in command.params
        for option in ([parameter.metavar] if parameter.param_type_name == "argument" else parameter.opts)
    ]


@pytest.mark.parametrize(("command", "option"), command_options())
def test_every_option_is_in_the_section_of_its_command(command: str, option: str) -> None:
    page = text_of("reference/cli.md")
    assert f"## `mcp-tasks {command}`" in page
    section = page.split(f"## `mcp-tasks {command}`")[1].split("\n## ")[0]
    assert f"| `{option}" in section or option in {"-h", "--help"}


def contract_constants() -> dict[str, Any]:
    return {name: value for name, value in vars(contract).items() if name.isupper() and name != "UTC"}


@pytest.mark.parametrize("name", sorted(contract_constants()))
def test_every_constant_of_the_contract_is_documented_with_its_value(name: str) -> None:
    page, value = text_of("contract.md"), contract_constants()[name]
    if isinstance(value, tuple):
        assert all(f"`{part}`" in page for part in value)
    else:
        assert f"`{name}`" in page
        assert f"`{value}`" in page or f"{value:,}" in page or f'"v": {value}' in page


@pytest.mark.parametrize(
    "model",
    [
        contract.TaskMemo,
        contract.TaskView,
        contract.Pages,
        contract.PageForm,
        contract.Answerer,
        contract.UpdateSignal,
        contract.Principal,
        contract.Actor,
    ],
)
def test_every_field_of_the_contract_is_documented(model: type[BaseModel]) -> None:
    page = text_of("contract.md")
    for name, field in model.model_fields.items():
        assert f"`{field.alias or name}`" in page or name == "v", name


def bridge_errors() -> list[type[errors.BridgeError]]:
    return errors.BridgeError.__subclasses__()


@pytest.mark.parametrize("error", bridge_errors(), ids=lambda error: error.__name__)
def test_every_error_of_the_bridge_is_documented(error: type[errors.BridgeError]) -> None:
    assert re.search(
        rf"^\| {re.escape(error.message)} \| {error.code} \|", text_of("reference/errors.md"), re.MULTILINE
    )


@pytest.mark.parametrize("code", sorted(ERROR_CODE_HTTP_STATUS))
def test_every_code_is_documented_with_its_status(code: int) -> None:
    assert f"| {code} | {ERROR_CODE_HTTP_STATUS[code]}" in text_of("reference/errors.md")


def worded_refusals() -> list[tuple[str, list[str]]]:
    """Each literal message of an error that the bridge raises: where, and its constant parts."""
    found = []
    for path in sorted((ROOT / "bridge").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SPOKEN:
                spoken = (*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "message"))
                found += [(f"{path.name}:{node.lineno}", parts) for value in spoken if (parts := literal_parts(value))]
    return found


def literal_parts(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        values = [part.value for part in node.values if isinstance(part, ast.Constant)]
        return [value.strip() for value in values if isinstance(value, str) and value.strip()]
    return []


@pytest.mark.parametrize(("place", "parts"), worded_refusals())
def test_every_message_of_a_refusal_is_documented(place: str, parts: list[str]) -> None:
    page = text_of("reference/errors.md")
    assert all(part in page for part in parts), place


def test_every_argument_of_a_declaration_is_documented() -> None:
    page = text_of("reference/author-api.md")
    assert [name for name in inspect.signature(tool).parameters if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize("name", sorted(workflows.kit.__all__))
def test_everything_that_the_kit_exports_is_documented(name: str) -> None:
    assert f"`{name}" in text_of("reference/author-api.md") or f"`@{name}`" in text_of("reference/author-api.md")


@pytest.mark.parametrize(
    "method",
    [
        "execute",
        "before_handle",
        "elicit",
        "choose",
        "approve",
        "ask_secret",
        "spend",
        "answer_of",
        "ask",
        "progress",
        "checkpoint",
    ],
)
def test_every_method_for_authors_is_documented_with_its_arguments(method: str) -> None:
    row = re.search(rf"`(?:await self|self|async def)[. ]{method}\((.*?)\)", text_of("reference/author-api.md"))
    assert row is not None
    expected = [name for name in inspect.signature(getattr(Task, method)).parameters if name != "self"]
    documented = [part.split("=")[0].strip() for part in row[1].split(",")]
    assert [name for name in documented if name not in {"self", "*"}] == expected


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: f"{scenario.revision}-{scenario.name}")
def test_every_conformance_scenario_and_what_is_skipped_or_left_out_is_documented(scenario: Any) -> None:
    page = text_of("conformance.md")
    run = page.split(f"--requirements {scenario.revision}\n")[1].split("\n--requirements")[0]
    assert re.search(rf"^{'left' if scenario.left_out else 'pass'}  {scenario.name} ", run, re.MULTILINE)
    assert all(skip == scenario.name or f"`{skip}`" in page for skip in scenario.may_skip)
    assert not scenario.left_out or f"\n| `{scenario.name}` | " in page.split("## Left out")[1]


def test_every_variable_of_the_compose_file_is_documented() -> None:
    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    used = set(re.findall(rf"\b{PREFIX}\w+", text))
    assert used <= {*settings(), *SAMPLE_TOOL_VARIABLES}
