"""subscriptions/listen with task ids: acknowledged first, then each task as it is, each change, its end once, last."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import pytest_asyncio

from tests.cases.client import TASKS, McpClient, accept
from tests.cases.listening import SUBSCRIPTION, Stream, acknowledged, listening
from tests.cases.stack import Process, Stack
from tests.support import eventually, unique

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_task_is_told_from_its_question_to_its_end_as_tasks_get_says_it(client: McpClient) -> None:
    task_id = await client.start("ask", {"n": 2, "label": unique("told")})
    await client.parked(task_id)
    async with listening(client, [task_id]) as stream:
        assert await acknowledged(stream) == {"taskIds": [task_id]}
        first = await stream.told(task_id, "input_required")
        assert first.pop("_meta") == {SUBSCRIPTION: stream.id}
        got = (await client.get(task_id)).result
        assert first == {name: value for name, value in got.items() if name != "resultType"}
        answered = set[str]()
        for _ in range(2):
            (key,) = await client.parked(task_id, without=tuple(answered))
            await client.update(task_id, {key: accept(text="yes")})
            answered.add(key)
        last = await stream.told(task_id, "completed")
        last.pop("_meta")
        got = (await client.get(task_id)).result
        assert last == {name: value for name, value in got.items() if name != "resultType"}
    asked = [set(task["inputRequests"]) for task in stream.tasks(task_id) if task["status"] == "input_required"]
    assert len(asked) == 2, "each question is told once"
    assert stream.tasks(task_id)[-1]["status"] == "completed"


async def test_an_ended_task_is_told_once(client: McpClient) -> None:
    task_id = await client.start("echo_task", {"x": 1})
    await client.finished(task_id)
    async with listening(client, [task_id]) as stream:
        await stream.told(task_id, "completed")
        await asyncio.sleep(0.3)
    assert len(stream.tasks(task_id)) == 1


async def test_progress_is_told_as_the_state_of_the_task_and_never_by_itself(client: McpClient) -> None:
    created = await client.call("slow", {"seconds": 3, "label": unique("reports")}, meta={"progressToken": "p"})
    task_id = created.result["taskId"]
    async with listening(client, [task_id]) as stream:
        await stream.told(task_id, "completed")
    told = {message["method"] for message in stream.messages}
    assert told == {"notifications/subscriptions/acknowledged", "notifications/tasks"}
    assert any("step" in task.get("statusMessage", "") for task in stream.tasks(task_id))


async def test_what_is_not_one_s_own_is_left_out_of_the_acknowledgement(client: McpClient) -> None:
    task_id = await client.start("ask", {"n": 1})
    async with listening(client, [task_id, "task-unknown", task_id, ""], toolsListChanged=True) as stream:
        assert await acknowledged(stream) == {"taskIds": [task_id]}
    await client.cancel(task_id)


async def test_without_a_task_nothing_is_promised_and_the_stream_stays(client: McpClient) -> None:
    async with listening(client, [], {}) as stream:
        assert await acknowledged(stream) == {}
        await asyncio.sleep(0.2)
        assert not stream.reading.done()


async def test_tasks_need_the_extension(client: McpClient) -> None:
    params = {"notifications": {"taskIds": ["x"]}}
    reply = await client.request("subscriptions/listen", params, capabilities={})
    assert (reply.status, reply.code) == (400, -32021)
    assert TASKS in reply.message["error"]["data"]["requiredCapabilities"]["extensions"]


@pytest.mark.parametrize("notifications", [None, [], {"taskIds": "x"}, {"taskIds": [1]}])
async def test_a_filter_of_another_shape_is_refused(client: McpClient, notifications: Any) -> None:
    reply = await client.request("subscriptions/listen", {"notifications": notifications})
    assert (reply.status, reply.code) == (400, -32602)


async def test_a_client_that_takes_no_stream_is_refused(client: McpClient) -> None:
    params: dict[str, Any] = {"notifications": {}}
    reply = await client.request("subscriptions/listen", params, headers={"Accept": "application/json"})
    assert (reply.status, reply.code) == (406, -32600)


async def test_a_question_that_this_client_cannot_be_asked_is_not_told(client: McpClient) -> None:
    task_id = await client.start("ask", {"n": 1})
    (key,) = await client.parked(task_id)
    async with listening(client, [task_id], {"extensions": {TASKS: {}}}) as stream:
        assert await acknowledged(stream) == {"taskIds": [task_id]}
        await client.update(task_id, {key: accept(text="yes")})
        await stream.told(task_id, "completed")
    assert "input_required" not in {task["status"] for task in stream.tasks(task_id)}


async def test_many_listeners_of_one_task_are_all_told(client: McpClient) -> None:
    task_id = await client.start("ask", {"n": 1})
    (key,) = await client.parked(task_id)
    streams = list[Stream]()

    async def listen() -> None:
        async with listening(client, [task_id]) as stream:
            streams.append(stream)
            await stream.told(task_id, "completed")

    listeners = [asyncio.create_task(listen()) for _ in range(10)]

    async def all_know() -> bool:
        return len([stream for stream in streams if stream.tasks(task_id)]) == 10

    await eventually(all_know, what="ten listeners")
    await client.update(task_id, {key: accept(text="yes")})
    await asyncio.gather(*listeners)
    assert {tuple(task["status"] for task in stream.tasks(task_id))[-1] for stream in streams} == {"completed"}


async def test_a_bridge_that_stops_ends_the_stream_with_a_result(stack: Stack, worker: Process) -> None:
    stopping = await stack.bridge()
    async with McpClient(stopping.url) as client:
        task_id = await client.start("ask", {"n": 1})
        async with listening(client, [task_id]) as stream:
            await stream.told(task_id, "input_required")
            assert await stopping.stop() == 0
            await asyncio.wait_for(stream.reading, 20)
    assert stream.messages[-1]["id"] == stream.id
    result = stream.messages[-1]["result"]
    assert result["resultType"] == "complete"
    assert result["_meta"][SUBSCRIPTION] == stream.id


async def test_a_task_can_be_listened_to_at_another_bridge(stack: Stack, client: McpClient) -> None:
    other = await stack.bridge()
    task_id = await client.start("slow", {"seconds": 1, "steps": 2, "label": unique("elsewhere")})
    async with McpClient(other.url) as second, listening(second, [task_id]) as stream:
        await stream.told(task_id, "completed")


@pytest_asyncio.fixture(loop_scope="session")
async def alone(stack: Stack, worker: Process) -> Process:
    """A bridge that nobody else uses."""
    return await stack.bridge()
