"""How long after an answer was sent a listener knows what came of it: the next question, or the end.

The answers go straight to Temporal, so that both sides learn of the same thing in the same way: ours by
subscriptions/listen, the limit by a history long poll of its own, which waits for the event that carries the change.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol

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
    return await compare(world, Comparison("from the answer to the notification", 2.5, contenders, bars))


def _questions(world: World, opening: Opening) -> Turn:
    """One task that asks again as soon as it is answered."""
    bare = world.bare("interview", {"rounds": MANY})

    async def turn(seconds: float) -> Sample:
        taken: list[float] = []
        task_id, key = await parked(bare)
        async with opening(task_id) as source:
            await source.question(None)
            start = time.perf_counter()
            while not taken or time.perf_counter() < start + seconds:
                key, latency = await _timed(bare.answer(task_id, key), source.question(key))
                taken.append(latency)
        await world.temporal.get_workflow_handle(task_id).terminate()
        return percentiles(taken)

    return turn


def _ends(world: World, opening: Opening) -> Turn:
    """A new task each time, which ends with its answer."""
    bare = world.bare()

    async def turn(seconds: float) -> Sample:
        taken: list[float] = []
        start = time.perf_counter()
        while not taken or time.perf_counter() < start + seconds:
            task_id, key = await parked(bare)
            async with opening(task_id) as source:
                await source.question(None)
                _, latency = await _timed(bare.answer(task_id, key), source.end())
                taken.append(latency)
        return percentiles(taken)

    return turn


async def _timed(answering: Any, learning: Any) -> tuple[Any, float]:
    """What was learned, and the seconds from just before the answer was sent until then."""

    async def learned() -> tuple[Any, float]:
        return await learning, time.perf_counter()

    async with asyncio.timeout(STUCK_SECONDS):
        listener = asyncio.create_task(learned())
        try:
            await asyncio.sleep(0)  # it listens
            began = time.perf_counter()
            await answering
            what, at = await listener
        finally:
            listener.cancel()
    return what, at - began


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
        converter = self._client.data_converter.payload_converter
        while True:
            event = await self._next()
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED:
                memo = event.workflow_properties_modified_event_attributes.upserted_memo.fields
                (view,) = converter.from_payloads([memo[VIEW_MEMO]]) if VIEW_MEMO in memo else ({},)
                key = next(iter(view.get("inputRequests") or {}), after)
                if key is not None and key != after:
                    return str(key)

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
