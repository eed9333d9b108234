"""subscriptions/listen on the one pipe, beside everything else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases.client import accept
from tests.stdio.client import StdioClient, cancelled, request
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def told(server: StdioClient, listen_id: Any) -> list[dict[str, Any]]:
    """The notifications of one subscription, in order."""
    return [
        message
        for message in server.messages
        if "method" in message and message["params"].get("_meta", {}).get(SUBSCRIPTION) == listen_id
    ]


async def listen(server: StdioClient, listen_id: Any, *task_ids: str) -> None:
    await server.send(request("subscriptions/listen", {"notifications": {"taskIds": list(task_ids)}}, id=listen_id))

    async def acknowledged() -> bool:
        return bool(told(server, listen_id))

    await eventually(acknowledged, what="the acknowledgement")
    assert told(server, listen_id)[0]["method"] == "notifications/subscriptions/acknowledged"


async def status_told(server: StdioClient, listen_id: Any, status: str) -> None:
    async def found() -> bool:
        return any(message["params"].get("status") == status for message in told(server, listen_id))

    await eventually(found, what=f"{status} told to {listen_id}")


async def test_subscriptions_share_the_pipe_with_calls(server: StdioClient) -> None:
    task_id = await server.start("ask", {"n": 1})
    await listen(server, "one", task_id)
    await listen(server, "two", task_id)
    (key,) = await server.parked(task_id)
    await server.result(request("tasks/update", {"taskId": task_id, "inputResponses": {key: accept(text="yes")}}))
    for listen_id in ("one", "two"):
        await status_told(server, listen_id, "completed")
        assert told(server, listen_id)[-1]["params"]["status"] == "completed"
    await server.alive()


async def test_a_cancelled_subscription_is_told_nothing_more_and_the_task_goes_on(server: StdioClient) -> None:
    task_id = await server.start("ask", {"n": 1})
    await listen(server, 7001, task_id)
    await status_told(server, 7001, "input_required")
    await server.send(cancelled(7001))
    await server.alive()
    before = len(told(server, 7001))
    (key,) = await server.parked(task_id)
    await server.result(request("tasks/update", {"taskId": task_id, "inputResponses": {key: accept(text="yes")}}))
    await server.finished(task_id)
    assert len(told(server, 7001)) == before
    assert server.responses(7001) == []


async def test_the_end_of_the_input_ends_a_subscription_with_its_result_at_once(server: StdioClient) -> None:
    task_id = await server.start("ask", {"n": 1})
    await listen(server, "last", task_id)
    server.end_input()
    assert await server.status() == 0
    (response,) = server.responses("last")
    assert response["result"]["_meta"][SUBSCRIPTION] == "last"
