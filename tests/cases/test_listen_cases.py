"""The listen halves of PE-01, PE-09, LC-02, LC-06 and CR-05, over HTTP and over stdio at once where a case is about
both (what only stdio has is in tests/stdio).
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
import pytest_asyncio

from bridge.reader import NO_WORKER
from tests.cases.client import TASKS, TERMINAL, McpClient, accept
from tests.cases.counts import counts
from tests.cases.listening import SUBSCRIPTION
from tests.cases.stack import Process, Stack
from tests.cases.subscribers import (
    PipeSubscriber,
    Subscriber,
    both,
    http_subscriber,
    listen_params,
    pipe_subscriber,
    same_id,
)
from tests.stdio.client import StdioClient, cancelled, request, stdio_client
from tests.support import unique
from tests.wire import Wire

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def elsewhere(stack: Stack, worker: Process) -> AsyncIterator[McpClient]:
    """A client of another bridge."""
    bridge = await stack.bridge()
    async with McpClient(bridge.url) as client:
        yield client
    await bridge.kill()


# PE-01

IDS: Final = [
    *(1, "1", 0, -1, "007", " 7 ", "1_000", "\u0667", ""),
    *(9007199254740993, "9007199254740993", "x" * 4096),
]


async def test_what_is_told_carries_the_id_of_its_listen_as_it_was_sent(stack: Stack, worker: Process) -> None:
    stopping = await stack.bridge()
    async with McpClient(stopping.url) as client, AsyncExitStack() as streams:
        task_id = await client.start("ask", {"n": 1})
        listening = [await streams.enter_async_context(http_subscriber(client, [task_id], id=an_id)) for an_id in IDS]
        await client.cancel(task_id)
        for subscriber in listening:
            assert (await subscriber.ended(task_id))["status"] == "cancelled"
        assert await stopping.stop() == 0
        await asyncio.gather(*(asyncio.wait_for(subscriber.reading, 20) for subscriber in listening))
    for an_id, subscriber in zip(IDS, listening, strict=True):
        *told, response = subscriber.messages
        assert len(told) >= 2
        assert all(same_id(message["params"]["_meta"], {SUBSCRIPTION: an_id}) for message in told)
        assert same_id(response["id"], an_id)
        assert same_id(response["result"]["_meta"][SUBSCRIPTION], an_id)


# PE-09

UNDECLARED: Final[list[Mapping[str, Any]]] = [
    {},
    {"tasks": {"cancel": {}}},
    {"extensions": {"io.modelcontextprotocol/Tasks": {}}},
]


async def test_a_listen_without_the_extension_is_refused_and_starts_nothing(stack: Stack, worker: Process) -> None:
    """Nothing: not a byte goes to Temporal, over which a watch would have to hear of the task."""
    wire = Wire(stack.temporal.address)
    await wire.open()
    bridge = await stack.bridge(TEMPORAL_ADDRESS=wire.address)
    try:
        async with McpClient(bridge.url) as client:
            task_id = await client.start("ask", {"n": 1})
            (key,) = await client.parked(task_id)
            before = wire.sent
            for capabilities in UNDECLARED:
                reply = await client.request(
                    "subscriptions/listen", listen_params([task_id]), capabilities=capabilities
                )
                assert (reply.status, reply.code, reply.notifications) == (400, -32021, [])
                assert TASKS in reply.message["error"]["data"]["requiredCapabilities"]["extensions"]
            assert wire.sent == before
            await client.update(task_id, {key: accept(text="yes")})
            assert (await client.finished(task_id))["status"] == "completed"
    finally:
        await bridge.kill()
        await wire.cut()


async def test_a_listen_without_the_extension_is_refused_on_the_pipe_and_told_nothing(pipe: StdioClient) -> None:
    label = unique("undeclared")
    task_id = await pipe.start("slow", {"seconds": 0.5, "label": label})
    refused = [PipeSubscriber(pipe, f"refused {number}") for number in range(len(UNDECLARED))]
    for subscriber, capabilities in zip(refused, UNDECLARED, strict=True):
        message = request("subscriptions/listen", listen_params([task_id]), id=subscriber.id, capabilities=capabilities)
        error = (await pipe.ask(message))["error"]
        assert error["code"] == -32021
        assert TASKS in error["data"]["requiredCapabilities"]["extensions"]
    declared = await pipe_subscriber(pipe, [task_id])
    assert (await declared.ended(task_id))["status"] == "completed"
    assert [len(subscriber.messages) for subscriber in refused] == [1] * len(UNDECLARED)
    await pipe.send(cancelled(declared.id))


# LC-02

KINDS: Final[list[tuple[str, dict[str, Any]]]] = [
    ("slow", {"seconds": 1}),
    ("ask", {"n": 2, "mode": "parallel"}),
    ("boom", {"kind": "rpc", "code": 4711, "late": True}),
    ("ask", {"n": 3}),
    ("boom", {"kind": "tool", "late": True}),
]


@counts("count,linger", cut=(20, 0.5), full=(50, 5.0))
async def test_what_is_told_never_goes_back_and_is_what_tasks_get_says(
    client: McpClient, elsewhere: McpClient, pipe: StdioClient, count: int, linger: float
) -> None:
    chance = random.Random(11)  # noqa: S311 - delays, not secrets
    started = [(await client.call(*KINDS[number % len(KINDS)])).result for number in range(count)]
    ids = [str(task["taskId"]) for task in started]
    polled: list[dict[str, Any]] = []
    ends: dict[str, dict[str, Any]] = {}

    async def cancel_later(task_id: str, delay: float) -> None:
        await asyncio.sleep(delay)
        assert (await client.cancel(task_id)).code is None

    async def poll(poller: McpClient, order: Sequence[str]) -> None:
        until: float | None = None
        clock = asyncio.get_running_loop().time
        for task_id in itertools.cycle(order):
            if until is None and len(ends) == count:
                until = clock() + linger
            if until is not None and clock() > until:
                return
            known = ends.get(task_id)
            task = (await poller.get(task_id)).result
            assert known in (None, task)
            polled.append(task)
            if task["status"] in TERMINAL:
                ends[task_id] = task
            for key in task.get("inputRequests", {}):
                await poller.update(task_id, {key: accept(text="yes")})
            await asyncio.sleep(0.02)

    async with both(client, pipe, ids) as (here, piped), http_subscriber(elsewhere, ids) as there:
        streams: list[Subscriber] = [here, there, piped]
        cancels = [cancel_later(task_id, chance.uniform(0, 1.0)) for task_id in chance.sample(ids, count // 3)]
        polls = [poll((client, elsewhere)[number % 2], ids[number:] + ids[:number]) for number in range(4)]
        async with asyncio.timeout(90):
            await asyncio.gather(*cancels, *polls)
        for stream, task_id in itertools.product(streams, ids):
            assert await stream.ended(task_id) == ends[task_id]
    for created in started:
        accounts = sorted((without_progress(stream.tasks(created["taskId"])) for stream in streams), key=len)
        for account in accounts:
            assert_never_back(created, account)
            assert accounts[-1][-len(account) :] == account, "whoever joined later missed nothing since"
    assert_agree(polled, [task for task_id in ids for stream in streams for task in stream.tasks(task_id)])


def without_progress(told: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same without the status message of a step that runs, which is as old as its last heartbeat, and without the
    last known state that a bridge tells besides if no worker answers it in time.
    """
    known = [task for task in told if task.get("statusMessage") != NO_WORKER]
    bare = [{name: value for name, value in task.items() if name != "statusMessage"} for task in known]
    kept = [task if task["status"] in TERMINAL else less for task, less in zip(known, bare, strict=True)]
    return [task for task, _ in itertools.groupby(kept)]


