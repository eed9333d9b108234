"""The tools that the documentation shows are pasted as a reader pastes them, served, and used to their ends."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from bridge.catalog_file import read_catalog
from bridge.dev_server import DevServer
from bridge.settings import SettingsError
from bridge.vendor import vendor
from tests.cases.client import FORMS, McpClient, accept
from tests.cases.stack import Programs, program_environment
from tests.docs.pages import DOCS, TESTING, TUTORIAL, blocks, imported, unwinding_tool
from tests.support import ROOT, unique

_in_session: Final = pytest.mark.asyncio(loop_scope="session")

VENDORING: Final = DOCS / "how-to" / "vendor-the-kit.md"
REFUND: Final = {"order": "A-17", "cents": 1250}


@asynccontextmanager
async def served(code: str, temporal: DevServer, folder: Path) -> AsyncIterator[McpClient]:
    """A client of `code`, saved as refunds.py and served by a worker and a bridge with `--tasks refunds`."""
    (folder / "refunds.py").write_text(code, "utf-8")
    environment = program_environment(folder, temporal.environment)
    environment["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(folder)))
    programs = Programs(environment={**environment, "MCP_TASKS_TASK_QUEUE": unique("docs")})
    try:
        await programs.worker("refunds")
        bridge = await programs.bridge("refunds")
        async with McpClient(bridge.url) as client:
            yield client
    finally:
        await programs.close()


def test_the_first_tool_has_under_30_lines_and_is_the_same_on_both_pages() -> None:
    (readme,), first = blocks(ROOT / "README.md", "python"), blocks(TUTORIAL, "python")[0]
    assert readme == first
    assert len(first.splitlines()) < 30


@_in_session
async def test_the_first_tool_asks_pays_declines_and_is_cancelled(temporal: DevServer, tmp_path: Path) -> None:
    async with served(blocks(TUTORIAL, "python")[0], temporal, tmp_path) as client:
        paid, declined, cancelled = [await client.start("refund", REFUND) for _ in range(3)]
        for task, content in ((paid, {"approve": True}), (declined, {"approve": False})):
            assert list(await client.parked(task)) == ["approval"]
            assert (await client.update(task, {"approval": accept(**content)})).code is None
        assert (await client.cancel(cancelled)).code is None
        texts = [(await client.finished(task))["result"]["content"][0]["text"] for task in (paid, declined)]
        assert texts == ["Paid back 1250 cents for order A-17.", "Not approved. Nothing was paid back."]
        assert (await client.finished(cancelled))["status"] == "cancelled"


@_in_session
async def test_the_tool_that_unwinds_runs_its_way_back(temporal: DevServer, tmp_path: Path) -> None:
    async with served(unwinding_tool(), temporal, tmp_path) as client:
        paid, declined, cancelled = [await client.start("refund", REFUND) for _ in range(3)]
        for task, content in ((paid, {"approve": True}), (declined, {"approve": False})):
            await client.parked(task)
            assert (await client.get(task)).result["statusMessage"] == "Waiting for the approval"
            await client.update(task, {"approval": accept(**content)})
        await client.parked(cancelled)
        await client.cancel(cancelled)
        assert (await client.finished(paid))["result"]["content"][0]["text"].startswith("Paid back")
        assert (await client.finished(declined))["result"]["isError"]
        assert (await client.finished(cancelled))["status"] == "cancelled"
        assert await printed_history(client, cancelled) == shown_history()
        first = await client.call("refund", REFUND, capabilities=FORMS)
        assert first.result["resultType"] == "input_required"  # as README says of clients without the extension


async def printed_history(client: McpClient, task: str) -> str:
    """What the tutorial's command prints of the task's history."""
    (command,) = re.findall(r"python3 -c '\n(.*?)'$", TUTORIAL.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    uri = f"mcp-task://{task}/history"
    answer = await client.request("resources/read", {"uri": uri}, headers={"Mcp-Name": uri})
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", command), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate(json.dumps(answer.message).encode())
    return output.decode()


def shown_history() -> str:
    """The history on the page."""
    (shown,) = [block for block in blocks(TUTORIAL, "console") if "resources/read" in block]
    return "created\n" + shown.partition("\ncreated\n")[2]


@_in_session
async def test_the_tests_that_the_guide_shows_pass(tmp_path: Path) -> None:
    tool, guide = blocks(TUTORIAL, "python")[0], blocks(TESTING, "python")
    replay = f"import pytest\nfrom temporalio.client import WorkflowHistory\n{guide[0]}\n{guide[1]}"
    with imported("refunds", tool, tmp_path), imported("test_refunds", replay, tmp_path) as tests:
        await tests.test_an_approved_refund_is_paid_and_its_history_replays()
        await tests.test_a_refund_that_nobody_approves_in_three_days_ends()


def test_the_kit_is_copied_with_the_lines_that_the_guide_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = "$ mcp-tasks vendor acme/mcp_kit\n"
    shown = [block.removeprefix(command) for block in blocks(VENDORING, "console") if block.startswith(command)]
    copy = Path("acme/mcp_kit")
    lines = [vendor(copy).line(as_json=False), vendor(copy).line(as_json=False)]
    (copy / "forms.py").write_text("", "utf-8")
    with pytest.raises(SettingsError) as caught:
        vendor(copy)
    assert [f"{line}\n" for line in (*lines, f"mcp-tasks: {caught.value}")] == shown


def test_the_tool_of_others_can_be_offered(tmp_path: Path) -> None:
    (entry,) = blocks(DOCS / "contract.md", "toml")
    (tmp_path / "tools.toml").write_text(entry, "utf-8")
    (tool,) = read_catalog(tmp_path / "tools.toml")
    assert (tool.workflow_type, tool.queue) == ("MonthlyReport", "office")
