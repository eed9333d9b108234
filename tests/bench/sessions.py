"""What every contender can do, so that the same loops drive them all."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

POLL_SECONDS: Final = 0.02
"""How often every contender's clients look at their task."""

CYCLE_SECONDS: Final = 30.0
BATCH: Final = 20
"""Tasks that a client makes before it waits for them: starts come before the work that they start."""

BACKLOG_POLL_SECONDS: Final = 0.4
BACKLOG_SECONDS: Final = 60.0

ANSWER: Final[Mapping[str, Any]] = {"action": "accept", "content": {"approved": True}}


class BenchError(Exception):
    """A contender did not do what is measured, so there is nothing to compare."""


def reason(failures: BaseExceptionGroup[BaseException]) -> str:
    """The first failure of a group of them, in one line."""
    failure: BaseException = failures
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return " ".join(f"{type(failure).__name__}: {failure}".split())


@dataclass(frozen=True, slots=True)
class Poll:
    """What a poll saw: the status, and the key of the outstanding question if there is one."""

    status: str
    key: str | None


class Session(Protocol):
    """One client of one contender."""

    async def create(self) -> str: ...
    async def poll(self, task_id: str) -> Poll: ...
    async def answer(self, task_id: str, key: str) -> None: ...
    async def close(self) -> None: ...


async def until(session: Session, task_id: str, status: str, *, every: float = POLL_SECONDS) -> Poll:
    """Poll until the task has this status."""
    async with asyncio.timeout(CYCLE_SECONDS):
        while True:
            await asyncio.sleep(every)
            seen = await session.poll(task_id)
            if seen.status == status:
                return seen
            if seen.status in ("completed", "failed", "cancelled"):
                raise BenchError(f"the task is {seen.status} instead of {status}")


async def parked(session: Session, *, every: float = POLL_SECONDS) -> tuple[str, str]:
    """A new task that waits for its answer, and the key of its question."""
    task_id = await session.create()
    key = (await until(session, task_id, "input_required", every=every)).key
    if key is None:
        raise BenchError("the task asks nothing")
    return task_id, key


async def cycle(session: Session) -> None:
    """Create a task, answer its question, wait for its result."""
    task_id, key = await parked(session)
    await session.answer(task_id, key)
    await until(session, task_id, "completed")


async def make(sessions: Sequence[Session], count: int, status: str) -> list[str]:
    """So many tasks, made by these clients at the same time; returns their ids once all are in this status."""
    made: list[str] = []
    left = iter(range(count))

    async def client(session: Session) -> None:
        while batch := [await session.create() for _ in itertools.islice(left, BATCH)]:
            for task_id in reversed(batch):  # when the last is there, so are most of the others
                await _reach(session, task_id, status)
            made.extend(batch)

    async with asyncio.TaskGroup() as clients:
        for session in sessions:
            clients.create_task(client(session))
    return made


async def _reach(session: Session, task_id: str, status: str) -> None:
    """Wait until the task has this status; answer on the way if that is its end. Looks seldom: the worker needs the
    processor more.
    """
    async with asyncio.timeout(BACKLOG_SECONDS):
        while (seen := await session.poll(task_id)).status != status:
            if seen.key is not None and status == "completed":
                await session.answer(task_id, seen.key)
            await asyncio.sleep(BACKLOG_POLL_SECONDS)
