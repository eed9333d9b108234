"""Tasks that somebody listens to or reads often: one history long poll for each, shared by all in this process.

Temporal bounds the polls of a frontend and namespace, so there are at most `MAX_WATCHES`. Listeners come before
readers, who can always describe; a listener beyond the limit is told by a describe from time to time, as is one whose
poll does not come through, until there is room. Heartbeats of activities make no event and are described likewise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from cachetools import LRUCache

from bridge.describe import Described
from bridge.errors import BridgeError, TaskNotFound
from bridge.follow import LONG_POLL, Moment
from bridge.gateway import Gateway
from bridge.watch import LOOK_SECONDS, OFTEN_SECONDS, Listener, Watch

logger = logging.getLogger(__name__)

MAX_WATCHES: Final = 500
"""Of the 1,200 long polls that a Temporal frontend allows a namespace by default."""

OFTEN_READS: Final = 10
"""Reads within `OFTEN_SECONDS` for which a poll is worth it."""

MAX_READ_HISTORY: Final = 2_000
"""A poll reads the history from its start, so for readers alone a longer one is not worth it."""

MAX_COUNTED: Final = 10_000
"""Tasks whose reads are counted."""

MAX_LOOKS: Final = 100
"""Describes at a time of tasks whose poll does not tell everything; beyond, the tasks take turns."""


class Watches:
    """All tasks that are listened to or read often in this process."""

    def __init__(self, gateway: Gateway, *, limit: int = MAX_WATCHES) -> None:
        self._gateway = gateway
        self._limit = limit
        self._watches: dict[str, Watch] = {}
        self._reads: LRUCache[str, tuple[float, int]] = LRUCache(MAX_COUNTED)
        self._clock: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """How many polls there are."""
        return sum(watch.polling is not None for watch in self._watches.values())

    def seen(self, task_id: str) -> Moment | None:
        """The task as it was last heard of, at most `STALE_SECONDS` ago; None if a describe has to tell."""
        watch = self._watches.get(task_id)
        return watch.seen(_now()) if watch else None

    def described(self, run: Described) -> None:
        """Note what a describe showed of a task; `seen` will never tell less."""
        if (watch := self._watches.get(run.task_id)) is not None:
            watch.described(run)

    def read(self, run: Described) -> None:
        """Count a read of a live task; one that is read often is watched, if there is room."""
        now, watch = _now(), self._watches.get(run.task_id)
        if watch is None and self._is_read_often(run, now) and len(self) < self._limit:
            watch = self._open(run.task_id)
        if watch is not None:
            watch.read(now)

    @asynccontextmanager
    async def listening(self, task_id: str, *, every: bool = False) -> AsyncIterator[Listener]:
        """A listener of a task, for as long as the context lasts; its first item is the task as it is now."""
        watch = self._watches.get(task_id) or self._open(task_id)
        listener = Listener(every=every)
        watch.join(listener)
        if watch.polling is None:
            self._poll(watch)
        try:
            yield listener
        finally:
            watch.listeners.discard(listener)
            if not watch.listeners and not watch.read_lately(_now()):
                self._drop(task_id, watch)

    async def close(self) -> None:
        """End all polls."""
        running = [watch.polling for watch in self._watches.values() if watch.polling]
        running += [self._clock] if self._clock else []
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _is_read_often(self, run: Described, now: float) -> bool:
        if run.history_length > MAX_READ_HISTORY:
            return False
        since, reads = self._reads.get(run.task_id, (now, 0))
        if now - since > OFTEN_SECONDS:
            since, reads = now, 0
        self._reads[run.task_id] = (since, reads + 1)
        return reads + 1 >= OFTEN_READS

    def _open(self, task_id: str) -> Watch:
        watch = self._watches[task_id] = Watch(self._gateway.follower(task_id))
        self._poll(watch)
        if self._clock is None:
            self._clock = asyncio.create_task(self._keep_looking(), name="look")
        return watch

    def _poll(self, watch: Watch) -> None:
        """Start the poll of a watch if there is room, or a reader's poll can make some."""
        if watch.ended or (len(self) >= self._limit and not self._make_room()):
            return
        watch.polling = asyncio.create_task(watch.poll(), name="watch")

    def _make_room(self) -> bool:
        for_readers = [item for item in self._watches.items() if item[1].polling and not item[1].listeners]
        if not for_readers:
            return False
        self._drop(*min(for_readers, key=lambda item: item[1].read_at))
        return True

    def _drop(self, task_id: str, watch: Watch) -> None:
        if self._watches.get(task_id) is watch:
            del self._watches[task_id]
        if watch.polling is not None:
            watch.polling.cancel()
            watch.polling = None

    async def _keep_looking(self) -> None:
        """Once a second: drop what nobody reads any more, give room to those who wait, and describe where needed."""
        while self._watches:
            await asyncio.sleep(LOOK_SECONDS)
            now = _now()
            for task_id, watch in [*self._watches.items()]:
                if not watch.read_lately(now):
                    watch.follower.patience = LONG_POLL
                if watch.ended or not (watch.listeners or watch.read_lately(now)):
                    self._drop(task_id, watch)  # an end is not remembered here: retention may delete it
                elif watch.listeners and watch.polling is None:
                    self._poll(watch)
            due = [item for item in self._watches.items() if item[1].wants_look(now)]
            due.sort(key=lambda item: item[1].looked_at)
            await asyncio.gather(*(self._look(*item) for item in due[:MAX_LOOKS]))
        self._clock = None

    async def _look(self, task_id: str, watch: Watch) -> None:
        watch.looked_at = _now()
        try:
            watch.looked(await self._gateway.describe(task_id), _now())
        except TaskNotFound:
            watch.end()
        except BridgeError as error:
            logger.info("look.failed", extra={"task_id": task_id, "why": error.message})


def _now() -> float:
    return asyncio.get_running_loop().time()
