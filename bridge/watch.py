"""Tasks that somebody listens to: one history long poll for each, shared by all its listeners in this process.

A listener gets every published change in order, from the state at which it joined. One that does not keep up loses the
oldest of them, never the newest, and holds nobody else up. A poll ends with its last listener. Temporal bounds the
polls of a frontend and namespace, so there are at most `MAX_WATCHES`; a task beyond is looked at from time to time
instead.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Final

from bridge.errors import TaskNotFound
from bridge.follow import Follower, Moment

logger = logging.getLogger(__name__)

MAX_WATCHES: Final = 500
"""Of the 1,200 long polls that a Temporal frontend allows a namespace by default."""

MAX_UNREAD: Final = 64
"""Changes of one task that wait for one listener."""

LOOK_SECONDS: Final = 1.0
"""How often a task is looked at for which there is no long poll."""


class Listener:
    """What one subscriber has not seen yet of one task."""

    def __init__(self) -> None:
        self._unread: deque[Moment | None] = deque(maxlen=MAX_UNREAD)
        self._arrived = asyncio.Event()
        self._ended = False

    def put(self, moment: Moment | None) -> None:
        """Add a change; None says "something changed" and nothing of what."""
        if moment is not None or not self._unread or self._unread[-1] is not None:
            self._unread.append(moment)
        self._arrived.set()

    def end(self) -> None:
        """Nothing will be added any more."""
        self._ended = True
        self._arrived.set()

    async def changes(self) -> AsyncGenerator[Moment | None]:
        """The changes in order; ends with the task."""
        while True:
            while self._unread:
                yield self._unread.popleft()
            if self._ended:
                return
            self._arrived.clear()
            await self._arrived.wait()


class _Watch:
    """One long poll and its listeners."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._latest: Moment | None = None
        self._ended = False
        self.listeners: set[Listener] = set()

    def join(self, listener: Listener) -> None:
        """Add a listener, which is told the task as it is now."""
        self.listeners.add(listener)
        if self._latest is not None:
            listener.put(_shown(self._latest))
        if self._ended:
            listener.end()

    async def run(self) -> None:
        """Tell what happens, to the end of the task."""
        try:
            async with aclosing(self._follower.moments()) as looks:
                async for moments in looks:
                    self._tell([moment for moment in moments if moment.ended is None])
        except TaskNotFound:
            pass  # deleted meanwhile: who reads it is told so
        finally:
            self._ended = True
            for listener in self.listeners:
                listener.end()

    def _tell(self, moments: list[Moment]) -> None:
        if not moments:
            return
        # What had happened before the first look is told as its outcome alone
        news = [] if self._latest is None else [moment for moment in moments[:-1] if moment.told]
        self._latest = moments[-1]
        for listener in self.listeners:
            for moment in (*news, self._latest):
                listener.put(_shown(moment))


class Watches:
    """All tasks that are listened to in this process."""

    def __init__(self, follower: Callable[[str], Follower], *, limit: int = MAX_WATCHES) -> None:
        self._follower = follower
        self._limit = limit
        self._watches: dict[str, tuple[_Watch, asyncio.Task[None]]] = {}

    def __len__(self) -> int:
        return len(self._watches)

    @asynccontextmanager
    async def listening(self, task_id: str) -> AsyncIterator[Listener]:
        """A listener of a task, for as long as the context lasts; its first item is the task as it is now."""
        listener = Listener()
        if task_id not in self._watches and len(self._watches) >= self._limit:
            looking = asyncio.create_task(_look(listener))
            try:
                yield listener
            finally:
                looking.cancel()
            return
        watch = self._watch(task_id)
        watch.join(listener)
        try:
            yield listener
        finally:
            watch.listeners.discard(listener)
            if not watch.listeners:
                self._watches.pop(task_id)[1].cancel()

    async def close(self) -> None:
        """End all polls."""
        running = [task for _, task in self._watches.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _watch(self, task_id: str) -> _Watch:
        if task_id not in self._watches:
            watch = _Watch(self._follower(task_id))
            self._watches[task_id] = (watch, asyncio.create_task(watch.run(), name="watch"))
        return self._watches[task_id][0]


def _shown(moment: Moment) -> Moment | None:
    """The moment if it tells what the task looked like; of a workflow without snapshots only that something changed."""
    return None if moment.run.snapshot is None else moment


async def _look(listener: Listener) -> None:
    while True:
        listener.put(None)
        await asyncio.sleep(LOOK_SECONDS)
