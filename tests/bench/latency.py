"""How long after a task changed a listener knows of it: of the next question, or of the end.

The answers go straight to Temporal, so that both sides learn of the same thing in the same way: ours by
subscriptions/listen, the limit by a history long poll of its own, which waits for the event that carries the change.
The time begins with that event, by Temporal's clock, which is this machine's: how long Temporal takes to hand the
answer to a worker, 2 to 50 ms, has nothing to do with either.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryRequest
from temporalio.client import Client

from tests.bench.measure import Bar, Comparison, Contender, Outcome, Sample, Turn, percentiles
from tests.bench.sessions import BenchError, parked
from tests.bench.turns import compare
from tests.bench.wire import McpStream
from tests.bench.world import World
from workflows.kit.contract import VIEW_MEMO

MANY: Final = 10_000
"""Rounds of a task that asks on and on."""

STUCK_SECONDS: Final = 10.0

T = TypeVar("T")


class Source(Protocol):
    """Where a listener learns what became of a task."""

    async def question(self, after: str | None) -> str:
        """The key of the open question, once it is another than `after`."""
        ...

    async def end(self) -> None:
        """Return when the task has ended."""
        ...


Opening = Callable[[str], AbstractAsyncContextManager[Source]]


async def notifications(world: World) -> Outcome:
    """The latency of the next question and of the end."""
    sides: dict[str, Opening] = {
        "bare history long poll": lambda task_id: _history(world.temporal, task_id),
        "ours": lambda task_id: _listening(world, task_id),
    }
    contenders = []
    for what, of in (("next question", _questions), ("end", _ends)):
        contenders += [Contender(f"{name}, {what}", of(world, opening)) for name, opening in sides.items()]
    bars = [Bar(f"ours, {what}", "p50", 1.5, f"bare history long poll, {what}") for what in ("next question", "end")]
    return await compare(world, Comparison("from the event to the notification", 2.5, contenders, bars))


def _questions(world: World, opening: Opening) -> Turn:
    """One task that asks again as soon as it is answered."""
    bare = world.bare("interview", {"rounds": MANY})

    async def turn(seconds: float) -> Sample:
        learned: dict[str, _Learned] = {}
        task_id, key = await parked(bare)
        async with opening(task_id) as source:
            await source.question(None)
            start = time.perf_counter()
            while not learned or time.perf_counter() < start + seconds:
                key, when = await _learn(bare.answer(task_id, key), source.question(key))
                learned[key] = when
        await world.temporal.get_workflow_handle(task_id).terminate()
        asked, _ = await _happened(world.temporal, task_id)
        return _latencies([(when, asked[key]) for key, when in learned.items()])

    return turn


def _ends(world: World, opening: Opening) -> Turn:
    """A new task each time, which ends with its answer."""
    bare = world.bare()

    async def turn(seconds: float) -> Sample:
        learned: dict[str, _Learned] = {}
        start = time.perf_counter()
        while not learned or time.perf_counter() < start + seconds:
            task_id, key = await parked(bare)
            async with opening(task_id) as source:
                await source.question(None)
                _, learned[task_id] = await _learn(bare.answer(task_id, key), source.end())
        return _latencies([(when, (await _happened(world.temporal, task))[1]) for task, when in learned.items()])

    return turn


@dataclass(frozen=True, slots=True)
class _Learned:
    """When an answer was about to be sent, and when what came of it was known, in seconds since 1970."""

    answered: float
    known: float


async def _learn(answering: Awaitable[None], learning: Awaitable[T]) -> tuple[T, _Learned]:
    """What is learned of once the answer was sent."""

    async def learned() -> tuple[T, float]:
        return await learning, time.time()

    async with asyncio.timeout(STUCK_SECONDS):
        listener = asyncio.create_task(learned())
        try:
            await asyncio.sleep(0)  # it listens
            answered = time.time()
            await answering
            what, known = await listener
        finally:
            listener.cancel()
    return what, _Learned(answered, known)


def _latencies(learned: Sequence[tuple[_Learned, float]]) -> Sample:
    """Of what was learned, each with the time of its event."""
    since_answer = statistics.median(when.known - when.answered for when, _ in learned)
    return {**percentiles([when.known - at for when, at in learned]), "from the answer": since_answer * 1e3}


async def _happened(client: Client, task_id: str) -> tuple[dict[str, float], float]:
    """The times of the events that ask a question first, by its key, and of the last event, in seconds since 1970."""
    asked: dict[str, float] = {}
    at = 0.0
    async for event in client.get_workflow_handle(task_id).fetch_history_events():
        at = event.event_time.ToNanoseconds() / 1e9
        if (key := _asked(client, event)) is not None:
            asked.setdefault(key, at)
    return asked, at


def _asked(client: Client, event: HistoryEvent) -> str | None:
    """The key of the open question in the view that `event` publishes."""
    if event.event_type != EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED:
        return None
    memo = event.workflow_properties_modified_event_attributes.upserted_memo.fields
    if VIEW_MEMO not in memo:
        return None
    (view,) = client.data_converter.payload_converter.from_payloads([memo[VIEW_MEMO]])
    return next(iter(view.get("inputRequests") or {}), None)


class _Stream:
    def __init__(self, stream: McpStream) -> None:
        self._stream = stream

    async def question(self, after: str | None) -> str:
        while True:
            task = await self._stream.task()
            key = next(iter(task.get("inputRequests", {})), after)
            if key is not None and key != after:
                return key

    async def end(self) -> None:
        while (await self._stream.task())["status"] != "completed":
            pass


@asynccontextmanager
async def _listening(world: World, task_id: str) -> AsyncIterator[Source]:
    stream = await world.stream([task_id])
    try:
        yield _Stream(stream)
    finally:
        await stream.close()


class _History:
    """The events of a run, one after the other."""

    def __init__(self, client: Client, task_id: str) -> None:
        self._client = client
        self._request = GetWorkflowExecutionHistoryRequest(
            namespace=client.namespace, execution=WorkflowExecution(workflow_id=task_id), wait_new_event=True
        )
        self._events: list[HistoryEvent] = []

    async def question(self, after: str | None) -> str:
        while True:
            key = _asked(self._client, await self._next())
            if key is not None and key != after:
                return key

    async def end(self) -> None:
        while (await self._next()).event_type != EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
            pass

    async def _next(self) -> HistoryEvent:
        while not self._events:
            page = await self._client.workflow_service.get_workflow_execution_history(self._request)
            self._events = list(page.history.events)
            self._request.next_page_token = page.next_page_token
            if not self._events and not page.next_page_token:
                raise BenchError("the run ended before what was waited for")
        return self._events.pop(0)


@asynccontextmanager
async def _history(client: Client, task_id: str) -> AsyncIterator[Source]:
    yield _History(client, task_id)
