"""An owner with as many streams or waiting calls as it may have is refused, another one is not; places come back."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest
import pytest_asyncio

from tests.cases.client import FORMS, McpClient, Reply, accept
from tests.cases.listening import acknowledged, listening
from tests.cases.stack import Process, Programs
from tests.limits.conftest import Named
from tests.support import eventually, unique

pytestmark = pytest.mark.asyncio(loop_scope="session")

WAITING_CALLS: Final = 2
STREAMS: Final = 3
STREAMS_PER_OWNER: Final = 2
STREAM_TASKS: Final = 4
LONG: Final = {"seconds": 600}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bridge(programs: Programs) -> Process:
    """With small limits."""
    return await programs.bridge(
        MCP_TASKS_WAITING_CALLS_PER_OWNER=str(WAITING_CALLS),
        MCP_TASKS_STREAMS=str(STREAMS),
        MCP_TASKS_STREAMS_PER_OWNER=str(STREAMS_PER_OWNER),
        MCP_TASKS_STREAM_TASKS_PER_OWNER=str(STREAM_TASKS),
    )


def message_of(reply: Reply) -> str:
    """What a 429 says."""
    error = reply.message["error"]
    assert (reply.status, error["code"], error["data"]) == (429, 429, {"retryAfterMs": 1000})
    return str(error["message"])


async def listen(client: McpClient, *task_ids: str) -> Reply:
    """A subscription that is expected to be refused."""
    async with asyncio.timeout(10):
        return await client.request("subscriptions/listen", {"notifications": {"taskIds": list(task_ids)}})


async def opened(client: McpClient, *task_ids: str) -> None:
    """Open a subscription as soon as there is a place for it, and close it."""

    async def accepted() -> bool:
        try:
            async with listening(client, task_ids) as stream:
                await acknowledged(stream)
                return True
        except AssertionError as refused:
            assert "429" in str(refused)
            await asyncio.sleep(0.05)
            return False

    await eventually(accepted, what="a place")


async def test_streams_are_bounded_for_an_owner_and_in_all_and_places_come_back(alice: Named, bob: Named) -> None:
    async with AsyncExitStack() as streams:
        for _ in range(STREAMS_PER_OWNER):
            await acknowledged(await streams.enter_async_context(listening(alice, [])))
        assert message_of(await listen(alice)).startswith(f"At most {STREAMS_PER_OWNER} subscriptions")
        for _ in range(STREAMS - STREAMS_PER_OWNER):
            await acknowledged(await streams.enter_async_context(listening(bob, [])))
        assert message_of(await listen(bob)).startswith("This server has no room")
    await opened(alice)
    await opened(bob)


async def test_tasks_are_bounded_over_all_streams_of_an_owner(alice: Named, bob: Named) -> None:
    ids = [unique("task") for _ in range(STREAM_TASKS + 1)]
    assert message_of(await listen(alice, *ids)).startswith(f"At most {STREAM_TASKS} tasks")
    async with listening(alice, ids[:3]) as stream:
        await acknowledged(stream)
        assert message_of(await listen(alice, *ids[3:])).startswith(f"At most {STREAM_TASKS} tasks")
        await opened(bob, *ids[1:])
    await opened(alice, *ids[1:])


async def test_a_stream_that_was_refused_for_another_reason_takes_no_place(alice: Named) -> None:
    for _ in range(2 * STREAMS):
        reply = await alice.request("subscriptions/listen", {"notifications": {"taskIds": "none"}})
        assert reply.code == -32602
    await opened(alice)


async def test_calls_that_wait_are_bounded_and_a_client_that_leaves_makes_room(
    bridge: Process, alice: Named, bob: Named
) -> None:
    async with Named(bridge.url, alice.subject, FORMS) as plain, Named(bridge.url, bob.subject, FORMS) as other:
        begun, label = unique("side"), unique("side")
        call = {"seconds": 600, "steps": 600, "label": begun}
        waiting = [asyncio.create_task(plain.call("slow", call)) for _ in range(WAITING_CALLS)]

        async def both_wait() -> bool:
            return await other.count(begun) >= WAITING_CALLS

        await eventually(both_wait, what="both calls")
        refused = await plain.call("slow", {"seconds": 0, "label": label})
        assert message_of(refused).startswith(f"At most {WAITING_CALLS} calls may wait")
        assert (await other.call("echo", {"x": 1})).status == 200
        task_id = await alice.start("slow", {"seconds": 0})  # gets a task, and does not wait
        waiting[0].cancel()

        async def has_room() -> bool:
            return (await plain.call("echo", {"x": 1})).status == 200

        await eventually(has_room, what="a place")
        waiting[1].cancel()
        assert (await alice.finished(task_id))["status"] == "completed"
        assert await other.count(label) == 0


async def test_a_flood_of_an_owners_reads_does_not_lock_its_answers_out(programs: Programs) -> None:
    """IU-12, with a rate: what the owner answers gets through while its reads are refused."""
    replica = await programs.bridge(MCP_TASKS_REQUESTS_PER_SECOND="20", MCP_TASKS_REQUEST_BURST="20")
    async with Named(replica.url) as alice, Named(replica.url) as bob:
        task_id = await alice.start("ask", {"n": 1})
        ((key, _),) = (await alice.parked(task_id)).items()
        other = await bob.start("slow", LONG)
        statuses = set[int]()

        async def flood() -> None:
            while True:
                statuses.add((await alice.request("tasks/get", {"taskId": task_id})).status)

        flooding = [asyncio.create_task(flood()) for _ in range(5)]
        await eventually(lambda: _has(statuses, 429), what="a refusal")
        answer: dict[str, Any] = {key: accept(text="yes")}
        assert (await alice.update(task_id, answer)).result == {"resultType": "complete"}
        assert (await bob.get(other)).status == 200
        assert (await bob.cancel(other)).status == 200
        for task in flooding:
            task.cancel()
        await asyncio.gather(*flooding, return_exceptions=True)
        assert statuses == {200, 429}

        async def ended() -> bool:
            reply = await alice.get(task_id)
            await asyncio.sleep(0.1)
            return reply.status == 200 and reply.result["status"] == "completed"

        await eventually(ended, what="the end")


async def _has(statuses: set[int], status: int) -> bool:
    return status in statuses
