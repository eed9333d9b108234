"""Bytes for an HTTP server: requests that are nearly right, framed in every way, one after the other or cut off."""

from __future__ import annotations

import json
import zlib
from typing import Any, Final

from hypothesis import strategies as st

from tests.fuzz.messages import MODERN
from tests.fuzz.values import odd, one_of, written

BODY: Final = json.dumps({
    "jsonrpc": "2.0",
    "id": 1,
    "method": "server/discover",
    "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "fuzz", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    },
}).encode()  # fmt: skip

_LINES: Final = (
    b"POST /mcp HTTP/1.1",
    b"POST /mcp HTTP/1.0",
    b"POST /mcp?x=%ff HTTP/1.1",
    b"GET /mcp HTTP/1.1",
    b"GET /healthz HTTP/1.1",
    b"GET /readyz HTTP/1.1",
    b"HEAD /mcp HTTP/1.1",
    b"OPTIONS /mcp HTTP/1.1",
    b"OPTIONS * HTTP/1.1",
    b"DELETE /mcp HTTP/1.1",
    b"CONNECT example.com:443 HTTP/1.1",
    b"TRACE / HTTP/1.1",
    b"PRI * HTTP/2.0",
    b"POST http://127.0.0.1/mcp HTTP/1.1",
    b"POST http://[::1/mcp HTTP/1.1",
    b"POST //mcp HTTP/1.1",
    b"POST /%2e%2e/%00 HTTP/1.1",
    b"POST /mcp HTTP/9.9",
    b"POST /mcp HTTP/1.1 x",
    b"POST  /mcp HTTP/1.1",
    b"post /mcp http/1.1",
    b"POST /\xc3\xbc HTTP/1.1",
    b"POST /\xff HTTP/1.1",
    b"POST /" + b"a" * 9_000 + b" HTTP/1.1",
    b"",
    b"\x16\x03\x01\x02\x00\x01\x00",
)
_HEADERS: Final[tuple[tuple[bytes, tuple[bytes, ...]], ...]] = (
    (
        b"Host",
        (b"127.0.0.1", b"localhost:1", b"evil.example", b"", b"a b", b"[::1]", b"[", b"127.0.0.1:99999999", b"\xff"),
    ),
    (b"Origin", (b"null", b"", b"http://localhost", b"http://[", b"http://\xff", b"http://a:b", b"x" * 9_000)),
    (b"Content-Type", (b"application/json", b"text/plain", b"application/json;charset=utf-16", b";", b"", b"\xff")),
    (b"Accept", (b"*/*", b"text/event-stream", b"application/json;q=0", b",,;q=;", b"text/html", b"\xff")),
    (b"Content-Encoding", (b"gzip", b"deflate", b"br", b"zstd", b"identity", b"gzip, gzip", b"x", b",")),
    (b"Content-Length", (b"0", b"5", b"-1", b"+5", b"5, 5", b"9" * 30, b"99999999", b"1e3", b"", b"0x5", b"\xb2")),
    (b"Transfer-Encoding", (b"chunked", b"gzip, chunked", b"chunked, chunked", b"identity", b"xchunked", b"")),
    (b"Expect", (b"100-continue", b"100-Continue", b"200-ok", b"")),
    (b"Connection", (b"close", b"keep-alive", b"upgrade", b"close, keep-alive")),
    (b"Upgrade", (b"websocket", b"h2c")),
    (b"Sec-WebSocket-Key", (b"dGhlIHNhbXBsZSBub25jZQ==",)),
    (b"MCP-Protocol-Version", (MODERN.encode(), b"2025-11-25", b"1900-01-01", b"", b"\xff", b"=?base64?!?=")),
    (b"Mcp-Method", (b"server/discover", b"tools/call", b"", b"\x01", b"\xff", b"x" * 9_000)),
    (b"Mcp-Name", (b"echo", b"=?base64?ZWNobw==?=", b"=?base64?!!?=", b"", b"\xff")),
    (b"Mcp-Param-X", (b"a", b"=?base64?!!?=", b"\xff")),
    (b"Mcp-Session-Id", (b"x", b"", b"\xff", b"A" * 9_000)),
    (b"Last-Event-ID", (b"1",)),
    (b"Authorization", (b"Bearer x", b"Basic eDp4", b"Bearer", b"\xff", b"Bearer " + b"x" * 9_000)),
    (b"Cookie", (b"a=b; c", b"=", b"\xff", b'a="\\', b"; ".join(b"a%d=b" % n for n in range(500)))),
    (b"Forwarded", (b"for=x;host=evil.example", b'for="')),
    (b"X-Forwarded-Host", (b"evil.example",)),
    (b"Range", (b"bytes=0-1",)),
    (b"If-None-Match", (b'"x', b"*")),
    (b"If-Modified-Since", (b"x", b"Mon, 99 Foo 2026 00:00:00 GMT")),
    (b"Trailer", (b"X",)),
    (b"X", (b"\x00", b"\x01", b"a\r\n b", b"a\n b", b"\x7f", b"", b"x" * 20_000)),
    (b"X y", (b"1",)),
    (b"", (b"1",)),
    (b"\xff", (b"1",)),
)
_RIGHT: Final = (
    (b"Host", b"127.0.0.1"),
    (b"Content-Type", b"application/json"),
    (b"Accept", b"application/json, text/event-stream"),
    (b"MCP-Protocol-Version", MODERN.encode()),
    (b"Mcp-Method", b"server/discover"),
)

