"""TR-11: connections that send slowly, or nothing, are cut off in time, however many there are, and hold up nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from bridge import connections
from bridge.http import HttpSettings
from tests.transport.toy import Served, Wire, call, discover, eventually, serving

SECONDS = 1.0
SENDERS = 50
PATIENCE = 60.0


async def trickle(wire: Wire, data: bytes) -> None:
    """Send `data` byte by byte, slowly, until the server has enough of it."""
    for byte in data:
        try:
            await wire.send(bytes([byte]))
        except ConnectionError:
            return
        await asyncio.sleep(0.1)


async def cut_off(wire: Wire, sent: bytes, slowly: bytes) -> bytes:
    """What comes back until the server ends the connection on which this is sent."""
    await wire.send(sent)
    sending = asyncio.create_task(trickle(wire, slowly))
    try:
        async with asyncio.timeout(PATIENCE):
            try:
                return await wire.reader.read()
            except ConnectionError:
                return b""
    finally:
        sending.cancel()


def half_sent(wire: Wire, how: str) -> tuple[bytes, bytes]:
    """What is sent at once, and what slowly."""
    request = wire.request(discover())
    head = request.partition(b"\r\n\r\n")[0]
    long = wire.request(discover(), {"Content-Length": "100000"}).partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    return {
        "nothing": (b"", b""),
        "a slow head": (b"", head[:1] + b"OST /mcp HTTP/1.1\r\nX: " + b"x" * 10_000),
        "a slow second head": (request, head),
        "a slow body": (head + b"\r\n\r\n", b" " * 10_000),
        "a slow long body": (long, b" " * 10_000),
        "a slow body nobody reads": (long.replace(b"application/json", b"text/plain", 1), b" " * 10_000),
        "a slow chunk": (
            wire.request(b"", {"Content-Length": None, "Transfer-Encoding": "chunked"}) + b"ffff\r\n",
            b" " * 10_000,
        ),
        "endless small chunks": (
            wire.request(b"", {"Content-Length": None, "Transfer-Encoding": "chunked"}),
            b"1\r\n \r\n" * 2_000,
        ),
    }[how]


HOW = (
    "nothing",
    "a slow head",
    "a slow second head",
    "a slow body",
    "a slow long body",
    "a slow body nobody reads",
    "a slow chunk",
    "endless small chunks",
)


@pytest.mark.parametrize("how", HOW)
async def test_slow_senders_are_cut_off_and_nobody_else_is(how: str) -> None:
    settings = HttpSettings(receive_seconds=SECONDS)
    async with (
        serving(settings, keepalive_timeout=SECONDS, lingering_time=SECONDS) as served,
        AsyncExitStack() as stack,
    ):
        stream = await stack.enter_async_context(served.connect())
        await stream.post(call("progress", {"steps": 1, "wait": True}, progress="p"))
        assert (await stream.response_head())[0] == 200
        wires = [await stack.enter_async_context(served.connect()) for _ in range(SENDERS)]
        slow = [asyncio.create_task(cut_off(wire, *half_sent(wire, how))) for wire in wires]
        while not all(one.done() for one in slow):
            async with asyncio.timeout(PATIENCE):
                assert (await served.post(discover())).status == 200
            await asyncio.sleep(0.1)
        answers = {(await one)[:12] for one in slow}
        # A body that is refused unread, or late, is told so; without a whole head there is nobody to tell
        expected = {
            "a slow second head": {b"HTTP/1.1 200"},
            "a slow body nobody reads": {b"HTTP/1.1 415"},
        }.get(how, {b"HTTP/1.1 408"} if "body" in how or "chunk" in how else {b""})
        assert answers - {b""} == expected - {b""}  # a reset may overtake the answer
        served.toy.release.set()  # the stream has outlived them all
        async with asyncio.timeout(PATIENCE):
            assert b'"result"' in b"".join([chunk async for chunk in stream.chunks()])


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Room for a few idle connections."""
    monkeypatch.setattr(connections, "MOST_IDLE", 20)
    monkeypatch.setattr(connections, "_LOOK_EVERY", 1)
    yield 20


def open_at(served: Served) -> int:
    """How many connections the server has."""
    assert served.runner.server is not None
    return len(served.runner.server.connections)


async def open_connections(served: Served, stack: AsyncExitStack, count: int) -> list[Wire]:
    return [await stack.enter_async_context(served.connect()) for _ in range(count)]


async def test_connections_without_a_head_are_bounded_and_those_idle_longest_give_way(few: int) -> None:
    async with serving() as served, AsyncExitStack() as stack:
        stream, waiting = await open_connections(served, stack, 2)
        await stream.post(call("progress", {"steps": 1, "wait": True}, progress="p"))
        await stream.response_head()
        await waiting.post(discover())
        assert (await waiting.response()).status == 200
        silent = await open_connections(served, stack, 3 * few)
        for wire in silent[: few * 2]:
            assert await wire.is_closed()
        await eventually(lambda: open_at(served) <= few + 2, "no more than are allowed")
        assert await waiting.is_closed()
        await silent[-1].post(discover())
        assert (await silent[-1].response()).status == 200
        served.toy.release.set()
        assert b'"result"' in b"".join([chunk async for chunk in stream.chunks()])  # it never was idle


async def test_connections_that_wait_for_their_next_request_are_bounded_too(few: int) -> None:
    async with serving() as served, AsyncExitStack() as stack:
        used = await open_connections(served, stack, 2 * few)
        for wire in used:
            try:
                await wire.post(discover())
                await wire.response()
            except (ConnectionError, asyncio.IncompleteReadError):
                continue  # it gave way already
        newest = (await open_connections(served, stack, 1))[0]
        await newest.post(discover())
        assert (await newest.response()).status == 200
        assert await used[0].is_closed()
        await eventually(lambda: open_at(served) <= few + 1, "no more than are allowed")


SECRET = b"s3cret" * 20


@pytest.mark.parametrize(
    "sent",
    [
        b"POST /mcp HTTP/1.1\r\nAuthorization: Bearer " + SECRET + b"\x01\r\n\r\n",
        b"POST /mcp HTTP/1.1\nHost: localhost\nX: " + SECRET + b"\n\n",
        SECRET + b"\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\n" + SECRET + b"\r\n\r\n",
        b"POST /" + SECRET * 1_000 + b" HTTP/1.1\r\n\r\n",
    ],
    ids=["header", "line ends", "no request", "no header", "too long"],
)
async def test_bytes_that_are_no_http_are_not_sent_back(served: Served, sent: bytes) -> None:
    async with served.connect() as wire:
        await wire.send(sent)
        response = await wire.response()
        assert (response.status, response.body) == (400, b"400 Bad Request\n")
        assert await wire.is_closed()
