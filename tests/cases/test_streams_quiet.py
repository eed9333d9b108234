"""TR-01: a subscription is there at once, whatever is between, and stays while nothing happens."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from tests.cases.client import McpClient, accept
from tests.cases.counts import counts
from tests.cases.proxies import Proxy
from tests.cases.raw import RawStream, address, listen_bytes, raw_stream
from tests.support import unique

pytestmark = pytest.mark.asyncio(loop_scope="session")

AT_ONCE = 10.0
"""The case allows 1 s for the acknowledgement; this machine may be busy. What is wrong would never come."""

LONGEST_SILENCE = 30.0


@pytest_asyncio.fixture(loop_scope="session")
async def open_ended(client: McpClient) -> AsyncIterator[tuple[str, str]]:
    """A task that waits for an answer, and the key of its question."""
    task_id = await client.start("ask", {"n": 1, "label": unique("quiet")})
    (key,) = await client.parked(task_id)
    yield task_id, key
    await client.cancel(task_id)


def longest_silence(stream: RawStream, until: float) -> float:
    """The longest time without a byte, up to `until`."""
    moments = [stream.head_at, *stream.arrivals, until]
    return max(later - earlier for earlier, later in itertools.pairwise(moments))


@counts("quiet_seconds", cut=35.0, full=120.0)
async def test_a_quiet_stream_stays_and_tells_the_end(
    client: McpClient, open_ended: tuple[str, str], quiet_seconds: float
) -> None:
    """Directly, through a proxy that cuts after 30 s without a byte, and one that buffers unless told not to."""
    task_id, key = open_ended
    host, port = address(client)
    impatient = Proxy(target=(host, port), idle_seconds=LONGEST_SILENCE)
    buffering = Proxy(target=(host, port), buffers=True)
    clock = asyncio.get_running_loop().time
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(impatient.running())
        await stack.enter_async_context(buffering.running())
        streams = [
            await stack.enter_async_context(raw_stream("127.0.0.1", at, listen_bytes(client, [task_id])))
            for at in (port, impatient.port, buffering.port)
        ]
        for stream in streams:
            assert await stream.acknowledged(within=AT_ONCE) == {"taskIds": [task_id]}
            await stream.tells(task_id, "input_required", within=AT_ONCE)
        started = clock()
        await asyncio.sleep(quiet_seconds)
        quiet_until = clock()
        await client.update(task_id, {key: accept(text="yes")})
        for stream in streams:
            await stream.tells(task_id, "completed", within=AT_ONCE)
            assert longest_silence(stream, quiet_until) < LONGEST_SILENCE
            assert stream.comments >= (quiet_until - started) // LONGEST_SILENCE
        assert impatient.cuts == 0


async def test_the_headers_keep_proxies_from_buffering_and_from_packing(
    client: McpClient, open_ended: tuple[str, str]
) -> None:
    task_id, _ = open_ended
    request = listen_bytes(client, [task_id]).replace(b"\r\n", b"\r\nAccept-Encoding: gzip, deflate, br\r\n", 1)
    async with raw_stream(*address(client), request) as stream:
        await stream.acknowledged(within=AT_ONCE)
    assert stream.status == 200
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.headers["x-accel-buffering"] == "no"
    assert not {"content-length", "content-encoding"} & stream.headers.keys()
