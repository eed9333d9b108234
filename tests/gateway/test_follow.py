"""A task as its history tells it, event by event: the same as a describe would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import fields
from typing import Any

import pytest

from bridge.describe import Described
from bridge.follow import Moment
from tests.gateway.conftest import Bridge
from tests.support import eventually


class Followed:
    """A follower at work, and everything that it told."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self.ended = False

    @property
    def run(self) -> Described:
        return self.moments[-1].run


@asynccontextmanager
async def following(bridge: Bridge, task_id: str) -> AsyncIterator[Followed]:
    followed = Followed()

    async def read() -> None:
        async with aclosing(bridge.gateway.follower(task_id, asyncio.Semaphore()).moments()) as looks:
            async for moments in looks:
                followed.moments += moments
        followed.ended = True

    reading = asyncio.create_task(read())
    try:
        yield followed
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


def comparable(run: Described) -> dict[str, Any]:
    """What both can know."""
    either = {field.name: getattr(run, field.name) for field in fields(run)}
    del either["heartbeat"], either["pending_since"]
    return either


async def same_as_a_describe(bridge: Bridge, task_id: str, followed: Followed) -> None:
    """Wait until the follower knows exactly what a describe shows."""

    async def same() -> bool:
        described = await bridge.gateway.describe(task_id)
        return bool(followed.moments) and comparable(followed.run) == comparable(described)

    await eventually(same, what="the follower to know what a describe shows")


@pytest.mark.parametrize(
    "arguments", [{}, {"publish": False}, {"omit": True}], ids=["published", "silent", "too large"]
)
async def test_the_events_tell_what_a_describe_shows(served: Bridge, arguments: dict[str, Any]) -> None:
    task = await served.start("asker", {"rounds": [["a", "b"], ["c"]], **arguments})
    async with following(served, task) as followed:
        for key in ("a", "b", "c"):
            await eventually(lambda key=key: _asks(served, task, key), what=f"question {key}")  # type: ignore[misc]
            await same_as_a_describe(served, task, followed)
            await served.answer(task, key)
        await served.ended(task)
        await same_as_a_describe(served, task, followed)
        await eventually(lambda: _true(followed.ended), what="the end")


async def _asks(bridge: Bridge, task_id: str, key: str) -> bool:
    state = await bridge.read(task_id)
    return key in (getattr(state, "input_requests", None) or {})


async def _true(value: bool) -> bool:
    return value


async def test_a_task_that_continues_as_new_is_followed_into_its_next_run(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [["a"], ["b"]], "continue_after": 1})
    async with following(served, task) as followed:
        await served.parked(task, "a")
        await served.answer(task, "a")
        await served.parked(task, "b")
        await same_as_a_describe(served, task, followed)
        await served.answer(task, "b")
        await served.ended(task)
        await eventually(lambda: _true(followed.ended), what="the end")
    assert len({moment.run.run_id for moment in followed.moments}) == 2


async def test_each_published_change_is_a_moment_in_order(served: Bridge) -> None:
    task = await served.start("asker", {"rounds": [[f"q{number}"] for number in range(8)]})
    async with following(served, task) as followed:
        for number in range(8):
            await served.parked(task, f"q{number}")
            await served.answer(task, f"q{number}")
        await served.ended(task)
        await eventually(lambda: _true(followed.ended), what="the end")
    asked = [
        key
        for moment in followed.moments
        if moment.told and moment.run.snapshot
        for key in moment.run.snapshot.input_requests or {}
    ]
    assert asked == [f"q{number}" for number in range(8)]


async def test_activities_under_way_are_counted_as_a_describe_counts_them(served: Bridge) -> None:
    task = await served.start("beater", {"report": {"progress": 1}})
    async with following(served, task) as followed:

        async def beating() -> bool:
            return bool(followed.moments) and followed.run.activities == 1

        await eventually(beating, what="the activity")
        await same_as_a_describe(served, task, followed)
        await served.gateway.request_cancel(task, "enough")
        await served.ended(task)
        await same_as_a_describe(served, task, followed)
    assert followed.run.activities == 0
