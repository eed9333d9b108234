"""Tasks that somebody listens to or reads often: one history long poll for each, shared by all in this process.

Temporal bounds the polls of a frontend and namespace, so there are at most `MAX_WATCHES`. Listeners come before
readers, who can always describe; a listener beyond the limit is told by a describe from time to time, as is one whose
poll does not come through, until there is room. Heartbeats of activities make no event and are described likewise.
"""

from __future__ import annotations

import asyncio
import logging
import math
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

OFTEN_READS: Final = 5
"""Reads within `OFTEN_SECONDS` for which a poll is worth it."""

OFTEN_AFTER_SECONDS: Final = 1.0
"""A task that ends sooner costs less without a poll, however often it is read."""

MAX_READ_HISTORY: Final = 2_000
"""A poll reads the history from its start, so for readers alone a longer one is not worth it."""

MAX_COUNTED: Final = 10_000
"""Tasks whose reads are counted."""

MAX_LOOKS: Final = 100
"""Describes a second of tasks whose poll does not tell everything; beyond, the tasks take turns."""

SLOTS: Final = 32
"""How many tasks are looked at, or begun to be followed, at a time: clients' own calls must get through meanwhile."""


class Watches:
    """All tasks that are listened to or read often in this process."""

    def __init__(self, gateway: Gateway, *, limit: int = MAX_WATCHES) -> None:
        self._gateway = gateway
        self._limit = limit
        self._watches: dict[str, Watch] = {}
        self._polled: dict[str, Watch] = {}
        self._reads: LRUCache[str, tuple[float, int]] = LRUCache(MAX_COUNTED)
        self._clock: asyncio.Task[None] | None = None
        self.slots: Final = asyncio.Semaphore(SLOTS)

    def __len__(self) -> int:
        """How many polls there are."""
        return len(self._polled)

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
        if watch is None and len(self) < self._limit and self._is_read_often(run, now):
            watch = self._open(run.task_id)
            self._poll(run.task_id, watch)
        if watch is not None:
            watch.read(now)

    @asynccontextmanager
    async def listening(self, task_id: str, *, every: bool = False) -> AsyncIterator[Listener]:
        """A listener of a task, for as long as the context lasts; its first item is the task as it is now."""
        watch = self._watches.get(task_id) or self._open(task_id)
        listener = Listener(every=every)
        watch.join(listener)
        if watch.polling is None and not watch.ended and not self._poll(task_id, watch):
            listener.put(None)
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
        return reads + 1 >= OFTEN_READS and now - since >= OFTEN_AFTER_SECONDS

    def _open(self, task_id: str) -> Watch:
        watch = self._watches[task_id] = Watch(self._gateway.follower(task_id, self.slots))
        if self._clock is None:
            self._clock = asyncio.create_task(self._keep_looking(), name="look")
        return watch

    def _poll(self, task_id: str, watch: Watch) -> bool:
        """Start the poll of a watch if there is room, or if it has listeners and a poll for readers can make some."""
        if len(self) >= self._limit and not (watch.listeners and self._make_room()):
            return False
        self._polled[task_id] = watch
        watch.polling = asyncio.create_task(watch.poll(), name="watch")
        watch.polling.add_done_callback(lambda _: self._stop_polling(task_id, watch))
        return True

    def _make_room(self) -> bool:
        for_readers = [item for item in self._polled.items() if not item[1].listeners]
        if not for_readers:
            return False
        self._drop(*min(for_readers, key=lambda item: item[1].read_at))
        return True

    def _stop_polling(self, task_id: str, watch: Watch) -> None:
        if self._polled.get(task_id) is watch:
            del self._polled[task_id]
        watch.polling = None

    def _drop(self, task_id: str, watch: Watch) -> None:
        if self._watches.get(task_id) is watch:
            del self._watches[task_id]
        if watch.polling is not None:
            watch.polling.cancel()
            self._stop_polling(task_id, watch)

    async def _keep_looking(self) -> None:
        """Once a second: drop what nobody reads any more, give room to those who wait, and describe where needed."""
        while self._watches:
            await asyncio.sleep(LOOK_SECONDS)
            now = _now()
            self._tidy(now)
            due = [item for item in self._watches.items() if item[1].wants_look(now)]
            due.sort(key=lambda item: item[1].looked_at)
            await asyncio.gather(*(self._look(*item, now) for item in due[:MAX_LOOKS]))
        self._clock = None

    def _tidy(self, now: float) -> None:
        room = True
        for task_id, watch in [*self._watches.items()]:
            if not watch.read_lately(now):
                watch.follower.patience = LONG_POLL
            if watch.ended or not (watch.listeners or watch.read_lately(now)):
                self._drop(task_id, watch)  # an end is not remembered here: retention may delete it
            elif watch.polling is None and room:
                room = self._poll(task_id, watch) or not watch.listeners
            for listener in watch.listeners:
                if now >= listener.look_again_at:
                    listener.look_again_at = math.inf
                    listener.put(None)

    async def _look(self, task_id: str, watch: Watch, now: float) -> None:
        watch.looked_at = now
        try:
            async with self.slots:
                run = await self._gateway.describe(task_id)
            watch.looked(run, _now())
        except TaskNotFound:
            watch.end()
        except BridgeError as error:
            logger.info("look.failed", extra={"task_id": task_id, "why": error.message})
        except Exception:  # of this task alone; the others are still looked at
            logger.exception("look.failed", extra={"task_id": task_id})


def _now() -> float:
    return asyncio.get_running_loop().time()
