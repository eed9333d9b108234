"""Counts and waits of a case: cut in `make test`, as written in `make test-full`. The fault is the same in both."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import pytest

from tests.cases.client import TERMINAL, McpClient

FULL_TIMEOUT: Final = 900


def counts(names: str, *, cut: object, full: object) -> pytest.MarkDecorator:
    """Parametrise a test with its cut and its full counts; with several names both are tuples."""
    marks = (pytest.mark.full, pytest.mark.timeout(FULL_TIMEOUT))
    sizes = [pytest.param(*_values(cut), id="cut"), pytest.param(*_values(full), id="full", marks=marks)]
    return pytest.mark.parametrize(names, sizes)


def _values(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)


async def all_finished(client: McpClient, task_ids: Iterable[str], *, within: float) -> dict[str, dict[str, Any]]:
    """The tasks by id, once all are terminal; read a few at a time and five times a second, which is no flood."""
    few = asyncio.Semaphore(10)

    async def read(task_id: str) -> dict[str, Any]:
        async with few:
            return (await client.get(task_id)).result

    waiting, done = list(task_ids), dict[str, dict[str, Any]]()
    try:
        async with asyncio.timeout(within):
            while waiting:
                for task in await asyncio.gather(*map(read, waiting)):
                    if task["status"] in TERMINAL:
                        done[task["taskId"]] = task
                waiting = [task_id for task_id in waiting if task_id not in done]
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(f"{len(waiting)} tasks were not terminal within {within} s") from None
    return done
