"""Reads of one task by one owner that are outstanding at the same time take turns.

Whoever reads one after the other, however fast, is alone in the line and never waits. Many at once are let in first
come first served, with a pause after each read, so that a flood leaves the process to everybody else; different tasks
and different owners never wait for each other. A slow read holds up nobody for long: the next begins beside it. The
longer the line, the closer its turns, so that a wait stays near `LONGEST_WAIT`; beyond `MOST_WAITING` a read is
refused, with an error that says nothing about the task. A line is forgotten once nobody has come for a pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from bridge.too_many import TooMany

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

    async def turn(self, task_id: str, reader: str) -> _Line:
        """Wait for a turn to read the task; it lasts as long as the context of what is returned.

        Raises:
            TooMany: `MOST_WAITING` reads of this task by this reader wait already.
        """
        key = (task_id, reader)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(partial(self._lines.pop, key))
        else:
            await line.wait()
        return line


class _Line:
    """Who reads a task, and who waits, oldest first.

    It is `crowded` if since the last turn began somebody came while another read or waited, or in the same moment;
    such a line outlives its last read by a pause. While somebody waits, or nobody reads, a timer is set: it lets the
    next one in, or has the line forgotten.
    """

    __slots__ = ("_crowded", "_due", "_forget", "_reading", "_timer", "_waiting")

    def __init__(self, forget: Callable[[], object]) -> None:
        """A line with one reader in it."""
        self._forget = forget
        self._reading = 1
        self._crowded = False
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._timer: asyncio.Handle | None = None
        self._due = 0.0

    def __enter__(self) -> None:
        """The turn has come already."""

    def __exit__(self, *_error: object) -> None:
        """End a turn."""
        self._reading -= 1
        if self._reading:
            return
        if self._waiting or self._crowded:
            self._next_after(PAUSE)
        else:
            # Reads from memory end at once: whoever came in the same moment still gets in line
            asyncio.get_running_loop().call_soon(self._end)

    async def wait(self) -> None:
        """Return with a turn. Whoever is cancelled leaves the line, and the turn to the next if it has one already.

        Raises TooMany.
        """
        if len(self._waiting) >= MOST_WAITING:
            raise TooMany("Too many reads of this task wait already; read it once per pollIntervalMs")
        self._crowded = self._crowded or self._timer is None or bool(self._reading or self._waiting)
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = None
        self._next_after(PATIENCE if self._reading else PAUSE)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                del self._waiting[turn]
            else:
                self.__exit__()
            raise

    def _next_after(self, seconds: float) -> None:
        """Let the next one in after so long, or when it would be let in anyhow if that is sooner."""
        loop = asyncio.get_running_loop()
        at = loop.time() + min(seconds, LONGEST_WAIT / max(1, len(self._waiting)))
        if self._timer is not None:
            if self._due <= at:
                return
            self._timer.cancel()
        # When it is due is kept here: for a moment that has come, uvloop returns a handle that does not know
        self._timer, self._due = loop.call_at(at, self._next), at

    def _next(self) -> None:
        self._timer = None
        turn = next((turn for turn in self._waiting if not turn.cancelled()), None)
        if turn is not None:
            del self._waiting[turn]
            self._reading += 1
            turn.set_result(None)
        self._crowded = bool(self._waiting)
        if self._waiting:
            self._next_after(PATIENCE)
        else:
            self._end()

    def _end(self) -> None:
        """Nobody is there any more, or somebody came after all."""
        if not (self._reading or self._waiting or self._timer):
            self._forget()