def assert_never_back(created: dict[str, Any], told: Sequence[dict[str, Any]]) -> None:
    """What was told of one task is one life: times move on, what was answered is not asked again, the end is last."""
    answered = set[str]()
    before = created
    for task in told:
        assert before["status"] not in TERMINAL
        assert task["createdAt"] == created["createdAt"]
        moments = [datetime.fromisoformat(one) for one in (before["lastUpdatedAt"], task["lastUpdatedAt"])]
        assert moments == sorted(moments)
        assert ("result" in task, "error" in task, bool(task.get("inputRequests"))) == (
            task["status"] == "completed",
            task["status"] == "failed",
            task["status"] == "input_required",
        )
        asked = set(task.get("inputRequests", {}))
        answered |= set(before.get("inputRequests", {})) - asked
        assert not asked & answered
        before = task


def assert_agree(polled: Sequence[dict[str, Any]], told: Sequence[dict[str, Any]]) -> None:
    """A status and its time are told with the same payload as they are read with. (Reads show progress besides, and
    leave out at once what their bridge knows to be answered.)
    """
    known = {(task["taskId"], task["status"], task["lastUpdatedAt"]): task for task in told}
    met = 0
    for task in polled:
        if (same := known.get((task["taskId"], task["status"], task["lastUpdatedAt"]))) is not None:
            met += 1
            assert task.get("inputRequests", {}).items() <= same.get("inputRequests", {}).items()
    assert met


