"""IU-12: a flood of updates or calls costs a task nothing, so that its owner can still answer it.

Temporal lets one run have 10,000 signals, and refuses every further one, the right answer too.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from bridge.call import CREATION_KEY
from bridge.tasks import MOST_BLIND
from tests.cases.client import McpClient, accept
from tests.cases.counts import counts
from tests.cases.stack import Process, Stack
from tests.support import eventually, unique

pytestmark = pytest.mark.asyncio(loop_scope="session")

ACKNOWLEDGED: Final = {"resultType": "complete"}
SIGNALS_OF_A_RUN: Final = 10_000


async def signals(engine: Client, task_id: str) -> int:
    """How many signals the task has had."""
    return await has(engine, task_id, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED)


async def has(engine: Client, task_id: str, kind: EventType.ValueType) -> int:
    """How many events of this kind are in the task's history."""
    events = engine.get_workflow_handle(task_id).fetch_history_events()
    return len([event async for event in events if event.event_type == kind])


@counts("junk", cut=200, full=2500)
async def test_junk_never_reaches_the_task_and_the_answer_always_does(
    client: McpClient, engine: Client, junk: int
) -> None:
    task_id = await client.start("ask", {"n": 2})
    (first,) = await client.parked(task_id)
    wrong = [{f"junk-{number}": accept(text="x")} for number in range(60)]
    replies = await asyncio.gather(*(client.update(task_id, one) for one in [*wrong, {first: accept(text="one")}]))
    assert all(reply.result == ACKNOWLEDGED for reply in replies)
    (second,) = await client.parked(task_id, without=(first,))
    for number in range(junk):
        reply = await client.update(task_id, {first if number % 2 else f"junk-{number}": accept(text="late")})
        assert reply.result == ACKNOWLEDGED
    assert (await client.update(task_id, {second: accept(text="two")})).result == ACKNOWLEDGED
    answers = (await client.finished(task_id))["result"]["structuredContent"]["answers"]
    assert answers == [["Question 0", "one"], ["Question 1", "two"]]
    assert await signals(engine, task_id) == 2


@counts("repeats", cut=20, full=500)
async def test_a_call_that_is_repeated_tells_its_run_of_the_handle_once(
    client: McpClient, engine: Client, repeats: int
) -> None:
    meta = {CREATION_KEY: unique("again")}
    ids = set[str]()
    for _ in range(repeats):
        reply = await client.call("quick", {"end": "question"}, meta=meta)
        ids.add(reply.result["taskId"])
    (task_id,) = ids
    assert await signals(engine, task_id) == 1
    (key,) = await client.parked(task_id)
    await client.update(task_id, {key: accept(text="yes")})
    assert (await client.finished(task_id))["result"]["structuredContent"] == {"answer": "yes"}


async def test_a_working_task_that_nobody_works_on_is_sent_no_answers(faulty: Stack, front: Process) -> None:
    engine = await Client.connect(faulty.temporal.address)
    async with McpClient(front.url) as client:
        worker = await faulty.worker()
        task_id = await client.start("delayed_ask", {"seconds": 1})
        await eventually(lambda: has(engine, task_id, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED), what="a step")
        await worker.kill()
        guesses = [{f"guess-{number}": accept(text="x")} for number in range(MOST_BLIND + 5)]
        replies = await asyncio.gather(*(client.update(task_id, guess) for guess in guesses))
        assert all(reply.result == ACKNOWLEDGED for reply in replies)
        assert await signals(engine, task_id) == 0
        await faulty.worker()
        (key,) = await client.parked(task_id)
        assert (await client.update(task_id, {key: accept(text="yes")})).result == ACKNOWLEDGED
        assert (await client.finished(task_id))["status"] == "completed"


async def test_a_task_whose_questions_nobody_knows_is_sent_a_bounded_number_of_answers(
    faulty: Stack, front: Process
) -> None:
    engine = await Client.connect(faulty.temporal.address)
    async with McpClient(front.url) as client:
        worker = await faulty.worker()
        task_id = await client.start("emit_size", {"mode": "question", "n": 70_000})  # no memo has room for it
        published = EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED
        await eventually(lambda: has(engine, task_id, published), what="the question")
        await worker.kill()
        guesses = [{f"guess-{number}": accept(text="x")} for number in range(MOST_BLIND + 5)]
        replies = await asyncio.gather(*(client.update(task_id, guess) for guess in guesses))
        taken = [reply for reply in replies if reply.code is None]
        refused = [reply.message["error"] for reply in replies if reply.code is not None]
        assert len(taken) == MOST_BLIND
        assert await signals(engine, task_id) == len(taken)
        assert all(error["code"] == -32603 and error["data"]["retryAfterMs"] for error in refused)
        await faulty.worker()
        (key,) = await client.parked(task_id)
        assert (await client.update(task_id, {key: accept(text="yes")})).result == ACKNOWLEDGED
        assert (await client.finished(task_id))["status"] == "completed"


@pytest.mark.full
@pytest.mark.timeout(600)
async def test_where_temporal_takes_no_more_signals_the_owner_is_told_and_can_still_cancel(
    client: McpClient, engine: Client
) -> None:
    task_id = await client.start("ask", {"n": 1})
    (key,) = await client.parked(task_id)
    handle = engine.get_workflow_handle(task_id)
    some = asyncio.Semaphore(100)

    async def signal() -> None:
        async with some:
            await handle.signal("mcp_update", {"responses": {}})

    await asyncio.gather(*(signal() for _ in range(SIGNALS_OF_A_RUN)))
    error: dict[str, Any] = (await client.update(task_id, {key: accept(text="yes")})).message["error"]
    assert error == {"code": -32603, "message": "The task engine refused the request"}
    assert (await client.get(task_id)).result["status"] == "input_required"
    assert (await client.cancel(task_id)).result == ACKNOWLEDGED
    assert (await client.finished(task_id))["status"] == "cancelled"
