"""Blocking steps in threads."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.steps import Step, in_thread


async def started(flag: threading.Event) -> None:
    assert await asyncio.to_thread(flag.wait, 10)


async def test_a_step_heartbeats_its_progress(env: ActivityEnvironment, heartbeats: list[dict[str, Any]]) -> None:
    step = Step(total=2, message="counting")

    def work() -> str:
        step.done = 2
        return "value"

    async def run() -> str:
        return await in_thread(work, step)

    assert await env.run(run) == "value"
    assert heartbeats[-1] == {"progress": 2.0, "total": 2.0, "message": "counting"}


async def test_a_cancelled_step_stops_at_its_next_check(env: ActivityEnvironment) -> None:
    step, running = Step(), threading.Event()

    def work() -> None:
        running.set()
        while True:
            step.check()

    async def run() -> None:
        await in_thread(work, step)

    task = asyncio.ensure_future(env.run(run))
    await started(running)
    env.cancel()
    async with asyncio.timeout(10):
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_step_that_finishes_in_spite_of_a_cancel_returns_its_value(env: ActivityEnvironment) -> None:
    step, running, go_on = Step(), threading.Event(), threading.Event()

    def work() -> str:
        running.set()
        go_on.wait(10)
        return "done"

    async def run() -> tuple[str, int]:
        value = await in_thread(work, step)
        task = asyncio.current_task()
        assert task is not None
        return value, task.cancelling()

    task = asyncio.ensure_future(env.run(run))
    await started(running)
    env.cancel()
    await asyncio.sleep(0)
    go_on.set()
    assert await task == ("done", 0)


async def test_an_error_of_a_step_is_the_activitys_error(env: ActivityEnvironment) -> None:
    def work() -> None:
        raise LookupError("gone")

    async def run() -> None:
        await in_thread(work, Step())

    with pytest.raises(LookupError, match="gone"):
        await env.run(run)