_header: Final = one_of(_HEADERS).flatmap(lambda each: st.tuples(st.just(each[0]), one_of(each[1])))
_bodies: Final = st.one_of(
    st.just(BODY),
    st.builds(written, odd),
    st.binary(max_size=50),
    one_of((zlib.compress(b" " * 1_000_000 + BODY), BODY + b" " * 70_000)),
    st.just(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"),
)
_SIZES: Final = (b"%x", b"%X;ext=1", b"0%x", b"+%x", b"%x ", b"-%x", b"0x%x", b'%x;a="', b"ffffffffffffffff%x")
_ends: Final = st.sampled_from(
    (b"0\r\n\r\n", b"0\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"0\r\nX\r\n\r\n", b"0\r\n", b"", b"zz\r\n")
)


@st.composite
def _chunked(draw: st.DrawFn, body: bytes) -> bytes:
    size = draw(st.sampled_from((1, 7, 1_000, 70_000))) if len(body) < 2_000 else 30_000
    form = draw(st.sampled_from(_SIZES)) if draw(st.integers(0, 3)) == 0 else b"%x"
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(form % len(piece) + b"\r\n" + piece + b"\r\n" for piece in pieces) + draw(_ends)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """One request, with a few things wrong."""
    line = draw(st.one_of(st.just(_LINES[0]), st.just(_LINES[0]), one_of(_LINES), st.binary(max_size=20)))
    headers = [header for header in _RIGHT if draw(st.integers(0, 9))]
    body = draw(_bodies)
    match draw(st.sampled_from(("length", "length", "chunked", "chunked", "none"))):
        case "length":
            headers.append((b"Content-Length", b"%d" % (len(body) + draw(st.sampled_from((0, 0, 0, 0, -1, 1, 1_000))))))
        case "chunked":
            headers.append((b"Transfer-Encoding", b"chunked"))
            body = draw(_chunked(body))
        case _:
            pass
    headers += draw(st.lists(_header, max_size=3))
    if draw(st.integers(0, 30)) == 0:
        headers += [(b"X-%d" % number, b"x" * 100) for number in range(draw(st.sampled_from((100, 300, 5_000))))]
    headers = draw(st.permutations(headers)) if len(headers) < 12 else headers
    end = draw(st.sampled_from((b"\r\n", b"\r\n", b"\r\n", b"\n")))
    head = end.join([line, *(name + b": " + value for name, value in headers)])
    return head + end + end + body


@st.composite
def connections(draw: st.DrawFn) -> dict[str, Any]:
    """What is sent over one connection, in how many pieces."""
    sent = b"".join(draw(st.lists(requests(), min_size=1, max_size=3)))
    cut = draw(st.one_of(st.none(), st.integers(0, 2_000)))
    return {"sent": sent if cut is None else sent[:cut], "pieces": draw(st.sampled_from((1, 1, 2, 5)))}
