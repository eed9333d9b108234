"""The listen halves of CR-08, TR-13 and TR-14: how a subscription ends is no matter of its task, and while it is open
it holds up nothing else. Over HTTP and over stdio; what only stdio has is in tests/stdio.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from bridge.dev_server import free_port
from tests.cases.client import McpClient, accept
from tests.cases.stack import Process, Stack
from tests.cases.subscribers import both, http_subscriber, listen_params, pipe_subscriber
from tests.stdio.client import StdioClient, cancelled, request, stdio_client
from tests.support import eventually, unique
from tests.wire import Wire

pytestmark = pytest.mark.asyncio(loop_scope="session")


# CR-08


async def test_ending_a_subscription_over_http_never_reaches_the_task(client: McpClient) -> None:
    label = unique("closed")
    task_id = await client.start("slow", {"seconds": 2, "label": label})
    async with http_subscriber(client, [task_id]) as staying:
        async with http_subscriber(client, [task_id]) as leaving:
            await leaving.told(task_id)
        async with http_subscriber(client, [task_id]) as resetting:
            await resetting.told(task_id)
            assert resetting.response.connection is not None and resetting.response.connection.transport is not None
            resetting.response.connection.transport.abort()
        for request_id in (staying.id, leaving.id, task_id):
            params = {"requestId": request_id}
            body = {
                name: value for name, value in client.body("notifications/cancelled", params).items() if name != "id"
            }
            reply = await client.post(body, client.headers("notifications/cancelled", params))
            assert reply.status == 202 or 400 <= reply.status < 500
        assert (await staying.ended(task_id))["status"] == "completed"
    assert (await client.finished(task_id))["status"] == "completed"
    assert await client.count(label) == 1


async def test_cancelling_requests_on_the_pipe_never_reaches_the_task(pipe: StdioClient) -> None:
    label = unique("request")
    message = request("tools/call", {"name": "slow", "arguments": {"seconds": 2, "label": label}}, id=unique("call"))
    task_id = (await pipe.result(message))["taskId"]
    leaving, staying = await pipe_subscriber(pipe, [task_id]), await pipe_subscriber(pipe, [task_id])
    await pipe.send(*(cancelled(request_id) for request_id in (message["id"], task_id, leaving.id)))
    await pipe.alive()  # the cancels have been taken
    told = len(leaving.messages)
    assert (await staying.ended(task_id))["status"] == "completed"
    assert (await pipe.finished(task_id))["status"] == "completed"
    assert len(leaving.messages) == told
    await pipe.send(cancelled(staying.id))


async def test_a_process_that_is_killed_with_a_subscription_leaves_the_task_alone(
    client: McpClient, stack: Stack, worker: Process
) -> None:
    label = unique("killed")
    async with stdio_client(stack.environment) as doomed:
        task_id = await doomed.start("slow", {"seconds": 1, "label": label})
        await (await pipe_subscriber(doomed, [task_id])).told(task_id)
    assert (await client.finished(task_id))["status"] == "completed"
    assert stack.side_effects(label) == 1


# TR-13


async def test_open_streams_hold_up_nothing_over_http_and_are_told_meanwhile(client: McpClient) -> None:
    """Twenty streams, a slow call and a hundred requests at once; a cancel that is told before the slow call ends."""
    task_id = await client.start("slow", {"seconds": 60})
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(http_subscriber(client, [task_id])) for _ in range(20)]
        slow = asyncio.create_task(client.call("slow", {"seconds": 8}, capabilities={}))
        kinds: list[tuple[str, dict[str, Any]]] = [
            ("server/discover", {}),
            ("tools/list", {}),
            ("tasks/get", {"taskId": task_id}),
            ("tools/call", {"name": "unknown", "arguments": {}}),
        ]
        replies = await asyncio.gather(*(client.request(*kinds[number % 4]) for number in range(100)))
        assert [reply.code for reply in replies] == [None, None, None, -32602] * 25
        await client.cancel(task_id)
        for stream in streams:
            assert (await stream.ended(task_id))["status"] == "cancelled"
        assert not slow.done()
        assert (await slow).result["structuredContent"] == {"steps": 1}


async def test_streams_outlive_an_engine_that_hangs_and_are_told_what_happened_meanwhile(
    client: McpClient, stack: Stack, worker: Process
) -> None:
    wire = Wire(stack.temporal.address)
    await wire.open()
    bridge = await stack.bridge(TEMPORAL_ADDRESS=wire.address)
    try:
        async with (
            McpClient(bridge.url) as behind,
            stdio_client(stack.environment, TEMPORAL_ADDRESS=wire.address) as pipe,
        ):
            task_id = await client.start("ask", {"n": 2})
            (key,) = await client.parked(task_id)
            async with both(behind, pipe, [task_id]) as streams:
                for stream in streams:
                    await stream.told(task_id, "input_required")
                wire.flowing.clear()
                await client.update(task_id, {key: accept(text="yes")})
                (next_key,) = await client.parked(task_id, without=(key,))
                assert (await behind.request("server/discover")).code is None
                await pipe.alive()
                wire.flowing.set()

                async def asked() -> bool:
                    return all(
                        stream.tasks(task_id)[-1].get("inputRequests", {}).keys() == {next_key} for stream in streams
                    )

                await eventually(asked, what="the second question, told to both", within=60)
                await client.cancel(task_id)
                for stream in streams:
                    assert (await stream.ended(task_id))["status"] == "cancelled"
    finally:
        await bridge.kill()
        await wire.cut()


# TR-14 (SIGTERM: test_listen.py)


async def test_a_listen_while_temporal_is_down_is_an_error_at_once_and_not_an_empty_stream(stack: Stack) -> None:
    bridge = await stack.bridge(TEMPORAL_ADDRESS=f"127.0.0.1:{free_port()}")
    async with McpClient(bridge.url) as client:
        reply = await client.request("subscriptions/listen", listen_params([f"task-{'0' * 32}"]))
        assert (reply.code, reply.notifications) == (-32603, [])
        assert reply.message["error"]["data"]["retryAfterMs"] > 0
        async with http_subscriber(client, []) as stream:
            assert await stream.acknowledged() == {}
    await bridge.kill()
