"""What every contender can do, so that the same loops drive them all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

POLL_SECONDS: Final = 0.02
"""How often every contender's clients look at their task."""

CYCLE_SECONDS: Final = 30.0

ANSWER: Final[Mapping[str, Any]] = {"action": "accept", "content": {"approved": True}}


class BenchError(Exception):
    """A contender did not do what is measured, so there is nothing to compare."""


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


async def until(session: Session, task_id: str, status: str) -> Poll:
    """Poll until the task has this status."""
    async with asyncio.timeout(CYCLE_SECONDS):
        while True:
            await asyncio.sleep(POLL_SECONDS)
            seen = await session.poll(task_id)
            if seen.status == status:
                return seen
            if seen.status in ("completed", "failed", "cancelled"):
                raise BenchError(f"the task is {seen.status} instead of {status}")


async def parked(session: Session) -> tuple[str, str]:
    """A new task that waits for its answer, and the key of its question."""
    task_id = await session.create()
    key = (await until(session, task_id, "input_required")).key
    if key is None:
        raise BenchError("the task asks nothing")
    return task_id, key


async def cycle(session: Session) -> None:
    """Create a task, answer its question, wait for its result."""
    task_id, key = await parked(session)
    await session.answer(task_id, key)
    await until(session, task_id, "completed")
