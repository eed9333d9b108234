"""CR: what a cancel promises. A request about work in progress: recorded at once, never lost, reported honestly."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowExecutionStatus

from tests.cases.client import McpClient, accept
from tests.cases.counts import all_finished, counts
from tests.cases.stack import Process, Stack
from tests.encryption import CONVERTER
from tests.support import eventually, unique
from workflows.kit.contract import TASK_MEMO

pytestmark = pytest.mark.asyncio(loop_scope="session")

ACKNOWLEDGED = {"resultType": "complete"}


@pytest_asyncio.fixture(loop_scope="session")
async def other(bridge: Process) -> AsyncIterator[McpClient]:
    """A second client, on an open connection of its own."""
    async with McpClient(bridge.url) as other:
        await other.request("server/discover")
        yield other


async def seconds(awaited: Any) -> tuple[Any, float]:
    """What `awaited` gives, and how long it took."""
    clock = asyncio.get_running_loop().time
    began = clock()
    return await awaited, clock() - began


# CR-01


@counts("tasks,head_start", cut=(8, 0.4), full=(100, 1.0))
@pytest.mark.parametrize("cancellation", ["try", "wait", "abandon"])
async def test_a_cancel_that_lands_while_a_step_finishes_is_not_swallowed(
    client: McpClient, stack: Stack, cancellation: str, tasks: int, head_start: float
) -> None:
    label = unique("swallow")
    work = {"seconds": 60, "steps": 600, "cancellation": cancellation}

    few = asyncio.Semaphore(10)  # it is the cancels that matter, not how many starts an engine takes at once

    async def started_and_cancelled(number: int) -> str:
        async with few:
            task_id = await client.start("slow", {**work, "label": f"{label}-{number}"})
        await asyncio.sleep(head_start + number * 0.2 / tasks)  # spread over two steps
        assert (await client.cancel(task_id)).result == ACKNOWLEDGED
        return task_id

    ids = await asyncio.gather(*(started_and_cancelled(number) for number in range(tasks)))
    ended = await all_finished(client, ids, within=10)

    def effects() -> list[int]:
        return [stack.side_effects(f"{label}-{number}") for number in range(tasks)]

    at_the_end = effects()
    assert {task["status"] for task in ended.values()} == {"cancelled"}
    assert all("result" not in task and "error" not in task for task in ended.values())
    await asyncio.sleep(0.5)
    in_progress = 0 if cancellation == "wait" else 1  # a step that is not waited for may finish; none may begin
    assert all(later - first <= in_progress for first, later in zip(at_the_end, effects(), strict=True))


# CR-03


@counts("tasks", cut=8, full=50)
async def test_a_cancel_straight_after_create_is_honoured(
    client: McpClient, other: McpClient, stack: Stack, tasks: int
) -> None:
    label = unique("early")

    async def started_and_cancelled(number: int) -> str:
        task_id = await client.start("slow", {"seconds": 10, "label": f"{label}-{number}"})
        reply, took = await seconds(other.cancel(task_id))
        assert reply.result == ACKNOWLEDGED
        assert took < 2
        return task_id

    ids = [await started_and_cancelled(number) for number in range(tasks)]
    ended = await all_finished(client, ids, within=10)
    assert {task["status"] for task in ended.values()} == {"cancelled"}
    assert all(stack.side_effects(f"{label}-{number}") == 0 for number in range(tasks))


@pytest.mark.parametrize("tool", ["ask", "stubborn", "timeboxed", "status"])
async def test_whatever_a_tool_does_first_an_early_cancel_ends_it(client: McpClient, tool: str) -> None:
    special: dict[str, dict[str, Any]] = {"ask": {"n": 2, "mode": "parallel"}, "status": {"x": "busy"}}
    task_id = await client.start(tool, special.get(tool, {"seconds": 2}))
    await client.cancel(task_id)
    task = await client.finished(task_id, within=10)
    assert task["status"] in ({"completed", "cancelled"} if tool == "stubborn" else {"cancelled"})
    assert ("result" in task) == (task["status"] == "completed")


# CR-04


@pytest.mark.parametrize(
    ("tool", "arguments", "status"),
    [
        ("echo_task", {"x": 1}, "completed"),
        ("boom", {"kind": "tool"}, "completed"),
        ("boom", {"kind": "python"}, "completed"),
        ("boom", {"kind": "rpc", "code": -32001, "data": {"a": 1}}, "failed"),
        ("slow", {"seconds": 60}, "cancelled"),
    ],
    ids=["completed", "tool-error", "bug", "failed", "cancelled"],
)
async def test_cancelling_a_finished_task_is_acknowledged_and_changes_nothing(
    client: McpClient, tool: str, arguments: dict[str, Any], status: str
) -> None:
    task_id = await client.start(tool, arguments)
    if status == "cancelled":
        await client.cancel(task_id)
    before = await client.finished(task_id)
    assert before["status"] == status
    for _ in range(3):
        assert (await client.cancel(task_id)).result == ACKNOWLEDGED
        assert (await client.get(task_id)).result == before


@counts("runs", cut=8, full=100)
async def test_a_cancel_that_meets_the_end_gives_one_whole_outcome(client: McpClient, runs: int) -> None:
    def duration(task: dict[str, Any]) -> float:
        times = [datetime.fromisoformat(task[name]) for name in ("createdAt", "lastUpdatedAt")]
        return (times[1] - times[0]).total_seconds()

    work = {"seconds": 0.3}
    typical = sorted([duration(await client.finished(await client.start("slow", work))) for _ in range(3)])[1]
    loop = asyncio.get_running_loop()

    async def race(number: int) -> tuple[str, str]:
        began = loop.time()
        task_id = await client.start("slow", work)
        await asyncio.sleep(max(0.0, began + typical - 0.02 + 0.04 * number / runs - loop.time()))
        assert (await client.cancel(task_id)).result == ACKNOWLEDGED
        task = await client.finished(task_id)
        await asyncio.sleep(0.05)
        assert (await client.get(task_id)).result == task
        return task["status"], "with result" if "result" in task else "without"

    outcomes: set[tuple[str, str]] = set()
    for first in range(0, runs, 4):
        outcomes |= set(await asyncio.gather(*(race(number) for number in range(first, min(first + 4, runs)))))
    assert outcomes <= {("completed", "with result"), ("cancelled", "without")}


# CR-05


@pytest.mark.parametrize(
    ("tool", "arguments", "questions"),
    [
        ("ask", {"n": 2}, 1),
        ("ask", {"n": 2, "mode": "parallel"}, 2),
        ("ask_with_timeout", {"seconds": 60}, 1),
        ("ask_then_work", {"seconds": 1}, 1),
        ("profile", {}, 1),
    ],
    ids=["sequential", "parallel", "deadline", "work-after", "handles-declined"],
)
async def test_a_cancel_while_waiting_for_input_ends_the_task_for_good(
    client: McpClient, stack: Stack, tool: str, arguments: dict[str, Any], questions: int
) -> None:
    label = unique("parked")
    if tool == "ask":
        arguments = {**arguments, "label": label}
    task_id = await client.start(tool, arguments)
    keys = await client.parked(task_id, questions)
    assert (await client.cancel(task_id)).result == ACKNOWLEDGED
    task = await client.finished(task_id, within=5)
    assert task["status"] == "cancelled"
    assert "inputRequests" not in task
    late = {key: accept(text="late", name="late") if tool != "profile" else accept(name="late") for key in keys}
    assert (await client.update(task_id, late)).result == ACKNOWLEDGED
    assert (await client.get(task_id)).result == task
    assert stack.side_effects(label) == 0


async def test_an_answer_after_the_cancel_is_not_used(client: McpClient, stack: Stack) -> None:
    """The cancel was acknowledged first: whatever the engine does with the two, the task ends cancelled."""
    label = unique("late")
    task_id = await client.start("ask", {"n": 2, "label": label})
    (key,) = await client.parked(task_id)
    await client.cancel(task_id)
    assert (await client.update(task_id, {key: accept(text="late")})).result == ACKNOWLEDGED
    assert (await client.finished(task_id, within=5))["status"] == "cancelled"
    assert stack.side_effects(label) <= 1


# CR-07


@counts("work", cut=3, full=10)
async def test_a_tool_that_ignores_a_cancel_is_reported_honestly(client: McpClient, stack: Stack, work: int) -> None:
    label = unique("stubborn")
    task_id = await client.start("stubborn", {"seconds": work, "label": label})
    await eventually(_reached(stack, label, 1), what="the first side effect")
    reply, took = await seconds(client.cancel(task_id))
    assert reply.result == ACKNOWLEDGED
    assert took < 1
    meanwhile, took = await seconds(client.call("echo", {"x": 1}))
    assert meanwhile.result["structuredContent"] == {"x": 1}
    assert took < 2
    task = await client.finished(task_id)
    assert task["status"] == "completed"
    assert task["result"]["structuredContent"] == {"finished": True}
    assert stack.side_effects(label) == work


# CR-09


@counts("calls", cut=16, full=100)
async def test_what_a_vanished_client_started_is_whole_and_ends(client: McpClient, stack: Stack, calls: int) -> None:
    engine = await Client.connect(stack.temporal.address, data_converter=CONVERTER)
    labels = [unique("gone") for _ in range(calls)]
    chance = random.Random(9)  # noqa: S311 - delays, not secrets
    works = [{"seconds": 30, "label": label} for label in labels]
    # The more there are at once the longer each takes; some must get as far as a start
    patience = 0.003 * calls
    await asyncio.gather(*(client.call_and_reset("bounded", work, chance.uniform(0, patience)) for work in works))
    assert (await client.call("echo", {"x": 1})).result["structuredContent"] == {"x": 1}
    digests = {_digest(work) for work in works}

    async def ours_ended() -> list[tuple[WorkflowExecutionStatus | None, dict[str, Any]]] | None:
        runs = [
            (run.status, memo)
            async for run in engine.list_workflows("WorkflowType = 'bounded'")
            if (memo := (await run.memo()).get(TASK_MEMO, {})).get("argumentsDigest") in digests
        ]
        return runs if runs and all(status is not WorkflowExecutionStatus.RUNNING for status, _ in runs) else None

    runs = await eventually(ours_ended, what="the end of every run that was started", within=15)
    assert all(memo["owner"]["issuer"] == "local" and memo["lifetimeMs"] == 5000 for _, memo in runs)
    assert {status for status, _ in runs} <= {WorkflowExecutionStatus.CANCELED, WorkflowExecutionStatus.FAILED}


def _digest(arguments: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(arguments, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _reached(stack: Stack, label: str, number: int) -> Any:
    async def reached() -> bool:
        return stack.side_effects(label) >= number

    return reached
