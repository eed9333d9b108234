"""One task that is watched: what is known of it, who listens, and the poll of its history.

A listener gets every published change in order, from the state at which it joined. One that does not keep up loses the
oldest of them, never the newest, and holds nobody else up. Readers are told the task as it was last heard of, but only
while the poll is alive, and never less than this process has already seen by a describe.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import replace
from itertools import pairwise
from typing import Final

from bridge.describe import Described
from bridge.errors import BridgeError, TaskNotFound
from bridge.follow import LONG_POLL, SHORT_POLL, Follower, Moment

logger = logging.getLogger(__name__)

MAX_UNREAD: Final = 64
"""Changes of one task that wait for one listener."""

OFTEN_SECONDS: Final = 10.0
"""How long a task counts as read; a poll is about three requests in that time."""

LOOK_SECONDS: Final = 1.0
"""How often a task is described whose poll does not tell everything."""

STALE_SECONDS: Final = SHORT_POLL.total_seconds() + 1
"""How long ago a task that is read from memory may have been heard of."""


class Listener:
    """What one listener has not seen yet of one task. `every`: also changes that were not published, since the listener
    reads the task itself.
    """

    def __init__(self, *, every: bool = False) -> None:
        self.every: Final = every
        self._unread: deque[Moment | None] = deque(maxlen=MAX_UNREAD)
        self._arrived = asyncio.Event()
        self._ended = False

    def put(self, moment: Moment) -> None:
        """Add a change."""
        if moment.run.snapshot is not None:
            self._unread.append(moment)
        elif not self._unread or self._unread[-1] is not None:
            self._unread.append(None)
        self._arrived.set()

    def end(self) -> None:
        """Nothing will be added any more."""
        self._ended = True
        self._arrived.set()

    async def changes(self, after: Described | None = None) -> AsyncGenerator[Moment | None]:
        """The changes in order, but for those that `after` shows already; None says "something changed" of a workflow
        that publishes no snapshot. Ends with the task.
        """
        while True:
            while self._unread:
                moment = self._unread.popleft()
                if moment is None or after is None or not _shows(after, moment.run):
                    yield moment
            if self._ended:
                return
            self._arrived.clear()
            await self._arrived.wait()


class Watch:
    """One task, and what is known of it."""

    def __init__(self, follower: Follower) -> None:
        self.follower: Final = follower
        self.listeners: Final[set[Listener]] = set()
        self.polling: asyncio.Task[None] | None = None
        self.ended = False
        self.read_at = -math.inf
        self.looked_at = -math.inf
        self._latest: Moment | None = None
        self._described: Described | None = None

    def join(self, listener: Listener) -> None:
        """Add a listener, which is told the task as it is now."""
        self.listeners.add(listener)
        if self._latest is not None:
            listener.put(self._latest)
        if self.ended:
            listener.end()

    def seen(self, now: float) -> Moment | None:
        """The task as it was last heard of; None if that may not be relied on."""
        latest, described = self._latest, self._described
        if latest is None or latest.ended is not None:
            return latest
        if self.ended or self.polling is None or now - self.follower.heard_at > STALE_SECONDS:
            return None
        return latest if described is None or latest.run.reaches(described) else None

    def described(self, run: Described) -> None:
        """Note what a describe showed: this process must not tell less of the task any more."""
        self._described = run

    def current(self, now: float) -> bool:
        """Whether a change would be heard of."""
        return self.polling is not None and now - self.follower.heard_at < LONG_POLL.total_seconds() + 1

    def read(self, now: float) -> None:
        """Somebody reads the task."""
        self.read_at = now
        self.follower.patience = SHORT_POLL

    def read_lately(self, now: float, within: float = OFTEN_SECONDS) -> bool:
        """Whether somebody reads the task."""
        return now - self.read_at < within

    def wants_look(self, now: float) -> bool:
        """Whether a describe would tell what the poll does not."""
        if self.ended:
            return False
        if not self.current(now):
            return bool(self.listeners)
        if self._latest is None or not self._latest.run.activities:
            return False
        return self.read_lately(now, 2 * LOOK_SECONDS) or any(not listener.every for listener in self.listeners)

    async def poll(self) -> None:
        """Follow the task to its end."""
        try:
            async with aclosing(self.follower.moments()) as looks:
                last: Moment | None = None
                async for moments in looks:
                    self._take([moment for moment in moments if moment.ended is None])
                    last = moments[-1] if moments else last
            self._latest = last
            self.end()
        except TaskNotFound:
            self.end()  # deleted meanwhile: who reads it is told so
        except BridgeError as error:
            logger.warning("watch.refused", extra={"why": error.message})
        finally:
            self.polling = None

    def looked(self, run: Described, now: float) -> None:
        """Take a describe for what the poll does not tell."""
        latest = self._latest
        if self.current(now) and latest is not None:
            if run.run_id == latest.run.run_id and run.heartbeat != latest.run.heartbeat:
                self._latest = replace(latest, run=replace(latest.run, heartbeat=run.heartbeat), told=True)
                self._tell([self._latest])
        elif run.closed_at is not None and not run.continued:
            self.end()
        elif latest is None or not latest.run.reaches(run):
            self._latest = Moment(run, told=latest is None or run.snapshot != latest.run.snapshot)
            self._tell([self._latest])

    def end(self) -> None:
        """Let the listeners go: the task has ended, or is gone."""
        self.ended = True
        for listener in self.listeners:
            listener.end()

    def _take(self, moments: list[Moment]) -> None:
        known = self._latest
        news = [moment for moment in moments if known is None or not known.run.reaches(moment.run)]
        if not news:
            return
        last = news[-1]
        if known is not None and _same_activities(known, news):
            last = replace(last, run=replace(last.run, heartbeat=known.run.heartbeat))
        self._latest = last
        if known is None:
            self._tell([replace(last, told=True)])  # what had happened before is told as its outcome alone
        else:
            self._tell([*(moment for moment in news[:-1] if moment.told), last])

    def _tell(self, moments: Iterable[Moment]) -> None:
        for moment in moments:
            unpublished = not moment.run.pending_task  # while one is pending, what it brings is still to come
            for listener in self.listeners:
                if moment.told or (unpublished and (listener.every or moment.run.snapshot is None)):
                    listener.put(moment)


def _same_activities(known: Moment, news: list[Moment]) -> bool:
    """Whether the activities that were under way still are, so that their last report stands."""
    counts = [moment.run.activities for moment in (known, *news)]
    none_ended = all(before <= after for before, after in pairwise(counts))
    return none_ended and known.run.run_id == news[-1].run.run_id


def _shows(run: Described, change: Described) -> bool:
    """Whether `run` shows what came with `change`."""
    progress = run.history_length == change.history_length and run.heartbeat != change.heartbeat
    return run.reaches(change) and not progress