# LC-06


async def test_times_that_are_told_carry_an_offset_and_agree_with_every_other_view(stack: Stack) -> None:
    environment = {**stack.environment, "TZ": "Asia/Kathmandu", "MCP_TASKS_TASK_QUEUE": unique("east")}
    east = Stack(temporal=stack.temporal, environment=environment)
    _, bridge = await asyncio.gather(east.worker(), east.bridge())
    began = datetime.now(UTC)
    async with McpClient(bridge.url) as client, stdio_client(environment) as pipe:
        created = (await client.call("ask", {"n": 1})).result
        after = datetime.now(UTC)
        task_id = created["taskId"]
        views = [created]
        async with both(client, pipe, [task_id]) as streams:
            (key,) = await client.parked(task_id)
            views += [await stream.told(task_id, "input_required") for stream in streams]
            views.append((await client.get(task_id)).result)
            assert views[1] == views[2] == views[3]
            await client.update(task_id, {key: accept(text="yes")})
            views += [await stream.ended(task_id) for stream in streams]
            views.append((await client.get(task_id)).result)
    await bridge.kill()
    bridge = await east.bridge()
    async with McpClient(bridge.url) as client, stdio_client(environment) as pipe:
        views.append((await client.get(task_id)).result)
        async with both(client, pipe, [task_id]) as streams:
            views += [await stream.ended(task_id) for stream in streams]
    await east.close()
    assert all(view == views[-1] for view in views[4:])
    tolerance = timedelta(seconds=5)
    for view in views:
        times = [datetime.fromisoformat(view[name]) for name in ("createdAt", "lastUpdatedAt")]
        assert all(time.utcoffset() is not None and "T" in view["createdAt"] for time in times)
        assert view["createdAt"] == created["createdAt"]
        assert times == sorted(times)
        assert began - tolerance < times[0] < after + tolerance
        assert times[1] < datetime.now(UTC) + tolerance


# CR-05


async def test_a_cancelled_question_is_told_as_cancelled_for_good(
    client: McpClient, pipe: StdioClient, stack: Stack
) -> None:
    label = unique("parked")
    task_id = await client.start("ask", {"n": 2, "label": label})
    (key,) = await client.parked(task_id)
    async with both(client, pipe, [task_id]) as early:
        for stream in early:
            assert (await stream.told(task_id, "input_required"))["inputRequests"].keys() == {key}
        await client.cancel(task_id)
        for stream in early:
            assert (await stream.ended(task_id))["status"] == "cancelled"
        assert (await client.update(task_id, {key: accept(text="late")})).result == {"resultType": "complete"}
        got = (await client.get(task_id)).result
        async with both(client, pipe, [task_id]) as late:
            for stream in late:
                assert await stream.ended(task_id) == got
                assert stream.tasks(task_id) == [got]
        for stream in early:
            assert await stream.ended(task_id) == got
            assert [task["status"] for task in stream.tasks(task_id)] == ["input_required", "cancelled"]
    assert "inputRequests" not in got
    assert stack.side_effects(label) == 0
