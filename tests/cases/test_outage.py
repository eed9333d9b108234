"""Temporal away in the middle of a call."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.client import Client

from tests.cases.client import McpClient
from tests.cases.stack import Stack
from tests.encryption import CONVERTER
from tests.support import eventually, unique
from tests.wire import Wire

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("declares", [True, False], ids=["task", "result"])
async def test_a_run_whose_start_was_never_confirmed_is_cancelled(stack: Stack, declares: bool) -> None:
    """The caller was told that nothing is known; nobody will ever have the id of what Temporal started all the same."""
    wire = Wire(stack.temporal.address)
    await wire.open()
    queue = unique("deaf")
    bridge = await stack.bridge(TEMPORAL_ADDRESS=wire.address, MCP_TASKS_TASK_QUEUE=queue)
    try:
        async with McpClient(bridge.url) as client:
            task_id = await client.start("slow", {"seconds": 60})
            wire.answering.clear()
            changes: dict[str, Any] = {} if declares else {"capabilities": {}}
            refused = await client.call("slow", {"seconds": 60}, **changes)
            wire.answering.set()
            assert (refused.code, refused.message["error"]["data"]) == (-32603, {"retryAfterMs": 1000})

        temporal = await Client.connect(stack.temporal.address, data_converter=CONVERTER)

        async def unnamed_run_is_cancelled() -> bool:
            runs = [run async for run in temporal.list_workflows(f"TaskQueue = '{queue}'")]
            unnamed = [run.id for run in runs if run.id != task_id]
            described = [await temporal.get_workflow_handle(run).describe() for run in unnamed]
            extended = [run.raw_description.workflow_extended_info for run in described]
            return len(extended) == 1 and extended[0].cancel_requested

        await eventually(unnamed_run_is_cancelled, what="the cancel of the unnamed run", within=60)
    finally:
        await bridge.kill()
        await wire.cut()
