"""Pollers that ignore the interval (CC-04): slowed fairly, told nothing wrong, and nobody else's trouble."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from typing import Final

import pytest

from bridge.errors import TOO_MANY_REQUESTS
from bridge.pace import PAUSE
from tests.cases.client import McpClient
from tests.cases.counts import counts
from tests.cases.stack import Process

pytestmark = pytest.mark.asyncio(loop_scope="session")

CONNECTIONS: Final = 20
FLOOD_SECONDS: Final = 0.005
"""Between a connection's reads, if they are answered that fast."""

OTHERS: Final = 4
OTHERS_SECONDS: Final = 0.05

FLOOR_SECONDS: Final = 0.25
"""Below it a p95 says more about the machine than about the bridge."""


@counts("turns,seconds", cut=(5, 1.0), full=(10, 3.0))
async def test_a_flood_of_reads_is_served_or_refused_as_documented_and_others_hardly_notice(
    bridge: Process, turns: int, seconds: float
) -> None:
    async with McpClient(bridge.url) as impatient, McpClient(bridge.url) as other:
        flooded = await impatient.start("slow", {"seconds": 600})
        tasks = [await other.start("slow", {"seconds": 600}) for _ in range(OTHERS)]
        alone, beside, seen = list[float](), list[float](), Counter[tuple[int, int | None]]()
        for turn in range(turns + 1):
            quiet = await p95(other, tasks, seconds)
            flood = [asyncio.create_task(poll(impatient, flooded, seconds, seen)) for _ in range(CONNECTIONS)]
            loud = await p95(other, tasks, seconds)
            reads = await asyncio.gather(*flood)
            if turn:  # the first warms up
                alone.append(quiet)
                beside.append(loud)
                assert 2 * min(reads) >= statistics.mean(reads), "some were served at the cost of others"
                assert sum(reads) <= 2 * seconds / PAUSE + CONNECTIONS, "they were not slowed"
        assert seen.keys() <= {(200, None), (429, TOO_MANY_REQUESTS)}
        assert statistics.median(beside) <= max(2 * statistics.median(alone), FLOOR_SECONDS), (alone, beside)
        for task_id in (flooded, *tasks):
            await other.cancel(task_id)


async def test_polite_polling_is_never_limited_even_right_after_a_flood(client: McpClient) -> None:
    task_id = await client.start("slow", {"seconds": 600})
    seen = Counter[tuple[int, int | None]]()
    await asyncio.gather(*(poll(client, task_id, 0.5, seen) for _ in range(CONNECTIONS)))
    for _ in range(3):
        reply = await client.get(task_id)
        assert (reply.status, reply.result["status"]) == (200, "working")
        await asyncio.sleep(reply.result["pollIntervalMs"] / 1000)
    await client.cancel(task_id)


async def poll(client: McpClient, task_id: str, seconds: float, seen: Counter[tuple[int, int | None]]) -> int:
    """How many reads were answered when they followed each other as fast as they could."""
    reads, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        pause = asyncio.create_task(asyncio.sleep(FLOOD_SECONDS))
        reply = await client.get(task_id)
        seen[reply.status, reply.code] += 1
        reads += 1
        await pause
    return reads


async def p95(client: McpClient, tasks: list[str], seconds: float) -> float:
    """Of the reads of several users, each of a task of its own."""
    times = list[float]()

    async def user(task_id: str) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            begun = time.monotonic()
            assert (await client.get(task_id)).result["status"] == "working"
            times.append(time.monotonic() - begun)
            await asyncio.sleep(OTHERS_SECONDS)

    await asyncio.gather(*map(user, tasks))
    return statistics.quantiles(times, n=20)[-1]
