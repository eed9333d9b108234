"""WF: processes that die, freeze, restart and multiply. A task is in Temporal, so whatever happens to a worker, a
bridge or Temporal itself, it answers, it goes on, and it ends once.

One Temporal for the whole file; every test starts its own workers, which are gone after it, and its own bridges where
bridges die.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable
from datetime import datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowExecutionStatus

from bridge.dev_server import dev_server, free_port, without_temporal
from bridge.starts import UNWINDING_MARGIN
from tests.cases.client import FORMS, TERMINAL, McpClient, Reply, accept
from tests.cases.counts import FULL_TIMEOUT, all_finished, counts
from tests.cases.stack import Process, Programs, Stack, program_environment, running_stack
from tests.encryption import CONVERTER
from tests.support import eventually, unique
from workflows.kit.contract import TASK_MEMO

pytestmark = pytest.mark.asyncio(loop_scope="session")

ACKNOWLEDGED = {"resultType": "complete"}
AT_ONCE = 3.0
"""Seconds within which everything answers, whoever is away."""


@pytest_asyncio.fixture(loop_scope="session")
async def client(front: Process) -> AsyncIterator[McpClient]:
    """A client of that bridge."""
    async with McpClient(front.url) as client:
        yield client


async def at_once(reply: Awaitable[Reply]) -> Reply:
    """The reply, which must come within `AT_ONCE` seconds."""
    clock = asyncio.get_running_loop().time
    began = clock()
    answered = await reply
    assert clock() - began < AT_ONCE, answered.message
    return answered


async def no_worker(process: Process, how: str) -> None:
    """Make a worker go away: politely, at once, or frozen with its connections open."""
    if how == "killed":
        await process.kill()
    elif how == "stopped":
        assert await process.stop() == 0
    else:
        process.pause()


# WF-01, and the acceptance 4


HOW = ["killed", *(pytest.param(how, marks=pytest.mark.full) for how in ("stopped", "frozen"))]


@pytest.mark.parametrize("how", HOW)
async def test_everything_answers_at_once_without_a_worker_and_takes_effect_when_one_returns(
    faulty: Stack, client: McpClient, how: str
) -> None:
    worker = await faulty.worker()
    label = unique("away")
    done = await client.start("echo_task", {"x": [1]})
    finished = await client.finished(done)
    parked = await client.start("ask", {"n": 2, "mode": "parallel"})
    first, second = asked = await client.parked(parked, 2)
    large = await client.start("emit_size", {"mode": "question", "n": 70_000})  # no snapshot of it fits the memo
    large_asked = await client.parked(large)
    unwanted = await client.start("ask", {"n": 2, "label": label})
    await client.parked(unwanted)
    working = await client.start("slow", {"seconds": 60, "steps": 60, "label": f"{label}-w"})
    await eventually(_effect(faulty, f"{label}-w"), what="the first step")
    await no_worker(worker, how)

    reads = await asyncio.gather(*(at_once(client.get(task_id)) for task_id in (done, parked, working, large)))
    assert reads[0].result == finished
    assert reads[1].result["inputRequests"] == asked
    assert reads[2].result["status"] == "working"
    assert reads[3].result["status"] in {"input_required", "working"}
    assert (await at_once(client.request("server/discover"))).code is None

    assert (await at_once(client.update(parked, {first: accept(text="one")}))).result == ACKNOWLEDGED
    assert set((await at_once(client.get(parked))).result["inputRequests"]) == {second}
    assert (await at_once(client.update(parked, {second: accept(text=2)}))).code == -32602
    assert (await at_once(client.update(parked, {second: accept(text="two")}))).result == ACKNOWLEDGED
    assert "inputRequests" not in (await at_once(client.get(parked))).result
    (large_key,) = large_asked
    sent = [client.update(large, {large_key: accept(text="L")}), client.cancel(working), client.cancel(unwanted)]
    assert all(reply.result == ACKNOWLEDGED for reply in await asyncio.gather(*map(at_once, sent)))
    reads = await asyncio.gather(*(at_once(client.get(task_id)) for task_id in (large, working, unwanted)))
    assert all(reply.result["status"] not in TERMINAL for reply in reads)
    new = (await at_once(client.call("slow", {"seconds": 0.1, "label": f"{label}-n"}))).result["taskId"]
    assert (await at_once(client.get(new))).result["status"] == "working"
    await _told_to_try_again(client, f"{label}-c")

    if how == "frozen":
        worker.resume()
    else:
        await faulty.worker()
    ended = await all_finished(client, [parked, large, unwanted, working, new], within=20)
    assert ended[parked]["result"]["structuredContent"]["answers"] == [["Question 0", "one"], ["Question 1", "two"]]
    assert ended[large]["result"]["structuredContent"] == {"text": "L"}
    assert ended[unwanted]["status"] == ended[working]["status"] == "cancelled"
    assert ended[new]["status"] == "completed"
    await _calls_were_cancelled(faulty)
    assert faulty.side_effects(label) == faulty.side_effects(f"{label}-c") == 0


async def test_a_call_that_waits_for_a_worker_that_never_came_is_told_at_once_to_try_again(
    faulty: Stack, client: McpClient
) -> None:
    label = unique("waits")
    await _told_to_try_again(client, label)
    await faulty.worker()
    await _calls_were_cancelled(faulty)
    assert faulty.side_effects(label) == 0


async def _told_to_try_again(client: McpClient, label: str) -> None:
    """Calls that wait for their results, because of the tool or because of the client."""
    async with McpClient(client.url, FORMS) as waiting:
        calls = [client.call("echo", {"x": 1}), waiting.call("slow", {"seconds": 1, "label": label})]
        for reply in await asyncio.gather(*map(at_once, calls)):
            assert reply.code == -32603
            assert reply.message["error"]["data"]["retryAfterMs"] > 0


async def _calls_were_cancelled(stack: Stack) -> None:
    """The newest `echo` and the newest `slow` of a caller that waited end, and do nothing any more.

    An `echo` has no step at which a cancel could be seen.
    """
    engine = await Client.connect(stack.temporal.address, data_converter=CONVERTER)

    async def newest() -> dict[str, WorkflowExecutionStatus | None] | None:
        waited: dict[str, tuple[datetime, WorkflowExecutionStatus | None]] = {}
        async for run in engine.list_workflows("WorkflowType IN ('echo', 'slow')"):
            memo = (await run.memo())[TASK_MEMO]
            if memo["delivery"] == "result":
                known = waited.get(run.workflow_type, (run.start_time, run.status))
                waited[run.workflow_type] = max(known, (run.start_time, run.status), key=lambda one: one[0])
        ends = {tool: status for tool, (_, status) in waited.items()}
        return ends if len(ends) == 2 and WorkflowExecutionStatus.RUNNING not in ends.values() else None

    ends = await eventually(newest, what="the end of both runs")
    assert ends["slow"] is WorkflowExecutionStatus.CANCELED


# CR-03 (b)


async def test_a_cancel_before_any_worker_came_outlives_the_bridge(faulty: Stack) -> None:
    bridge = await faulty.bridge()
    label = unique("early")
    async with McpClient(bridge.url) as client:
        task_id = await client.start("slow", {"seconds": 10, "label": label})
        assert (await at_once(client.cancel(task_id))).result == ACKNOWLEDGED
        assert (await at_once(client.get(task_id))).result["status"] == "working"
    await bridge.kill()
    bridge = await faulty.bridge()
    async with McpClient(bridge.url) as client:
        assert (await at_once(client.get(task_id))).result["status"] == "working"
        await faulty.worker()
        assert (await client.finished(task_id, within=10))["status"] == "cancelled"
        assert faulty.side_effects(label) == 0


# IU-02 and WF-09

BIG_ARGUMENTS = {"mode": "sequential", "label": "", "payload": "é\u2028\U0001f600" * 8_000, "message": "Again?"}


@counts("polls", cut=5, full=20)
async def test_keys_and_arguments_stay_what_they_are_over_restarts(faulty: Stack, polls: int) -> None:
    worker = await faulty.worker()
    bridge = await faulty.bridge()
    client = McpClient(bridge.url)
    seen: list[str] = []
    arguments = {**BIG_ARGUMENTS, "n": 5}
    try:
        task_id = await client.start("ask", arguments)
        for number in range(5):
            asked = await client.parked(task_id, without=tuple(seen))
            seen += asked
            if number in {1, 3}:
                await worker.kill()
                worker = await faulty.worker()
            if number == 2:
                await bridge.kill()
                await client.__aexit__()
                bridge = await faulty.bridge()
                client = McpClient(bridge.url)
            for _ in range(polls):
                assert (await client.get(task_id)).result["inputRequests"] == asked
            await client.update(task_id, {seen[-1]: accept(text=f"{number}")})
        task = await client.finished(task_id)
    finally:
        await client.__aexit__()
    assert len(set(seen)) == 5
    assert task["result"]["structuredContent"]["arguments"] == arguments
    assert [text for _, text in task["result"]["structuredContent"]["answers"]] == ["0", "1", "2", "3", "4"]


# WF-02


@counts("step,away", cut=(0.2, 0.5), full=(1.0, 3.0))
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.full)], ids=["the-only-one", "one-of-two"])
async def test_a_task_survives_its_killed_worker_with_one_outcome(
    faulty: Stack, client: McpClient, workers: int, step: float, away: float
) -> None:
    first, *_ = [await faulty.worker() for _ in range(workers)]
    label = unique("killed")
    task_id = await client.start("slow", {"seconds": 10 * step, "steps": 10, "label": label})
    await eventually(_effect(faulty, label, 4), what="step 4")
    await first.kill()
    if workers == 1:
        await asyncio.sleep(away)
        await faulty.worker()
    await _completed_once(client, faulty, task_id, label)


@counts("frozen", cut=4.0, full=20.0)
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.full), 2], ids=["the-only-one", "one-of-two"])
async def test_a_task_survives_a_worker_that_freezes_and_comes_back(
    faulty: Stack, client: McpClient, workers: int, frozen: float
) -> None:
    first, *_ = [await faulty.worker() for _ in range(workers)]
    label = unique("frozen")
    task_id = await client.start("slow", {"seconds": 2, "steps": 10, "label": label})
    await eventually(_effect(faulty, label, 4), what="step 4")
    first.pause()
    await asyncio.sleep(frozen)
    first.resume()
    await _completed_once(client, faulty, task_id, label)


async def _completed_once(client: McpClient, stack: Stack, task_id: str, label: str) -> None:
    task = await client.finished(task_id, within=30)
    assert task["status"] == "completed"
    assert task["result"]["structuredContent"] == {"steps": 10}
    assert datetime.fromisoformat(task["createdAt"]) < datetime.fromisoformat(task["lastUpdatedAt"])
    assert 10 <= stack.side_effects(label) <= 12
    assert (await client.get(task_id)).result == task


# WF-03


@counts("step,before", cut=(2.5, 0.5), full=(20.0, 5.0))
async def test_a_polite_restart_lets_a_long_step_finish(
    faulty: Stack, client: McpClient, step: float, before: float
) -> None:
    worker = await faulty.worker()
    label = unique("polite")
    task_id = await client.start("slow", {"seconds": step, "steps": 1, "label": label})
    await eventually(_running(client, task_id), what="the step to run")
    await asyncio.sleep(before)
    stopped, _, task = await asyncio.gather(worker.stop(), faulty.worker(), client.finished(task_id, within=60))
    assert stopped == 0
    assert task["status"] == "completed"
    assert "isError" not in task["result"]
    assert faulty.side_effects(label) == 1


@counts("tasks,restarts,pause", cut=(6, 2, 0.5), full=(20, 12, 5.0))
async def test_a_rolling_restart_fails_no_task_and_no_read(
    faulty: Stack, client: McpClient, tasks: int, restarts: int, pause: float
) -> None:
    workers = [await faulty.worker(), await faulty.worker()]
    seconds = 1 + restarts * pause
    ids = [await client.start("slow", {"seconds": seconds, "steps": restarts}) for _ in range(tasks)]
    watching = asyncio.create_task(all_finished(client, ids, within=seconds + 60))  # fails on any error
    for _ in range(restarts):
        await asyncio.sleep(pause)
        stopped, fresh = await asyncio.gather(workers.pop(0).stop(), faulty.worker())
        assert stopped == 0
        workers.append(fresh)
    for task in (await watching).values():
        assert task["status"] == "completed"
        assert "isError" not in task["result"]


# WF-04


@counts("operations", cut=30, full=200)
async def test_a_second_bridge_sees_the_same_tasks(faulty: Stack, operations: int) -> None:
    await faulty.worker()
    first = await faulty.bridge()
    async with McpClient(first.url) as client:
        ids = {
            "working": await client.start("slow", {"seconds": 120}),
            "parked": await client.start("ask", {"n": 2, "mode": "parallel"}),
            "unwanted": await client.start("ask", {"n": 1}),
            "completed": await client.start("echo_task", {"x": {"a": [1, None]}}),
            "error": await client.start("boom", {"kind": "tool"}),
            "failed": await client.start("boom", {"kind": "rpc", "code": -32001, "data": [1]}),
            "cancelled": await client.start("slow", {"seconds": 60}),
        }
        await client.cancel(ids["cancelled"])
        for name in ("completed", "error", "failed", "cancelled"):
            await client.finished(ids[name])
        key, second_key = await client.parked(ids["parked"], 2)
        await client.parked(ids["unwanted"])
        before = {name: _without_progress((await client.get(task_id)).result) for name, task_id in ids.items()}
    await first.kill()
    bridges = [await faulty.bridge(), await faulty.bridge()]
    async with McpClient(bridges[0].url) as one, McpClient(bridges[1].url) as two:
        for client in (one, two):
            after = {name: _without_progress((await client.get(task_id)).result) for name, task_id in ids.items()}
            assert after == before
        assert (await one.update(ids["parked"], {key: accept(text="by one")})).result == ACKNOWLEDGED
        assert set((await two.get(ids["parked"])).result["inputRequests"]) == {second_key}
        assert (await two.cancel(ids["unwanted"])).result == ACKNOWLEDGED
        assert (await one.finished(ids["unwanted"]))["status"] == "cancelled"
        assert (await two.update(ids["parked"], {second_key: accept(text="by two")})).result == ACKNOWLEDGED
        answers = (await one.finished(ids["parked"]))["result"]["structuredContent"]["answers"]
        assert [text for _, text in answers] == ["by one", "by two"]
        await _mixed_operations(one, two, operations)


async def _mixed_operations(one: McpClient, two: McpClient, operations: int) -> None:
    """Whole lives of tasks, each request through the next bridge in turn, as a proxy would deal them."""
    turn = cycle((one, two))

    async def life(number: int) -> None:
        task_id = await next(turn).start("ask", {"n": 1})
        (key,) = await next(turn).parked(task_id)
        if number % 3 == 0:
            assert (await next(turn).cancel(task_id)).result == ACKNOWLEDGED
        else:
            assert (await next(turn).update(task_id, {key: accept(text=f"{number}")})).result == ACKNOWLEDGED
            assert key not in (await next(turn).get(task_id)).result.get("inputRequests", {})
        ends = [await client.finished(task_id) for client in (one, two)]
        assert ends[0] == ends[1]
        assert ends[0]["status"] == ("completed" if number % 3 else "cancelled")

    lives = operations // 5
    for first in range(0, lives, 4):
        await asyncio.gather(*(life(number) for number in range(first, min(first + 4, lives))))


# WF-06


@counts("away", cut=1.0, full=5.0)
@pytest.mark.parametrize(
    "how", [pytest.param(signal.SIGINT, id="ctrl-c", marks=pytest.mark.full), pytest.param(signal.SIGKILL, id="killed")]
)
async def test_tasks_outlive_a_restart_of_temporal_with_a_database(
    tmp_path: Path, how: signal.Signals, away: float
) -> None:
    database, port = tmp_path / "tasks.db", free_port()
    async with running_stack(tmp_path, database=database, port=port) as stack:
        await stack.worker()
        bridge = await stack.bridge()
        async with McpClient(bridge.url) as client:
            label = unique("restart")
            working = await client.start("slow", {"seconds": 4, "steps": 8, "label": label})
            parked = await client.start("ask", {"n": 1})
            done = await client.start("echo_task", {"x": 1})
            asked = await client.parked(parked)
            finished = await client.finished(done)
            stack.temporal.process.send_signal(how)
            await stack.temporal.process.wait()
            outage = await client.get(parked)
            assert outage.code == -32603
            assert outage.message["error"]["data"]["retryAfterMs"] > 0
            await asyncio.sleep(away)
            async with dev_server(port=port, database=database):
                assert (await client.get(done)).result == finished
                await eventually(_readable(client, parked), what="the parked task", within=30)
                assert (await client.get(parked)).result["inputRequests"] == asked
                (key,) = asked
                await client.update(parked, {key: accept(text="still here")})
                new = await client.start("echo_task", {"x": 2})
                ended = await all_finished(client, [working, parked, new], within=60)
                assert {task["status"] for task in ended.values()} == {"completed"}
                assert ended[parked]["result"]["structuredContent"]["answers"] == [["Question 0", "still here"]]
                assert 8 <= stack.side_effects(label) <= 10


# WF-09


@pytest.mark.full
@pytest.mark.timeout(FULL_TIMEOUT)
async def test_the_original_arguments_are_there_on_every_leg_however_long_each_takes(faulty: Stack) -> None:
    pause = 60.0
    worker = await faulty.worker()
    bridge = await faulty.bridge()
    arguments = {**BIG_ARGUMENTS, "n": 3}
    async with McpClient(bridge.url) as client:
        task_id = await client.start("ask", arguments)
    seen: tuple[str, ...] = ()
    for leg in range(3):
        if leg > 0:
            await worker.kill()
            await bridge.kill()
            worker, bridge = await asyncio.gather(faulty.worker(), faulty.bridge())
        async with McpClient(bridge.url) as client:
            await asyncio.sleep(pause)
            asked = await client.parked(task_id, without=seen)
            seen = (*seen, *asked)
            await client.update(task_id, {seen[-1]: accept(text=f"{leg}")})
            if leg == 2:
                task = await client.finished(task_id)
                assert task["result"]["structuredContent"]["arguments"] == arguments
                assert [text for _, text in task["result"]["structuredContent"]["answers"]] == ["0", "1", "2"]


# OP-01 (a worker that finds no Temporal ends with one line: tests/program)


async def test_a_bridge_that_came_before_temporal_says_so_and_serves_once_it_is_there(tmp_path: Path) -> None:
    port = free_port()
    temporal = {**without_temporal(os.environ), "TEMPORAL_ADDRESS": f"127.0.0.1:{port}"}
    programs = Programs(environment=program_environment(tmp_path, temporal))
    try:
        bridge = await programs.bridge()
        async with McpClient(bridge.url) as client:
            reply = await at_once(client.call("echo_task", {"x": 1}))
            assert reply.code == -32603
            assert reply.message["error"]["data"]["retryAfterMs"] > 0
            async with dev_server(port=port):
                await programs.worker()
                task = await client.finished(await client.start("echo_task", {"x": 1}))
                assert task["status"] == "completed"
    finally:
        await programs.close()


# The acceptance 6


async def test_a_lifetime_that_ends_while_no_worker_is_there_unwinds_when_one_returns(
    faulty: Stack, client: McpClient
) -> None:
    worker = await faulty.worker()
    label = unique("lifetime")
    task_id = await client.start("ask_bounded", {"label": label})
    (key,) = await client.parked(task_id)
    await worker.kill()
    created = datetime.fromisoformat((await client.get(task_id)).result["createdAt"])

    async def past_its_lifetime() -> bool:
        return datetime.now(created.tzinfo) > created + timedelta(seconds=4.2)

    await eventually(past_its_lifetime, what="the end of the lifetime")
    reply = await at_once(client.get(task_id))
    assert reply.result["status"] == "input_required"  # nobody was there to end it
    await faulty.worker()
    task = await client.finished(task_id, within=10)
    assert task["status"] == "failed"
    assert "lifetime" in task["statusMessage"]
    assert faulty.side_effects(label) == 1
    assert (await client.update(task_id, {key: accept(text="late")})).result == ACKNOWLEDGED
    assert (await client.get(task_id)).result == task


async def test_a_run_that_no_worker_ever_reaches_is_ended_by_temporal_after_a_margin(
    faulty: Stack, client: McpClient
) -> None:
    engine = await Client.connect(faulty.temporal.address, data_converter=CONVERTER)
    task_id = await client.start("ask_bounded", {"label": ""})
    run = await engine.get_workflow_handle(task_id).describe()
    backstop = run.raw_description.execution_config.workflow_execution_timeout.ToTimedelta()
    assert backstop == timedelta(seconds=4) + UNWINDING_MARGIN
    await client.cancel(task_id)


def _effect(stack: Stack, label: str, number: int = 1) -> Any:
    async def had() -> bool:
        return stack.side_effects(label) >= number

    return had


def _running(client: McpClient, task_id: str) -> Any:
    async def running() -> bool:
        return "statusMessage" in (await client.get(task_id)).result

    return running


def _readable(client: McpClient, task_id: str) -> Any:
    async def readable() -> bool:
        return (await client.get(task_id)).code is None

    return readable


def _without_progress(task: dict[str, Any]) -> dict[str, Any]:
    """A working task's status message is its heartbeat, which moves."""
    return {name: value for name, value in task.items() if task["status"] != "working" or name != "statusMessage"}
