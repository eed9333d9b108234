"""One task that is watched: what is known of it, who listens, and the poll of its history.

A listener gets every published change in order, from the state that it has read itself. One that does not keep up is
told the latest progress alone, loses the oldest changes, never the newest, and holds nobody else up. Readers are told
the task as it was last heard of, but only while the poll is alive, and never less than this process has already seen by
a describe.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

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

TELLING_SECONDS: Final = 0.001
"""What listeners have to be told before Temporal is asked again: to ask takes as long as to tell them."""

STALE_SECONDS: Final = SHORT_POLL.total_seconds() + 1
"""How long ago a task that is read from memory may have been heard of."""


class Listener:
    """What one listener has not seen yet of one task. `every`: also changes that were not published, since the listener
    reads the task itself. `after` is what it has seen by itself, and `look_again_at` when it should look although
    nothing happened.
    """

    def __init__(self, *, every: bool = False) -> None:
        self.every: Final = every
        self.after: Described | None = None
        self.look_again_at = math.inf
        self._unread: deque[Moment | None] = deque(maxlen=MAX_UNREAD)
        self._arrived = asyncio.Event()
        self._ended = False

    def put(self, moment: Moment | None) -> None:
        """Add a change; None, or one of a workflow that publishes no snapshot, says that it is time to look."""
        change = None if moment is None or moment.run.snapshot is None else moment
        if change is not None and self._unread and _only_progressed(self._unread[-1], change):
            self._unread.pop()
        if change is not None or not self._unread or self._unread[-1] is not None:
            self._unread.append(change)
        self._arrived.set()

    def end(self) -> None:
        """Nothing will be added any more."""
        self._ended = True
        self._arrived.set()

    async def arrival(self, within: float) -> None:
        """Wait until there is a change, but not for longer than `within` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._arrived.wait()

    async def changes(self) -> AsyncGenerator[Moment | None]:
        """The changes in order, but for those that `after` shows already; None says "look". Ends with the task."""
        while True:
            while self._unread:
                moment = self._unread.popleft()
                if moment is None:
                    yield None
                elif self.after is None or not _shows(self.after, moment.run):
                    self.after = moment.run
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
        """The task as it was last heard of. None if that may not be relied on, or if it is this reader's turn to
        describe a task at work, for the sake of its heartbeats.
        """
        latest = self._latest
        if latest is None or latest.ended is not None:
            return latest
        if self.ended or self.polling is None or now - self.follower.heard_at > STALE_SECONDS:
            return None
        if self._described is not None and not latest.run.reaches(self._described):
            return None
        if latest.run.activities and now - self.looked_at >= LOOK_SECONDS:
            self.looked_at = now
            return None
        return latest

    def described(self, run: Described) -> None:
        """Note what a describe showed: this process must not tell less of the task any more."""
        if self._described is None or not self._described.reaches(run):
            self._described = run
        latest = self._latest
        if latest is None or not latest.run.activities or run.heartbeat == latest.run.heartbeat:
            return
        if run.run_id == latest.run.run_id and run.reaches(latest.run):
            self._latest = replace(latest, run=replace(latest.run, heartbeat=run.heartbeat), told=True)
            self._tell([self._latest])

    def current(self, now: float) -> bool:
        """Whether a change would be heard of."""
        return self.polling is not None and now - self.follower.heard_at < LONG_POLL.total_seconds() + 1

    def read(self, now: float) -> None:
        """Somebody reads the task."""
        self.read_at = now
        self.follower.patience = SHORT_POLL

    def read_lately(self, now: float) -> bool:
        """Whether somebody reads the task."""
        return now - self.read_at < OFTEN_SECONDS

    def wants_look(self, now: float) -> bool:
        """Whether a describe would tell listeners what the poll does not."""
        if self.ended or now - self.looked_at < LOOK_SECONDS:
            return False
        if not self.current(now):
            return bool(self.listeners)
        at_work = self._latest is not None and self._latest.run.activities > 0
        return at_work and any(not listener.every for listener in self.listeners)

    async def poll(self) -> None:
        """Follow the task to its end."""
        try:
            async with aclosing(self.follower.moments()) as looks:
                last: Moment | None = None
                async for moments in looks:
                    self._take([moment for moment in moments if moment.ended is None])
                    last = moments[-1] if moments else last
                    if self.listeners and moments and moments[-1].ended is None:
                        await asyncio.sleep(TELLING_SECONDS)
            self._latest = last
            self.end()
        except TaskNotFound:
            self.end()  # deleted meanwhile: who reads it is told so
        except BridgeError as error:
            logger.warning("watch.refused", extra={"why": error.message})
        except Exception:  # of this task alone; its listeners are told by describes
            logger.exception("watch.failed")

    def looked(self, run: Described, now: float) -> None:
        """Take a describe for what the poll does not tell."""
        latest = self._latest
        if latest is None or not self.current(now):
            if run.closed_at is not None and not run.continued:
                self.end()
            elif latest is None or not latest.run.reaches(run):
                self._latest = Moment(run, told=latest is None or run.snapshot != latest.run.snapshot)
                self._tell([self._latest])
        self.described(run)

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
        if known is None or _brought_another_view(known, last):
            last = replace(last, told=True)
        elif _same_activities(known, news):
            last = replace(last, run=replace(last.run, heartbeat=known.run.heartbeat))
        self._latest = last
        self._tell([*(moment for moment in news[:-1] if moment.told), last], first=known is None)

    def _tell(self, moments: list[Moment], *, first: bool = False) -> None:
        """The `first` time the moments are the whole history: a listener leaves out what it has seen before, but one
        that reads at each of them is told their outcome alone.
        """
        for listener in self.listeners:
            for moment in moments[-1:] if first and listener.every else moments:
                if moment.told or (_is_settled(moment) and (listener.every or moment.run.snapshot is None)):
                    listener.put(moment)


def _only_progressed(before: Moment | None, now: Moment) -> bool:
    """Whether the same is asked, in the same run."""
    return before is not None and before.run.run_id == now.run.run_id and _asked(before.run) == _asked(now.run)


def _asked(run: Described) -> dict[str, dict[str, Any]]:
    return (run.snapshot and run.snapshot.input_requests) or {}


def _is_settled(moment: Moment) -> bool:
    """Whether nothing is pending, of which what it brings is still to come."""
    return not moment.run.pending_task


def _brought_another_view(known: Moment, last: Moment) -> bool:
    """Whether the task went on in another run, with a view that no event of either published."""
    return known.run.run_id != last.run.run_id and known.run.snapshot != last.run.snapshot


def _same_activities(known: Moment, news: list[Moment]) -> bool:
    """Whether the activities that were under way still are, so that their last report stands."""
    counts = [moment.run.activities for moment in (known, *news)]
    none_ended = all(before <= after for before, after in pairwise(counts))
    return none_ended and known.run.run_id == news[-1].run.run_id


def _shows(run: Described, change: Described) -> bool:
    """Whether `run` shows what came with `change`. Where a change has no report of an activity, there may be one."""
    same = run.run_id == change.run_id and run.history_length == change.history_length
    progress = same and change.heartbeat is not None and run.heartbeat != change.heartbeat
    return run.reaches(change) and not progress
