"""TR-02: listeners that vanish leave nothing behind, however they go. A half-closed connection counts as left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

import pytest
import pytest_asyncio

from tests.cases.client import McpClient, accept
from tests.cases.counts import counts
from tests.cases.processes import MEGABYTE, Watched, watched_bridge
from tests.cases.raw import RawStream, address, listen_bytes, raw_stream, reset
from tests.cases.stack import Process, Stack
from tests.support import eventually, unique

pytestmark = pytest.mark.asyncio(loop_scope="session")

TASKS: Final = 10
Leave = Callable[[McpClient, Sequence[str]], Awaitable[None]]

AT_A_TIME: Final = 50
FREED_WITHIN: Final = 60.0


@pytest_asyncio.fixture(loop_scope="session")
async def watched(stack: Stack, worker: Process) -> AsyncIterator[Watched]:
    """A bridge that nobody else uses."""
    async with watched_bridge(stack) as watched:
        yield watched


async def reset_before_the_answer(client: McpClient, task_ids: Sequence[str]) -> None:
    """Leave straight after the request."""
    _, writer = await asyncio.open_connection(*address(client))
    writer.write(listen_bytes(client, task_ids))
    await writer.drain()
    reset(writer)


async def reset_after_the_acknowledgement(client: McpClient, task_ids: Sequence[str]) -> None:
    """Leave an open stream."""
    async with raw_stream(*address(client), listen_bytes(client, task_ids)) as stream:
        await stream.acknowledged(within=60)
        reset(stream.writer)


async def half_close_at_once(client: McpClient, task_ids: Sequence[str]) -> None:
    """Close the sending side straight after the request, and read on."""
    async with raw_stream(*address(client), listen_bytes(client, task_ids)) as stream:
        await ended_by_half_close(stream)


async def half_close_an_open_stream(client: McpClient, task_ids: Sequence[str]) -> None:
    """Close the sending side after the acknowledgement, and read on."""
    async with raw_stream(*address(client), listen_bytes(client, task_ids)) as stream:
        await stream.acknowledged(within=60)
        await ended_by_half_close(stream)


async def ended_by_half_close(stream: RawStream) -> None:
    """Fail unless the bridge closes its side too, without the end of a response."""
    stream.writer.write_eof()
    await asyncio.wait_for(stream.reading, 60)
    assert not stream.clean_end, "nothing is promised to who has left"


LEAVING: Final = (
    reset_before_the_answer,
    reset_after_the_acknowledgement,
    half_close_at_once,
    half_close_an_open_stream,
)


@counts("times", cut=[100, 100, 20, 20], full=[500, 500, 100, 100])
async def test_what_vanishing_listeners_held_is_freed(watched: Watched, times: list[int]) -> None:
    client = watched.client
    label = unique("vanish")
    task_ids = [await client.start("ask", {"n": 1, "label": label}) for _ in range(TASKS)]
    keys = {task_id: next(iter(await client.parked(task_id))) for task_id in task_ids}
    few = asyncio.Semaphore(AT_A_TIME)

    async def leave(how: Leave, number: int) -> None:
        async with few:
            first = number % TASKS
            await how(client, [*task_ids[first:], *task_ids[:first]][:3])

    for how in LEAVING:  # so that what is set up once is in the baseline
        await asyncio.gather(*(leave(how, number) for number in range(10)))
    await eventually(watched.asks_nothing, what="no watch", within=FREED_WITHIN)
    descriptors, resident = watched.descriptors, watched.resident_bytes

    for how, count in zip(LEAVING, times, strict=True):
        await asyncio.gather(*(leave(how, number) for number in range(count)))

    async with raw_stream(*address(client), listen_bytes(client, task_ids)) as stream:
        assert await stream.acknowledged() == {"taskIds": task_ids}

        async def descriptors_are_back() -> bool:
            return watched.descriptors <= descriptors + 5

        await eventually(descriptors_are_back, what="descriptors as before", within=FREED_WITHIN)
        await client.update(task_ids[0], {keys[task_ids[0]]: accept(text="yes")})
        await stream.tells(task_ids[0], "completed")
    await eventually(watched.asks_nothing, what="no watch", within=FREED_WITHIN)
    assert watched.resident_bytes < resident + 50 * MEGABYTE
    assert watched.complaints() == []
    await client.alive()
    for task_id in task_ids:
        await client.cancel(task_id)
