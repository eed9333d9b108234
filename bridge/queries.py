"""At most one query per task is on its way, and a reader gets only the answer of one sent after its own describe.

Temporal buffers one query per workflow and refuses the next, so readers share. They may not join the query that is
already running: it may have passed the state that their own describe saw, and an answered question would show up
again. Those who come while one runs share the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bridge.describe import Described
from bridge.query import Answer


class _Flight:
    """A query that is not sent yet, or running, and those who wait for it."""

    def __init__(self, label: Described) -> None:
        self.label = label
        self.waiting = 0
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()


class _Lane:
    """One task's queries, one after the other."""

    def __init__(self) -> None:
        self.next: _Flight | None = None
        self.runner: asyncio.Task[None] | None = None


class SharedQueries:
    """`ask` sends a query for a describe; `keep` gets each answer with the describe that preceded it, before any
    reader."""

    def __init__(
        self, ask: Callable[[Described], Awaitable[Answer]], keep: Callable[[Described, Answer], None]
    ) -> None:
        self._ask = ask
        self._keep = keep
        self._lanes: dict[str, _Lane] = {}

    async def view(self, described: Described) -> Answer:
        """The answer of a query that is sent after `described`. Cancelling one reader does not disturb the others.

        Raises:
            Whatever `ask` raises.
        """
        lane = self._lanes.setdefault(described.task_id, _Lane())
        flight = lane.next
        if flight is None:
            flight = lane.next = _Flight(described)
        elif described.reaches(flight.label):
            flight.label = described
        if lane.runner is None:
            lane.runner = asyncio.create_task(self._run(described.task_id, lane))
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.answer)
        finally:
            flight.waiting -= 1

    async def close(self) -> None:
        """End all queries; their readers are cancelled."""
        runners = [lane.runner for lane in self._lanes.values() if lane.runner]
        for runner in runners:
            runner.cancel()
        await asyncio.gather(*runners, return_exceptions=True)

    async def _run(self, task_id: str, lane: _Lane) -> None:
        flight: _Flight | None = None
        try:
            while flight := lane.next:
                lane.next = None
                if flight.waiting:
                    await self._fly(flight)
        finally:
            del self._lanes[task_id]
            for left in (flight, lane.next):
                if left is not None:
                    left.answer.cancel()

    async def _fly(self, flight: _Flight) -> None:
        try:
            answer = await self._ask(flight.label)
        except Exception as error:  # it belongs to the readers, every one of them
            flight.answer.set_exception(error)
            flight.answer.exception()  # readers may all have left
        else:
            self._keep(flight.label, answer)
            flight.answer.set_result(answer)
