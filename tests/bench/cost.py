"""What a task costs a Temporal cluster: calls that the frontend serves, and billable actions.

Calls are counted by Temporal itself. Actions are what Temporal Cloud's price list names: starts, signals, queries,
timers, search attribute upserts and activities. All but queries leave an event in the history; describes, history reads
and long polls, memo upserts and workflow tasks are not on the list.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from temporalio.api.enums.v1 import EventType

from tests.bench.measure import Outcome, Sample, Verdict
from tests.bench.sessions import Session, make, parked, until
from tests.bench.wire import McpSession
from tests.bench.world import World

TASKS: Final = 80
"""Polled once a second for 45 s they are polled as often as one task in an hour, each at the true pace."""

SECONDS: Final = 45.0
QUICK_SECONDS: Final = 9.0
UNDER_WAY_SECONDS: Final = 15.0
"""Before the count: until the bridge has seen who polls often."""

HOUR: Final = 3600
CYCLES: Final = 20
THINKING_SECONDS: Final = 3.0
"""Of the person who answers."""

_BILLED: Final = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
        EventType.EVENT_TYPE_TIMER_STARTED,
        EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES,
        EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED,
        EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
        EventType.EVENT_TYPE_MARKER_RECORDED,  # local activities
    }
)


async def costs(world: World) -> Outcome:
    """Of one cycle, of 3,600 polls, and of an hour in which a parked task is polled every second, or listened to."""
    rows: dict[str, Sample] = {}
    seconds = QUICK_SECONDS if world.plan.quick else SECONDS
    with world.progress("calls and actions", 6) as step:
        step("one cycle each, polled once a second")
        rows["a cycle, polled once a second"] = await _cycles(world, await world.clients(world.ours, CYCLES))
        rows["the same by a bare client"] = await _cycles(world, [world.bare() for _ in range(CYCLES)])
        step("3,600 polls")
        (client,) = await world.clients(world.ours, 1)
        task_id, _ = await parked(client)
        rows["3,600 polls, one after the other"] = await _counted(world, lambda: _polls(client, task_id))
        step("3,600 polls of a workflow without snapshot")
        task_id = await world.bare_by_hand({"change": "release 4.2", "snapshot": False}).create()
        rows["the same of a workflow without snapshot"] = await _counted(world, lambda: _polls(client, task_id))
        tasks = await make([client], TASKS, "input_required")
        step(f"{TASKS} parked tasks, polled once a second")
        async with _polled(await world.clients(world.ours, TASKS), tasks):
            await asyncio.sleep(UNDER_WAY_SECONDS)
            rows["a parked hour, polled once a second"] = await _hour(world, seconds)
        step(f"{TASKS} parked tasks, listened to")
        stream = await world.stream(tasks)
        try:
            await asyncio.sleep(1)
            rows["a parked hour, listened to"] = await _hour(world, seconds)
        finally:
            await stream.close()
    return Outcome(
        "cost in calls to Temporal and in billable actions",
        rows,
        [
            _queries(rows, "3,600 polls, one after the other", 0),
            _queries(rows, "a parked hour, polled once a second", 0),
            _queries(rows, "the same of a workflow without snapshot", 2),
        ],
        [f"An hour: {TASKS} tasks for {seconds:.0f} s, at their true pace, as if it were one task for 3,600 s."],
    )


async def _cycles(world: World, sessions: Sequence[Session]) -> Sample:
    """Per cycle, with the actions that its history tells."""
    made: list[str] = []

    async def cycle(session: Session) -> None:
        task_id, key = await parked(session, every=1.0)
        await asyncio.sleep(THINKING_SECONDS)
        await session.answer(task_id, key)
        await until(session, task_id, "completed", every=1.0)
        made.append(task_id)

    async def work() -> None:
        async with asyncio.TaskGroup() as clients:
            for session in sessions:
                clients.create_task(cycle(session))

    counted = await _counted(world, work, len(sessions))
    billed = Counter[str]()
    for task_id in made:
        history = await world.temporal.get_workflow_handle(task_id).fetch_history()
        billed.update(EventType.Name(event.event_type) for event in history.events if event.event_type in _BILLED)
    return {**counted, "actions": counted["actions"] + sum(billed.values()) / len(made)}


async def _counted(world: World, work: Callable[[], Awaitable[None]], per: float = 1) -> Sample:
    """The calls while `work` runs; its only actions are queries, unless the caller knows of more."""
    before = await world.accounts.calls()
    await work()
    figures = await world.accounts.calls_since(before, per)
    return {**figures, "actions": figures.get("rpc QueryWorkflow", 0.0)}


async def _hour(world: World, seconds: float) -> Sample:
    """What goes on anyway with `TASKS` tasks, as of one task in an hour."""
    before, began = await world.accounts.calls(), time.perf_counter()
    await asyncio.sleep(seconds)
    calls = await world.accounts.calls_since(before, 1)
    hours = TASKS * (time.perf_counter() - began) / HOUR
    figures = {name: count / hours for name, count in calls.items()}
    return {**figures, "actions": figures.get("rpc QueryWorkflow", 0.0)}


async def _polls(client: McpSession, task_id: str) -> None:
    for _ in range(HOUR):
        await client.read(task_id)


@asynccontextmanager
async def _polled(sessions: Sequence[McpSession], tasks: Sequence[str]) -> AsyncIterator[None]:
    """Each client polls its task once a second, not all at the same moment, until the context ends."""
    start = time.perf_counter()

    async def poll(number: int, session: McpSession, task_id: str) -> None:
        for due in itertools.count(start + number / len(tasks)):
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await session.read(task_id)

    polling = [
        asyncio.create_task(poll(number, *pair)) for number, pair in enumerate(zip(sessions, tasks, strict=True))
    ]
    try:
        yield
    finally:
        for task in polling:
            task.cancel()
        ended = await asyncio.gather(*polling, return_exceptions=True)
        for failure in ended:
            if isinstance(failure, Exception):
                raise failure


def _queries(rows: dict[str, Sample], work: str, most: int) -> Verdict:
    queries = rows[work].get("rpc QueryWorkflow", 0.0)
    return Verdict(work=work, figure="queries", bar=f"<= {most} queries", value=queries, met=queries <= most)
