"""The listen halves of WF-01, WF-02, WF-04 and LC-10: workers and bridges that die under open subscriptions.

Each is listened to over HTTP and over stdio at once. One Temporal for the whole file; every test starts its own workers
and what it breaks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any

import pytest
import pytest_asyncio

from tests.cases.client import McpClient, accept
from tests.cases.counts import counts
from tests.cases.stack import Process, Stack
from tests.cases.subscribers import Subscriber, both, http_subscriber, piped
from tests.stdio.client import StdioClient, stdio_client
from tests.support import eventually, unique

pytestmark = pytest.mark.asyncio(loop_scope="session")

AT_ONCE = 3.0
"""Seconds within which a listener is told of its task, whoever is away."""


@pytest_asyncio.fixture(loop_scope="session")
async def client(front: Process) -> AsyncIterator[McpClient]:
    """A client of that bridge."""
    async with McpClient(front.url) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pipe(ground: Stack) -> AsyncIterator[StdioClient]:
    """A process on two pipes that no test breaks."""
    async with stdio_client(ground.environment) as server:
        yield server


# WF-01


async def test_without_a_worker_each_listener_is_told_at_once_what_is_known_and_later_how_it_went_on(
    faulty: Stack, client: McpClient, pipe: StdioClient
) -> None:
    worker = await faulty.worker()
    label = unique("away")
    done = await client.start("echo_task", {"x": [1]})
    parked = await client.start("ask", {"n": 2, "mode": "parallel"})
    unwanted = await client.start("ask", {"n": 1, "label": label})
    moving = [await client.start("slow", {"seconds": 1, "steps": 2, "label": f"{label}-w"}) for _ in range(3)]
    await client.finished(done)
    first, second = await client.parked(parked, 2)
    await client.parked(unwanted)
    await eventually(_effect(faulty, f"{label}-w", 3), what="the first steps")
    await worker.kill()
    known = {task_id: (await client.get(task_id)).result for task_id in (done, parked, unwanted)}
    fresh = await faulty.bridge()  # has never met these tasks
    ids = [done, parked, unwanted, *moving]

    async with McpClient(fresh.url) as stranger, stdio_client(faulty.environment) as newcomer:
        for caller, server in ((client, pipe), (stranger, newcomer)):
            async with _all_told_at_once(http_subscriber(caller, ids), ids) as over_http:
                pass
            async with _all_told_at_once(piped(server, ids), ids) as over_stdio:
                pass
            for stream in (over_http, over_stdio):
                assert {task_id: stream.tasks(task_id) for task_id in known} == {i: [t] for i, t in known.items()}
                assert {task["status"] for task_id in moving for task in stream.tasks(task_id)} == {"working"}

        async with both(stranger, newcomer, ids) as streams:
            sent = [client.update(parked, {key: accept(text="yes")}) for key in (first, second)]
            for reply in await asyncio.gather(*sent, client.cancel(unwanted)):
                assert reply.result == {"resultType": "complete"}
            await faulty.worker()
            for stream in streams:
                for task_id in (parked, unwanted, *moving):
                    end = await stream.ended(task_id)
                    assert end == (await client.finished(task_id))
                    assert end["status"] == ("cancelled" if task_id == unwanted else "completed")
    assert faulty.side_effects(label) == 0


@asynccontextmanager
async def _all_told_at_once(
    opening: AbstractAsyncContextManager[Subscriber], task_ids: Sequence[str]
) -> AsyncIterator[Subscriber]:
    """The subscription, which must be acknowledged and have told every task within `AT_ONCE` seconds."""
    clock = asyncio.get_running_loop().time
    began = clock()
    async with opening as stream:
        acknowledged = clock() - began
        for task_id in task_ids:
            await stream.told(task_id)
        told = clock() - began
        assert told < AT_ONCE, f"acknowledged after {acknowledged:.1f} s, told after {told:.1f} s"
        yield stream


async def test_an_answered_question_is_not_told_again_while_no_worker_is_there(
    faulty: Stack, client: McpClient, pipe: StdioClient
) -> None:
    """Of the bridge that acknowledged the answer, which its reads leave out at once."""
    worker = await faulty.worker()
    task_id = await client.start("ask", {"n": 2, "mode": "parallel"})
    first, second = await client.parked(task_id, 2)
    await worker.kill()
    async with both(client, pipe, [task_id]) as early:
        for stream in early:
            await stream.told(task_id, "input_required")
        assert (await client.update(task_id, {first: accept(text="yes")})).result == {"resultType": "complete"}
        assert (await client.get(task_id)).result["inputRequests"].keys() == {second}
        async with both(client, pipe, [task_id]) as (late, _):
            assert (await late.told(task_id))["inputRequests"].keys() == {second}
    await client.cancel(task_id)


# WF-02


@counts("step,away", cut=(0.2, 0.5), full=(1.0, 3.0))
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.full)], ids=["the-only-one", "one-of-two"])
@pytest.mark.parametrize("how", ["killed", pytest.param("frozen", marks=pytest.mark.full)])
async def test_one_end_is_told_of_a_task_whose_worker_was_lost(
    faulty: Stack, client: McpClient, pipe: StdioClient, how: str, workers: int, step: float, away: float
) -> None:
    first, *_ = [await faulty.worker() for _ in range(workers)]
    label = unique("lost")
    task_id = await client.start("slow", {"seconds": 10 * step, "steps": 10, "label": label})
    async with both(client, pipe, [task_id]) as streams:
        await eventually(_effect(faulty, label, 4), what="step 4")
        if how == "killed":
            await first.kill()
            await asyncio.sleep(away)
            await faulty.worker()
        else:
            first.pause()
            await asyncio.sleep(7 * away)  # beyond the heartbeat timeout
            first.resume()
        end = await client.finished(task_id, within=60)
        assert end["status"] == "completed"
        for stream in streams:
            assert await stream.ended(task_id) == end
        async with both(client, pipe, [task_id]) as later:  # whatever was still on its way has come before this
            for stream in later:
                await stream.ended(task_id)
        for stream in streams:
            assert await stream.ended(task_id) == end
            assert {task["status"] for task in stream.tasks(task_id)[:-1]} <= {"working"}
    assert datetime.fromisoformat(end["createdAt"]) < datetime.fromisoformat(end["lastUpdatedAt"])
    assert 10 <= faulty.side_effects(label) <= 12


# WF-04


async def test_a_change_through_one_bridge_is_told_by_another_and_by_the_one_after_it(
    faulty: Stack, client: McpClient
) -> None:
    """Changes are made through `client`. The bridges that tell are killed, and others tell on with the same bodies."""
    await faulty.worker()
    ids = {
        "working": await client.start("slow", {"seconds": 120, "steps": 1}),
        "parked": await client.start("ask", {"n": 3}),
        "unwanted": await client.start("ask", {"n": 1}),
        "completed": await client.start("echo_task", {"x": {"a": [1, None]}}),
        "error": await client.start("boom", {"kind": "tool"}),
        "failed": await client.start("boom", {"kind": "rpc", "code": -32001, "data": [1]}),
        "cancelled": await client.start("slow", {"seconds": 60}),
    }
    await client.cancel(ids["cancelled"])
    for name in ("completed", "error", "failed", "cancelled"):
        await client.finished(ids[name])
    await client.parked(ids["unwanted"])
    (first,) = await client.parked(ids["parked"])
    doomed = await faulty.bridge()
    async with McpClient(doomed.url) as before, stdio_client(faulty.environment) as pipe:
        async with both(before, pipe, list(ids.values())) as streams:
            await _all_say_what_is_read(client, streams, ids)
            await client.update(ids["parked"], {first: accept(text="one")})
            (second,) = await client.parked(ids["parked"], without=(first,))
            await _all_say_what_is_read(client, streams, ids)
            await doomed.kill()
            pipe.process.kill()
            await asyncio.wait_for(asyncio.gather(pipe.status(), streams[0].reading), 30)
            told = {name: streams[0].tasks(task_id)[-1] for name, task_id in ids.items() if name != "working"}
            assert told == {name: streams[1].tasks(ids[name])[-1] for name in told}
    replacement = await faulty.bridge()
    async with McpClient(replacement.url) as after, stdio_client(faulty.environment) as pipe:
        async with both(after, pipe, list(ids.values())) as streams:
            await _all_say_what_is_read(client, streams, ids)
            for stream in streams:
                assert {name: stream.tasks(ids[name])[0] for name in told} == told
            await client.update(ids["parked"], {second: accept(text="two")})
            (third,) = await client.parked(ids["parked"], without=(first, second))
            await client.cancel(ids["unwanted"])
            await client.update(ids["parked"], {third: accept(text="three")})
            for name, status in (("parked", "completed"), ("unwanted", "cancelled")):
                for stream in streams:
                    assert (await stream.ended(ids[name]))["status"] == status
            await _all_say_what_is_read(client, streams, ids)
            for stream in streams:
                asked = [
                    task["inputRequests"].keys() for task in stream.tasks(ids["parked"]) if "inputRequests" in task
                ]
                assert asked == [{second}, {third}]
    await client.cancel(ids["working"])


async def _all_say_what_is_read(client: McpClient, streams: tuple[Subscriber, ...], ids: dict[str, str]) -> None:
    """The newest that each listener was told of each task becomes what another bridge reads."""

    async def agree() -> bool:
        for task_id in ids.values():
            got = _without_progress((await client.get(task_id)).result)
            if any([_without_progress(task) for task in stream.tasks(task_id)][-1:] != [got] for stream in streams):
                return False
        return True

    await eventually(agree, what="what is told to be what is read")


def _without_progress(task: dict[str, Any]) -> dict[str, Any]:
    """A working task's status message is its heartbeat, which moves."""
    return {name: value for name, value in task.items() if task["status"] != "working" or name != "statusMessage"}


