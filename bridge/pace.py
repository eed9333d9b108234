"""Reads of one task by one owner that are outstanding at the same time take turns.

Whoever reads one after the other, however fast, is alone in the line and never waits. Many at once are let in first
come first served, with a pause after each read, so that a flood leaves the process to everybody else; different tasks
and different owners never wait for each other. A slow read holds up nobody for long: the next begins beside it. The
longer the line, the closer its turns, so that a wait stays near `LONGEST_WAIT`; beyond `MOST_WAITING` a read is
refused, with an error that says nothing about the task. A line is forgotten once nobody has come for a pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from bridge.errors import RETRY_AFTER_MS, TOO_MANY_REQUESTS
from bridge.jsonrpc import Refusal

PAUSE: Final = 0.005
"""Seconds between the end of a read and the next turn."""

PATIENCE: Final = 0.05
"""Seconds after which the next turn begins although no read has ended, e.g. because no worker answers."""

LONGEST_WAIT: Final = 1.0
"""Seconds in which a line of whatever length moves on by its length."""

MOST_WAITING: Final = 256


class Pace:
    """The lines of one process, by task and reader."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], _Line] = {}

    @asynccontextmanager
    async def turn(self, task_id: str, reader: str) -> AsyncIterator[None]:
        """Wait for a turn to read the task, and hold it.

        Raises:
            Refusal: 429, because `MOST_WAITING` reads of this task by this reader wait already.
        """
        key = (task_id, reader)
        line = self._lines.get(key)
        if line is not None:
            await line.wait()
        else:
            line = self._lines[key] = _Line(reading=1, forget=partial(self._lines.pop, key))
        try:
            if not line.crowded:
                await asyncio.sleep(0)  # reads from memory end at once: whoever came at the same moment gets in line
            yield
        finally:
            line.leave()


@dataclass(slots=True, eq=False)
class _Line:
    """Who reads a task, and who waits, oldest first.

    It is `crowded` if since the last turn began somebody came while another read or waited; such a line outlives its
    last read by a pause. While somebody waits, or nobody reads, a timer is set: it lets the next one in, or has the
    line forgotten.
    """

    reading: int
    forget: Callable[[], object]
    crowded: bool = False
    waiting: dict[asyncio.Future[None], None] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None

    async def wait(self) -> None:
        """Return with a turn. Whoever is cancelled leaves the line, and the turn to the next if it has one already.

        Raises Refusal.
        """
        if len(self.waiting) >= MOST_WAITING:
            raise Refusal(
                TOO_MANY_REQUESTS,
                "Too many reads of this task wait already; read it once per pollIntervalMs",
                data={"retryAfterMs": RETRY_AFTER_MS},
                status=429,
            )
        self.crowded = self.crowded or bool(self.reading or self.waiting)
        turn = asyncio.get_running_loop().create_future()
        self.waiting[turn] = None
        self._next_after(PATIENCE)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                del self.waiting[turn]
            else:
                self.leave()
            raise

    def leave(self) -> None:
        """End a turn."""
        self.reading -= 1
        if self.reading:
            return
        if self.waiting or self.crowded:
            self._next_after(PAUSE)
        else:
            self.forget()

    def _next_after(self, seconds: float) -> None:
        """Let the next one in after so long, or when it would be let in anyhow if that is sooner."""
        loop = asyncio.get_running_loop()
        at = loop.time() + min(seconds, LONGEST_WAIT / max(1, len(self.waiting)))
        if self.timer is not None:
            if self.timer.when() <= at:
                return
            self.timer.cancel()
        self.timer = loop.call_at(at, self._next)

    def _next(self) -> None:
        self.timer = None
        turn = next((turn for turn in self.waiting if not turn.cancelled()), None)
        if turn is not None:
            del self.waiting[turn]
            self.reading += 1
            turn.set_result(None)
        self.crowded = bool(self.waiting)
        if self.waiting:
            self._next_after(PATIENCE)
        elif not self.reading:
            self.forget()
