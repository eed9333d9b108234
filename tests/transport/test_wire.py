"""Framing on raw sockets: limits, early refusals on connections that live on, odd and old clients."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator

import pytest

from bridge.auth import static_bearer
from bridge.http import HttpSettings
from tests.transport.toy import Served, Wire, call, discover, serving

LIMIT = 1024 * 1024
GOOD: dict[str, str | None] = {"Authorization": "Bearer s3cret"}


@pytest.fixture
async def guarded() -> AsyncIterator[Served]:
    """A server with a token and a body limit of 1 MiB."""
    async with serving(HttpSettings(max_body_bytes=LIMIT), static_bearer("s3cret"), lingering_time=1.0) as running:
        yield running


def chunked(body: bytes, size: int, trailer: bytes = b"") -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n" + trailer + b"\r\n"


def chunked_request(
    wire: Wire, body: bytes, headers: dict[str, str | None], size: int = 65_536, trailer: bytes = b""
) -> bytes:
    head = wire.request(b"", headers | {"Content-Length": None, "Transfer-Encoding": "chunked"})
    return head + chunked(body, size, trailer)


async def answered_or_closed(wire: Wire) -> int | None:
    """The status of the next response, or None if the server closed the connection instead."""
    try:
        return (await wire.response()).status
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


SMUGGLED = json.dumps(call("echo")).encode()
HALF_MEGABYTE = (b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n" + SMUGGLED) * 2000

REFUSALS: list[tuple[str, dict[str, str | None], int]] = [
    ("/mcp", {"Authorization": None}, 401),
    ("/mcp", {"Origin": "http://evil.example"}, 403),
    ("/mcp", {"Content-Type": "text/plain"}, 415),
    ("/mcp", {"Content-Encoding": "gzip"}, 415),
    ("/mcp", {"Accept": "text/html"}, 406),
    ("/other", {}, 404),
    ("/mcp", {"Mcp-Name": "wrong"}, 400),
]


@pytest.mark.parametrize("framing", ["length", "chunked", "trailers"])
@pytest.mark.parametrize("pipelined", [True, False])
@pytest.mark.parametrize(
    ("path", "headers", "status"), REFUSALS, ids=lambda value: str(value) if isinstance(value, int) else ""
)
async def test_a_refused_body_is_never_taken_for_the_next_request(
    guarded: Served, path: str, headers: dict[str, str | None], status: int, framing: str, pipelined: bool
) -> None:
    async with guarded.connect() as wire:
        body = HALF_MEGABYTE[: 500 * 1024]
        if framing == "length":
            first = wire.request(body, GOOD | headers)
        else:
            trailer = b"X-Trailer: POST /mcp HTTP/1.1\r\n" if framing == "trailers" else b""
            first = chunked_request(wire, body, GOOD | headers, trailer=trailer)
        first = first.replace(b"POST /mcp", b"POST " + path.encode(), 1)
        second = wire.request(discover(), GOOD)
        wire.writer.write(first + second if pipelined else first)
        assert (await wire.response()).status == status
        if not pipelined:
            wire.writer.write(second)
        assert await answered_or_closed(wire) in {200, None}
    assert guarded.toy.started == []


@pytest.mark.parametrize("size", [LIMIT - 100, LIMIT, LIMIT + 1, 2 * LIMIT, 5 * LIMIT])
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a_body_above_the_limit_is_refused_by_name_however_it_is_framed(
    guarded: Served, size: int, framing: str
) -> None:
    message = call("echo", {"x": ""})
    message["params"]["arguments"]["x"] = "x" * (size - len(json.dumps(message)))
    body = json.dumps(message).encode()
    assert len(body) == size
    headers: dict[str, str | None] = {**GOOD, "Mcp-Method": "tools/call", "Mcp-Name": "echo"}
    async with guarded.connect() as wire:
        wire.writer.write(wire.request(body, headers) if framing == "length" else chunked_request(wire, body, headers))
        response = await wire.response()
        if size <= LIMIT:
            assert response.status == 200
        else:
            assert response.error == (413, -32600, "absent")
            assert str(LIMIT) in response.json["error"]["message"]
        wire.writer.write(wire.request(discover(), GOOD))
        assert await answered_or_closed(wire) in ({200} if size <= LIMIT else {200, None})


@pytest.mark.parametrize(
    "framing",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 5 5",
        "Content-Length : 5",
        "Transfer-Encoding: gzip, chunked\r\nContent-Length: 5",
        "Transfer-Encoding: identity",
    ],
)
async def test_ambiguous_framing_is_refused_and_the_connection_closed(served: Served, framing: str) -> None:
    async with served.connect() as wire:
        head = wire.request(b"", {"Content-Length": None}).removesuffix(b"\r\n\r\n")
        await wire.send(head + b"\r\n" + framing.encode() + b"\r\n\r\n" + b"0\r\n\r\n" + wire.request(call("echo")))
        assert (await wire.response()).status == 400
        assert await wire.is_closed()
    assert served.toy.started == []


async def test_broken_chunks_are_refused_and_the_connection_closed(served: Served) -> None:
    async with served.connect() as wire:
        head = wire.request(b"", {"Content-Length": None, "Transfer-Encoding": "chunked"})
        await wire.send(head + b"5\r\nhello\r\nzz\r\n" + wire.request(call("echo")))
        assert (await wire.response()).status == 400
        assert await wire.is_closed()
    assert served.toy.started == []


async def test_a_body_in_chunks_of_one_byte_is_read(served: Served) -> None:
    async with served.connect() as wire:
        await wire.send(chunked_request(wire, json.dumps(discover()).encode(), {}, size=1))
        assert (await wire.response()).status == 200
        await wire.post(discover())
        assert (await wire.response()).status == 200


async def test_a_body_that_arrives_byte_by_byte_is_read(served: Served) -> None:
    async with served.connect() as wire:
        for byte in wire.request(discover()):
            await wire.send(bytes([byte]))
            await asyncio.sleep(0)
        assert (await wire.response()).status == 200


async def test_pipelined_requests_are_answered_in_order(served: Served) -> None:
    async with served.connect() as wire:
        await wire.send(b"".join(wire.request(discover(id=number)) for number in range(3)))
        assert [(await wire.response()).json["id"] for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("literal", ["1" * 5000, "NaN", "{" * 1000])
async def test_a_bad_body_leaves_the_connection_usable(served: Served, literal: str) -> None:
    async with served.connect() as wire:
        await wire.post(b'{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"x":%b}}' % literal.encode())
        assert (await wire.response()).error == (400, -32700, "absent")
        await wire.post(discover())
        assert (await wire.response()).status == 200


async def test_http_1_0_gets_an_unchunked_answer_and_is_closed(served: Served) -> None:
    for headers in ({}, {"Host": None}):
        async with served.connect() as wire:
            await wire.send(wire.request(discover(), headers, line="POST /mcp HTTP/1.0"))
            response = await wire.response()
            assert response.status == 200
            assert "transfer-encoding" not in response.headers
            assert await wire.is_closed()


async def test_http_1_0_may_ask_for_keep_alive(served: Served) -> None:
    async with served.connect() as wire:
        for _ in range(2):
            await wire.send(wire.request(discover(), {"Connection": "keep-alive"}, line="POST /mcp HTTP/1.0"))
            assert (await wire.response()).status == 200


async def test_a_stream_on_http_1_0_ends_with_the_connection(served: Served) -> None:
    async with served.connect() as wire:
        await wire.send(wire.request(call("progress", {"steps": 3}, progress=1), line="POST /mcp HTTP/1.0"))
        response = await wire.response()
        assert "transfer-encoding" not in response.headers
        assert [event.get("method", "response") for event in response.events][2:] == [
            "notifications/progress",
            "response",
        ]


@pytest.mark.parametrize(("size", "statuses"), [(7_000, {200}), (70_000, {400, 431})])
async def test_a_long_header_is_read_or_refused(served: Served, size: int, statuses: set[int]) -> None:
    assert (await served.post(discover(), {"X-Long": "x" * size})).status in statuses


async def test_too_many_headers_are_refused(served: Served) -> None:
    assert (await served.post(discover(), {f"X-{number}": "x" for number in range(200)})).status in {400, 431}


async def test_a_control_character_in_a_header_is_refused(served: Served) -> None:
    assert (await served.post(discover(), {"Mcp-Method": "server/\x01discover"})).status == 400


async def test_a_client_that_breaks_http_leaves_one_line_in_the_log_without_its_headers(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    await served.post(discover(), {"Authorization": "Bearer secret\x01"})
    await served.post(discover(), {"Authorization": "Bearer secret" * 9_000})
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO] == [
        "http.malformed kind=BadHttpMessage",
        "http.malformed kind=LineTooLong",
    ]
    assert "secret" not in caplog.text


async def test_an_unknown_method_is_refused(served: Served) -> None:
    async with served.connect() as wire:
        await wire.send(wire.head({}, "FOO /mcp HTTP/1.1"))
        assert (await wire.response()).status in {400, 405, 501}


EXPECT: dict[str, str | None] = {"Expect": "100-continue"}


async def test_a_body_that_waits_for_leave_is_given_it(guarded: Served) -> None:
    async with guarded.connect() as wire:
        for _ in range(2):
            head, _, body = wire.request(discover(), GOOD | EXPECT).partition(b"\r\n\r\n")
            await wire.send(head + b"\r\n\r\n")
            assert (await wire.response_head())[0] == 100
            await wire.send(body)
            assert (await wire.response()).status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": None}, 401),
        ({"Origin": "null"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Length": str(LIMIT + 1)}, 413),
        ({"Expect": "foo"}, 417),
    ],
)
async def test_a_refused_body_is_not_asked_for(guarded: Served, headers: dict[str, str | None], status: int) -> None:
    async with guarded.connect() as wire:
        head, _, _ = wire.request(discover(), GOOD | EXPECT | headers).partition(b"\r\n\r\n")
        await wire.send(head + b"\r\n\r\n")
        assert (await wire.response()).status == status
        assert await wire.is_closed()


async def test_bad_json_after_leave_was_given_gets_its_error(served: Served) -> None:
    async with served.connect() as wire:
        head, _, body = wire.request(b"{", EXPECT).partition(b"\r\n\r\n")
        await wire.send(head + b"\r\n\r\n")
        assert (await wire.response_head())[0] == 100
        await wire.send(body)
        assert (await wire.response()).status == 400


async def test_the_limit_holds_for_a_body_that_came_with_its_headers() -> None:
    async with serving(HttpSettings(max_body_bytes=9)) as served, served.connect() as wire:
        chunked: dict[str, str | None] = {"Content-Length": None, "Transfer-Encoding": "chunked"}
        await wire.send(wire.request(b"a\r\n0123456789\r\n0\r\n\r\n", chunked))
        assert (await wire.response()).error == (413, -32600, "absent")


async def test_a_body_that_came_with_its_headers_needs_no_leave(served: Served) -> None:
    async with served.connect() as wire:
        await wire.post(discover(), EXPECT)
        assert (await wire.response_head())[0] == 200


async def test_a_body_that_does_not_arrive_in_time_is_given_up() -> None:
    async with serving(HttpSettings(receive_seconds=0.2), lingering_time=0.1) as served, served.connect() as wire:
        await wire.send(wire.request(discover())[:-5])
        assert (await wire.response()).error == (408, -32600, "absent")
        assert await wire.is_closed()


async def test_headers_that_do_not_arrive_in_time_are_given_up() -> None:
    async with serving(keepalive_timeout=0.3) as served, served.connect() as wire:
        await wire.send(b"POST /mcp HTTP/1.1\r\nHost: local")
        assert await wire.is_closed()
