"""What a caller without a handle sees of its run while it waits: its state each time it may have changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Final, TypeVar

from bridge.answering import shown_to
from bridge.errors import EngineUnavailable
from bridge.exchange import Exchange
from bridge.gateway import Gateway
from bridge.reader import Reader
from bridge.status import TaskState
from bridge.watches import Watches

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 8.0

REREAD_SECONDS: Final = 5.0
"""How long a state is taken for true without an event: where nobody worked on the task, none tells that one is back.
"""

_END: Final = object()

T = TypeVar("T")


class Stopping(Exception):
    """This process ends before the wait does."""


class Waits:
    """Follows runs."""

    def __init__(self, gateway: Gateway, reader: Reader, watches: Watches) -> None:
        self._gateway = gateway
        self._reader = reader
        self._watches = watches

    async def states(self, task_id: str, exchange: Exchange, interval: float | None) -> AsyncGenerator[TaskState]:
        """The run's state, as its caller is shown it: at once, after each change, and after `interval` seconds
        (`REREAD_SECONDS` if None) without: heartbeats of an activity are progress, and no change of the history. An
        outage is waited out.

        Raises Stopping: This process is about to end.
        """
        async with self._watches.listening(task_id, every=True) as listener:
            changes = listener.changes()
            ticks = ticking(changes, interval or REREAD_SECONDS, exchange.stopping)
            async with aclosing(changes), aclosing(ticks):
                async for _ in ticks:
                    yield await self._read(task_id, exchange)
            yield await self._read(task_id, exchange)

    async def _read(self, task_id: str, exchange: Exchange) -> TaskState:
        caller = exchange.caller
        state = await through_outages(lambda: self._reader.read(task_id, caller.identity))
        return shown_to(state, caller, self._reader.rights(caller.identity, state.memo))

    async def worked_on(self, task_id: str, queue: str) -> bool:
        """Whether a worker has asked `queue` for work since the run was started, by Temporal's clock alone. An outage,
        in which nobody can tell, is waited out.
        """
        run = await through_outages(lambda: self._gateway.describe(task_id))
        return await through_outages(lambda: self._gateway.polled_since(queue, run.started_at))


async def through_outages(ask: Callable[[], Awaitable[T]]) -> T:
    """The answer of `ask`, however long Temporal is away."""
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            return await ask()
        except EngineUnavailable:
            await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


async def ticking(changes: AsyncIterator[object], interval: float, stopping: asyncio.Event) -> AsyncGenerator[None]:
    """An item for each of `changes`, and one after each `interval` seconds without. Raises Stopping."""
    following = asyncio.ensure_future(anext(changes, _END))
    stopped = asyncio.ensure_future(stopping.wait())
    try:
        while True:
            await asyncio.wait({following, stopped}, timeout=interval, return_when=asyncio.FIRST_COMPLETED)
            if stopped.done() and not following.done():
                raise Stopping
            if following.done():
                if following.result() is _END:
                    return
                following = asyncio.ensure_future(anext(changes, _END))
            yield
    finally:
        following.cancel()
        stopped.cancel()
        await asyncio.gather(following, stopped, return_exceptions=True)
