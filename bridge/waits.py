"""What a caller without a handle sees of its run while it waits: its state each time it may have changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final

from bridge.errors import EngineUnavailable
from bridge.gateway import Gateway
from bridge.reader import Reader
from bridge.status import TaskState
from workflows.kit.contract import Principal

OUTAGE_PAUSE_SECONDS: Final = 1.0

_END: Final = object()


class Waits:
    """Follows runs."""

    def __init__(self, gateway: Gateway, reader: Reader) -> None:
        self._gateway = gateway
        self._reader = reader

    async def states(self, task_id: str, owner: Principal, interval: float | None) -> AsyncGenerator[TaskState]:
        """The run's state at once, after each change, and after `interval` seconds without: heartbeats of an activity
        are progress, and no change of the history. An outage is waited out.
        """
        async with aclosing(self._gateway.changes(task_id)) as changes, aclosing(ticking(changes, interval)) as ticks:
            async for _ in ticks:
                yield await self._read(task_id, owner)

    async def _read(self, task_id: str, owner: Principal) -> TaskState:
        while True:
            try:
                return await self._reader.read(task_id, owner)
            except EngineUnavailable:
                await asyncio.sleep(OUTAGE_PAUSE_SECONDS)


async def ticking(changes: AsyncIterator[None], interval: float | None) -> AsyncGenerator[None]:
    """An item for each of `changes`, and one after each `interval` seconds without."""
    following = asyncio.ensure_future(anext(changes, _END))
    try:
        while True:
            await asyncio.wait({following}, timeout=interval)
            if following.done():
                if following.result() is _END:
                    return
                following = asyncio.ensure_future(anext(changes, _END))
            yield
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