# LC-10


async def test_an_error_is_told_with_its_code_message_and_data_before_and_after_restarts(faulty: Stack) -> None:
    errors = [{"code": code, "message": "bad \u2713", "data": {"k": [1, None]}} for code in (-32602, 4711)]
    bridge = await faulty.bridge()
    async with McpClient(bridge.url) as client, stdio_client(faulty.environment) as pipe:
        ids = [await client.start("boom", {"kind": "rpc", **error}) for error in errors]
        async with both(client, pipe, ids) as streams:
            for stream in streams:
                for task_id in ids:
                    await stream.told(task_id, "working")
            worker = await faulty.worker()  # only now, so that the failures come while both listen
            told = [[await stream.ended(task_id) for task_id in ids] for stream in streams]
        got = [(await client.get(task_id)).result for task_id in ids]
    assert told == [got, got]
    for task, error in zip(got, errors, strict=True):
        assert (task["status"], task["error"]) == ("failed", error)
        assert task["statusMessage"]
    await worker.kill()
    await bridge.kill()
    _, bridge = await asyncio.gather(faulty.worker(), faulty.bridge())
    async with McpClient(bridge.url) as client, stdio_client(faulty.environment) as pipe:
        async with both(client, pipe, ids) as streams:
            for stream in streams:
                for task_id, task in zip(ids, got, strict=True):
                    assert await stream.ended(task_id) == task
                    assert stream.tasks(task_id) == [task]
        assert [(await client.get(task_id)).result for task_id in ids] == got


# CR-08, with a bridge that dies


async def test_a_bridge_that_is_killed_under_its_listeners_cancels_nothing(faulty: Stack, client: McpClient) -> None:
    await faulty.worker()
    label = unique("bridge")
    task_id = await client.start("slow", {"seconds": 2, "steps": 2, "label": label})
    doomed = await faulty.bridge()
    async with McpClient(doomed.url) as before, stdio_client(faulty.environment) as pipe:
        async with both(before, pipe, [task_id]) as streams:
            for stream in streams:
                await stream.told(task_id)
            await doomed.kill()
            pipe.process.kill()
    assert (await client.finished(task_id))["status"] == "completed"
    assert faulty.side_effects(label) == 2


def _effect(stack: Stack, label: str, number: int = 1) -> Any:
    async def had() -> bool:
        return stack.side_effects(label) >= number

    return had
