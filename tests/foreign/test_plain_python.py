"""A worker that knows nothing of MCP, and one workflow of it that asks by the contract alone."""

from __future__ import annotations

import ast
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.dev_server import DevServer
from tests.cases.client import FORMS, McpClient, accept
from tests.foreign.running import PLAIN_PYTHON, cataloged, foreign_worker, python
from tests.support import unique

pytestmark = pytest.mark.asyncio(loop_scope="session")

INVOICE = {"id": "I-7", "cents": 1250}


async def test_the_worker_imports_temporalio_alone() -> None:
    tree = ast.parse((PLAIN_PYTHON / "worker.py").read_text("utf-8"))
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.split(".")[0] for name in names} - sys.stdlib_module_names == {"temporalio"}


async def test_the_catalog_is_what_tools_list_shows(office: McpClient) -> None:
    """And the sample tools are not offered beside it."""
    tools = {tool["name"]: tool for tool in (await office.request("tools/list")).result["tools"]}
    assert "migrate_records" not in tools and len(tools) == 8
    report = tools["monthly_report"]
    assert (report["title"], report["annotations"]) == ("Monthly report", {"readOnlyHint": True})
    assert report["inputSchema"]["additionalProperties"] is False
    assert tools["approve_invoice"]["inputSchema"]["required"] == ["id", "cents"]


@pytest.mark.parametrize(
    ("arguments", "copies"),
    [({"month": "2026-11"}, 1), ({"copies": 3, "month": "2026-11"}, 3)],
    ids=["left out, so the workflow's default", "given, in any order"],
)
async def test_properties_become_positional_arguments(
    office: McpClient, arguments: dict[str, Any], copies: int
) -> None:
    """Also: inside its wait budget a tool of others answers without a task."""
    result = (await office.call("monthly_report", arguments)).result
    assert result["structuredContent"] == {"month": "2026-11", "copies": copies}


async def test_arguments_that_do_not_fit_the_schema_start_nothing(office: McpClient) -> None:
    result = (await office.call("monthly_report", {"month": "2026-11", "copies": 0})).result
    assert result["isError"] and "copies" in result["content"][0]["text"]


async def test_a_workflow_without_handlers_is_a_task_to_its_end(office: McpClient) -> None:
    task_id = await office.start("nightly_import", {"seconds": 1})
    assert (await office.get(task_id)).result["status"] == "working"
    assert (await office.finished(task_id))["result"] == {"resultType": "complete", "content": []}


async def test_a_workflow_without_handlers_is_cancelled(office: McpClient) -> None:
    task_id = await office.start("nightly_import", {"seconds": 3600})
    await office.cancel(task_id)
    assert (await office.finished(task_id))["status"] == "cancelled"


async def test_a_workflow_that_keeps_no_time_ends_with_its_lifetime(office: McpClient) -> None:
    task = await office.finished(await office.start("short_import", {"seconds": 3600}))
    assert (task["status"], task["error"]["code"]) == ("failed", -32603)
    assert task["statusMessage"] == "The task took longer than it may and was ended"


@pytest.mark.parametrize("approve", [True, False])
async def test_it_asks_and_is_answered(office: McpClient, approve: bool) -> None:
    task_id = await office.start("approve_invoice", INVOICE)
    asked = await office.parked(task_id)
    assert asked["approval"]["params"]["message"] == "Pay 1250 cents?"
    refused = await office.update(task_id, {"approval": accept(approve="yes")})
    assert refused.code == -32602
    await office.update(task_id, {"approval": accept(approve=approve)})
    task = await office.finished(task_id)
    assert task["result"]["structuredContent"] == {"invoice": "I-7", "approved": approve}


async def test_it_is_cancelled_while_it_asks(office: McpClient) -> None:
    task_id = await office.start("approve_invoice", INVOICE)
    await office.parked(task_id)
    await office.cancel(task_id)
    assert (await office.finished(task_id))["status"] == "cancelled"


async def test_it_asks_a_caller_without_tasks_in_rounds(office: McpClient) -> None:
    asked = (await office.call("approve_invoice", INVOICE, capabilities=FORMS)).result
    assert asked["resultType"] == "input_required"
    answers = {key: accept(approve=True) for key in asked["inputRequests"]}
    done = await office.call(
        "approve_invoice", INVOICE, capabilities=FORMS, state=asked["requestState"], responses=answers
    )
    assert done.result["structuredContent"] == {"invoice": "I-7", "approved": True}


async def test_it_asks_before_there_is_a_task(office: McpClient) -> None:
    """A caller that takes handles is asked in a round all the same; the contract's `phase` says so."""
    asked = (await office.call("confirm_invoice", INVOICE)).result
    assert asked["resultType"] == "input_required" and set(asked["inputRequests"]) == {"approval"}
    answers = {"approval": accept(approve=True)}
    done = await office.call("confirm_invoice", INVOICE, state=asked["requestState"], responses=answers)
    assert done.result["structuredContent"] == {"invoice": "I-7", "approved": True}


async def test_a_question_is_read_and_answered_while_no_worker_is_there(temporal: DevServer, tmp_path: Path) -> None:
    """The memo's snapshot stands in for the query."""
    queue = unique("office")
    project = shutil.copytree(PLAIN_PYTHON, tmp_path / "office")
    catalog = project / "catalog.toml"
    catalog.write_text(catalog.read_text("utf-8").replace('"office"', f'"{queue}"'), "utf-8")
    worker = python(project / "worker.py")
    async with cataloged(temporal, catalog) as client:
        async with foreign_worker(temporal, *worker, queue=queue):
            task_id = await client.start("approve_invoice", INVOICE)
            await client.parked(task_id)
    async with cataloged(temporal, catalog) as client:  # another bridge, which has seen nothing
        task = (await client.get(task_id)).result
        assert task["status"] == "input_required" and "statusMessage" not in task
        await client.update(task_id, {"approval": accept(approve=True)})
        async with foreign_worker(temporal, *worker, queue=queue):
            assert (await client.finished(task_id))["result"]["structuredContent"]["approved"]


@pytest.mark.parametrize(
    ("reason", "status", "shown"),
    [
        ({"type": "mcp.ToolError"}, "completed", "The ledger is closed"),
        ({"type": "LedgerClosed"}, "completed", "The ledger is closed"),
        ({"type": "Unexpected"}, "completed", "internal error"),
        ({"type": "mcp.Expired"}, "failed", "The ledger is closed"),
        ({"type": "mcp.JsonRpcError", "details": [{"code": -7, "message": "No", "data": [1]}]}, "failed", "No"),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
async def test_the_type_of_a_failure_says_what_the_client_reads(
    office: McpClient, reason: dict[str, Any], status: str, shown: str
) -> None:
    task = await office.finished(await office.start("refuse", reason))
    assert task["status"] == status
    if status == "failed":
        assert task["error"]["message"] == shown
        assert ("details" not in reason) or task["error"] == reason["details"][0]
    else:
        assert task["result"]["isError"] and shown in task["result"]["content"][0]["text"]


async def test_the_catalog_decides_what_a_result_that_looks_like_one_of_a_tool_is(office: McpClient) -> None:
    content = [{"type": "text", "text": "Hello"}]
    as_result = await office.finished(await office.start("read_page", {"title": "Hello"}))
    as_data = await office.finished(await office.start("read_page_as_data", {"title": "Hello"}))
    assert as_result["result"] == {"resultType": "complete", "content": content}
    assert as_data["result"]["structuredContent"] == {"content": content}
