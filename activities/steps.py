"""Blocking work of an activity, in a thread: heartbeats while it runs, and a cancel that tells the truth.

A thread cannot be cut off, so a cancel only asks it to stop, and the activity ends when the thread has: a step that
finished all the same returns its value, because it did happen. Temporal delivers a cancel (and notices a dead
worker) through heartbeats alone.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from workflows.kit.activity import report_progress

T = TypeVar("T")

BEAT_SECONDS: Final = 1.0
"""How often a step heartbeats; far below every heartbeat timeout, and throttled by the SDK."""


class StepStopped(Exception):
    """Raised by `Step.check` in the thread when the activity was cancelled."""


class Step:
    """How far a step is, written by its thread and reported by the loop."""

    def __init__(self, *, done: float = 0, total: float | None = None, message: str | None = None) -> None:
        """Start at `done` of `total`, in units of the step's choice."""
        self.done = done
        self.total = total
        self.message = message
        self._stopping = threading.Event()

    def report(self) -> None:
        """Heartbeat with the progress so far."""
        report_progress(self.done, total=self.total, message=self.message)

    def stop(self) -> None:
        """Ask the thread to stop at its next `check`."""
        self._stopping.set()

    def check(self) -> None:
        """A place where the thread may stop.

        Raises:
            StepStopped: The activity was cancelled.
        """
        if self._stopping.is_set():
            raise StepStopped


async def in_thread(work: Callable[[], T], step: Step) -> T:
    """Run `work` in a thread and return its value, heartbeating `step` meanwhile.

    Raises:
        asyncio.CancelledError: The activity was cancelled and the thread stopped at a `step.check()`.
    """
    thread = asyncio.ensure_future(asyncio.to_thread(work))
    cancelled = 0
    step.report()
    while True:
        try:
            finished, _ = await asyncio.wait({thread}, timeout=BEAT_SECONDS)
        except asyncio.CancelledError:
            cancelled += 1
            step.stop()
            continue
        step.report()
        if finished:
            break
    try:
        value = thread.result()
    except StepStopped:
        raise asyncio.CancelledError from None
    for _ in range(cancelled):
        spend_cancel()
    return value


@asynccontextmanager
async def beating(step: Step) -> AsyncIterator[None]:
    """Heartbeat `step` while the body awaits something slow."""

    async def beat() -> None:
        while True:
            step.report()
            await asyncio.sleep(BEAT_SECONDS)

    beats = asyncio.create_task(beat())
    try:
        yield
    finally:
        beats.cancel()
        await asyncio.wait({beats})


def spend_cancel() -> None:
    """Note that a CancelledError was caught because the work is done: it came too late, and no timeout may count it."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - only ever called from a coroutine
    task.uncancel()
