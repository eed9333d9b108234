"""The shortest way through everything."""

from __future__ import annotations

import pytest

from tests.cases.client import McpClient, accept

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_call_becomes_a_task_that_asks_and_completes(client: McpClient) -> None:
    task_id = await client.start("ask", {"n": 1})
    (key,) = await client.parked(task_id)
    assert (await client.update(task_id, {key: accept(text="yes")})).result == {"resultType": "complete"}
    task = await client.finished(task_id)
    assert task["result"]["structuredContent"]["answers"] == [["Question 0", "yes"]]
