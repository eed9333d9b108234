"""A project with modules called `workflows` and `activities`, which has the kit under a name of its own."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.cases.client import FORMS, McpClient, accept
from tests.docs.pages import text_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

REFUND = {"order": "A-17", "cents": 1250}


@pytest.mark.parametrize(
    ("approve", "text"),
    [(True, "Paid back 1250 cents for order A-17."), (False, "Not approved. Nothing was paid back.")],
)
async def test_it_asks_is_answered_and_completes(acme: McpClient, approve: bool, text: str) -> None:
    task_id = await acme.start("refund", REFUND)
    assert (await acme.parked(task_id))["approval"]["params"]["message"] == "Pay back 1250 cents?"
    await acme.update(task_id, {"approval": accept(approve=approve)})
    task = await acme.finished(task_id)
    assert task["result"]["content"] == [{"type": "text", "text": text}]


async def test_it_unwinds_when_it_is_cancelled(acme: McpClient) -> None:
    task_id = await acme.start("refund", REFUND)
    await acme.parked(task_id)
    await acme.cancel(task_id)
    assert (await acme.finished(task_id))["status"] == "cancelled"


async def test_its_tool_errors_are_tool_errors(acme: McpClient) -> None:
    """A failure's type is a name of the contract, whatever the kit's package is called."""
    task = await acme.finished(await acme.start("refund", {"order": "A-17", "cents": 0}))
    assert task["status"] == "completed" and task["result"]["isError"]
    assert task["result"]["content"][0]["text"] == "There is nothing to pay back."


async def test_it_keeps_its_lifetime_itself(acme: McpClient) -> None:
    """So it may unwind, which a run that Temporal ends may not."""
    task = await acme.finished(await acme.start("hasty_refund", REFUND))
    assert task["status"] == "failed" and "lifetime" in task["statusMessage"]


async def test_the_schema_in_its_catalog_is_the_tools_own(acme: McpClient, acme_project: Path) -> None:
    """As the guide's command writes it."""
    (command,) = re.findall(r"^\$ python (-c .*) > refund.json$", text_of("how-to/vendor-the-kit.md"), re.MULTILINE)
    process = await asyncio.create_subprocess_exec(
        sys.executable, *shlex.split(command), cwd=acme_project, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert output.decode() == (acme_project / "refund.json").read_text("utf-8")
    (shown,) = [tool for tool in (await acme.request("tools/list")).result["tools"] if tool["name"] == "refund"]
    assert shown["inputSchema"] == json.loads(output)


async def test_it_asks_a_caller_without_tasks_in_rounds(acme: McpClient) -> None:
    asked = (await acme.call("refund", REFUND, capabilities=FORMS)).result
    done = await acme.call(
        "refund",
        REFUND,
        capabilities=FORMS,
        state=asked["requestState"],
        responses={"approval": accept(approve=True)},
    )
    assert done.result["content"][0]["text"].startswith("Paid back")
