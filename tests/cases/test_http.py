"""HTTP at its edges (TR), where it could start, answer or cancel something: what is refused has no effect.

Framing, statuses and limits are tested against the transport alone; here the bodies are calls with side effects and
requests about live tasks, and behind the endpoint is the whole bridge.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from tests.cases.client import McpClient, accept
from tests.cases.stack import Process, Stack
from tests.support import unique
from tests.transport.toy import Response, Wire

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOKEN: Final = "a-token-of-the-cases"
AUTHORIZED: Final = {"Authorization": f"Bearer {TOKEN}"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def guarded(stack: Stack, worker: Process) -> Process:
    """A bridge that wants a token."""
    return await stack.bridge(MCP_TASKS_BEARER_TOKEN=TOKEN)


@pytest_asyncio.fixture(loop_scope="session")
async def known(guarded: Process) -> AsyncIterator[McpClient]:
    """A client of that bridge with the token."""
    async with McpClient(guarded.url, token=TOKEN) as client:
        yield client


@asynccontextmanager
async def connected(client: McpClient) -> AsyncIterator[Wire]:
    """A connection to the client's bridge."""
    authority = urlsplit(client.url).netloc
    host, port = authority.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Wire(reader, writer, authority)
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


def parts(client: McpClient, method: str, params: dict[str, Any]) -> tuple[bytes, dict[str, str | None]]:
    """Body and headers of a request, for a raw connection."""
    return json.dumps(client.body(method, params)).encode(), dict(client.headers(method, params))


def slow(label: str) -> dict[str, Any]:
    """Params of a call with one side effect."""
    return {"name": "slow", "arguments": {"seconds": 0, "label": label}}


def chunked(body: bytes, size: int, trailer: bytes = b"") -> bytes:
    """`body` in chunks."""
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n" + trailer + b"\r\n"


async def next_response(wire: Wire) -> Response | None:
    """The next response, or None if the connection was closed instead."""
    try:
        return await wire.response()
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


# Methods and paths


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "PUT", "PATCH", "OPTIONS", "TRACE", "FOO"])
async def test_a_call_in_another_http_method_does_nothing(client: McpClient, method: str) -> None:
    label = unique("method")
    body, headers = parts(client, "tools/call", slow(label))
    async with connected(client) as wire:
        await wire.send(wire.request(body, headers, f"{method} /mcp HTTP/1.1"))
        async with asyncio.timeout(5):
            status, received = await wire.response_head()
    assert status == 405 and "POST" in received["allow"] if method != "FOO" else status in {400, 405, 501}
    assert await client.count(label) == 0


@pytest.mark.parametrize("path", ["/", "/mcp/", "//mcp", "/MCP", "/mcp%2F", "/mcpx", "/mcp/x", "/healthz", "/mcp/../x"])
@pytest.mark.parametrize("token", [True, False], ids=["token", "no token"])
async def test_a_call_at_another_path_does_nothing_and_is_not_redirected(
    known: McpClient, path: str, token: bool
) -> None:
    label = unique("path")
    body, headers = parts(known, "tools/call", slow(label))
    headers |= {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example"}
    if not token:
        headers["Authorization"] = None
    async with connected(known) as wire:
        await wire.send(wire.request(body, headers, f"POST {path} HTTP/1.1"))
        response = await wire.response()
    assert response.status in {404, 405} and "location" not in response.headers
    assert await known.count(label) == 0


@pytest.mark.parametrize("path", ["/mcp", "/mcp?x=1", "/mcp?access_token=" + TOKEN])
async def test_the_endpoint_is_served_with_the_token_and_challenges_without(known: McpClient, path: str) -> None:
    label = unique("challenge")
    body, headers = parts(known, "tools/call", slow(label))
    headers["X-Forwarded-Proto"] = "https"
    async with connected(known) as wire:
        await wire.send(wire.request(body, headers | {"Authorization": None}, f"POST {path} HTTP/1.1"))
        refused = await wire.response()
    assert refused.status == 401 and refused.headers["www-authenticate"].startswith("Bearer")
    assert await known.count(label) == 0
    async with connected(known) as wire:
        await wire.send(wire.request(body, headers, f"POST {path} HTTP/1.1"))
        served = await wire.response()
    assert served.status == 200
    await known.finished(served.json["result"]["taskId"])
    assert await known.count(label) == 1


async def test_ids_of_sessions_and_events_mean_nothing_to_a_task(client: McpClient) -> None:
    task_id = await client.start("ask", {"n": 1})
    (key,) = await client.parked(task_id)
    for method, params in [("tasks/get", {}), ("tasks/update", {"inputResponses": {key: accept(text="yes")}})]:
        body, headers = parts(client, method, {"taskId": task_id, **params})
        async with connected(client) as wire:
            await wire.send(wire.request(body, headers | {"Mcp-Session-Id": "x", "Last-Event-ID": "5"}))
            response = await wire.response()
        assert response.status == 200
        assert not {"mcp-session-id", "last-event-id"} & response.headers.keys()
        assert b"Last-Event" not in response.body and b"id:" not in response.body
    assert (await client.finished(task_id))["status"] == "completed"


# Refusals on connections that live on

REFUSALS: Final[list[tuple[str, str, dict[str, str | None], int]]] = [
    ("no token", "/mcp", {"Authorization": None}, 401),
    ("another token", "/mcp", {"Authorization": "Bearer nope"}, 401),
    ("origin", "/mcp", {"Origin": "http://evil.example"}, 403),
    ("content type", "/mcp", {"Content-Type": "text/plain"}, 415),
    ("coding", "/mcp", {"Content-Encoding": "gzip"}, 415),
    ("accept", "/mcp", {"Accept": "text/html"}, 406),
    ("path", "/other", {}, 404),
    ("name", "/mcp", {"Mcp-Name": "wrong"}, 400),
    ("version", "/mcp", {"MCP-Protocol-Version": "1900-01-01"}, 400),
]


@pytest.mark.parametrize("framing", ["length", "chunked", "trailers"])
@pytest.mark.parametrize(
    ("path", "changed", "status"), [refusal[1:] for refusal in REFUSALS], ids=[refusal[0] for refusal in REFUSALS]
)
async def test_a_refused_call_is_not_executed_nor_is_what_its_body_looks_like(
    known: McpClient, path: str, changed: dict[str, str | None], status: int, framing: str
) -> None:
    label = unique("smuggled")
    body, headers = parts(known, "tools/call", slow(label))
    discover, good = parts(known, "server/discover", {})
    async with connected(known) as wire:
        inner = wire.request(body, headers)
        padded = json.dumps({"padding": "x" * 500_000}).encode() if status != 400 else b""
        whole = body + b"\r\n" * 4 + (inner * 20 + padded if status != 400 else b"")
        sent = headers | changed
        if framing == "length":
            first = wire.request(whole, sent)
        else:
            trailer = b"X-Trailer: POST /mcp HTTP/1.1\r\n" if framing == "trailers" else b""
            first = wire.request(b"", sent | {"Content-Length": None, "Transfer-Encoding": "chunked"})
            first += chunked(whole, 65_536, trailer)
        wire.writer.write(first.replace(b"POST /mcp", b"POST " + path.encode(), 1) + wire.request(discover, good))
        refused = await next_response(wire)
        assert refused is not None and refused.status == status
        following = await next_response(wire)
        assert following is None or (following.status, "result" in following.json) == (200, True)
    assert await known.count(label) == 0


@pytest.mark.parametrize(
    "framing",
    [
        "Content-Length: {length}\r\nTransfer-Encoding: chunked",
        "Content-Length: {length}\r\nContent-Length: 5",
        "Content-Length: +{length}",
        "Content-Length : {length}",
    ],
)
async def test_a_call_whose_end_is_ambiguous_is_not_executed(client: McpClient, framing: str) -> None:
    label = unique("ambiguous")
    body, headers = parts(client, "tools/call", slow(label))
    async with connected(client) as wire:
        head = wire.request(b"", headers | {"Content-Length": None}).removesuffix(b"\r\n\r\n")
        await wire.send(head + b"\r\n" + framing.format(length=len(body)).encode() + b"\r\n\r\n" + body)
        response = await wire.response()
        assert response.status == 400
        assert await wire.is_closed()
    assert await client.count(label) == 0
    await client.alive()


# Expect: 100-continue


async def test_a_large_call_that_waits_for_leave_is_given_it_and_served(known: McpClient) -> None:
    body, headers = parts(known, "tools/call", {"name": "echo_task", "arguments": {"x": "x" * 1_200_000}})
    async with connected(known) as wire:
        request = wire.request(body, headers | {"Expect": "100-continue"})
        await wire.send(request.removesuffix(body))
        assert (await wire.response_head())[0] == 100
        await wire.send(body)
        response = await wire.response()
    assert response.json["result"]["resultType"] == "task"


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"Authorization": None}, 401),
        ({"Expect": "foo"}, 417),
        ({"Content-Length": "20000000"}, 413),
        ({"Content-Type": "text/plain"}, 415),
    ],
)
async def test_a_refused_call_is_not_given_leave_and_does_nothing(
    known: McpClient, changed: dict[str, str | None], status: int
) -> None:
    label = unique("leave")
    body, headers = parts(known, "tools/call", slow(label))
    async with connected(known) as wire:
        await wire.send(wire.request(body, headers | {"Expect": "100-continue"} | changed).removesuffix(body))
        assert (await wire.response_head())[0] == status
    assert await known.count(label) == 0


async def test_bad_json_after_leave_is_a_parse_error(known: McpClient) -> None:
    _, headers = parts(known, "tools/call", slow(""))
    async with connected(known) as wire:
        await wire.send(wire.request(b"{", headers | {"Expect": "100-continue"}).removesuffix(b"{"))
        assert (await wire.response_head())[0] == 100
        await wire.send(b"{")
        assert (await wire.response()).error == (400, -32700, "absent")


# Old and odd clients


@pytest.mark.parametrize("host", [True, False], ids=["host", "no host"])
@pytest.mark.parametrize("keep", [True, False], ids=["keep-alive", "close"])
async def test_http_1_0_is_answered_unchunked(client: McpClient, host: bool, keep: bool) -> None:
    body, headers = parts(client, "tools/call", {"name": "echo", "arguments": {"x": 1}})
    if not host:
        headers["Host"] = None
    if keep:
        headers["Connection"] = "keep-alive"
    async with connected(client) as wire:
        await wire.send(wire.request(body, headers, "POST /mcp HTTP/1.0"))
        response = await wire.response()
        assert response.json["result"]["structuredContent"] == {"x": 1}
        assert "transfer-encoding" not in response.headers
        assert keep or await wire.is_closed()


async def test_progress_on_http_1_0_streams_until_the_connection_closes(client: McpClient) -> None:
    message = client.body(
        "tools/call",
        {"name": "slow", "arguments": {"seconds": 1.3}},
        capabilities={},
        meta={"progressToken": 1},
    )
    headers: dict[str, str | None] = dict(client.headers("tools/call", message["params"]))
    async with connected(client) as wire:
        await wire.send(wire.request(json.dumps(message).encode(), headers, "POST /mcp HTTP/1.0"))
        response = await wire.response()
    assert "transfer-encoding" not in response.headers
    assert response.events[-1]["result"]["structuredContent"] == {"steps": 1} and len(response.events) > 1


async def test_a_call_in_chunks_of_one_byte_is_executed_once(client: McpClient) -> None:
    label = unique("bytes")
    body, headers = parts(client, "tools/call", slow(label))
    async with connected(client) as wire:
        head = wire.request(b"", headers | {"Content-Length": None, "Transfer-Encoding": "chunked"})
        await wire.send(head + chunked(body, 1))
        task_id = (await wire.response()).json["result"]["taskId"]
    await client.finished(task_id)
    assert await client.count(label) == 1


async def test_pipelined_calls_are_answered_in_order(client: McpClient) -> None:
    async with connected(client) as wire:
        for seconds, x in ((0.3, 1), (0, 2), (0.1, 3)):
            params = {"name": "slow", "arguments": {"seconds": seconds, "steps": x}}
            message = client.body("tools/call", params, capabilities={})
            wire.writer.write(wire.request(json.dumps(message).encode(), dict(client.headers("tools/call", params))))
        steps = [(await wire.response()).json["result"]["structuredContent"]["steps"] for _ in range(3)]
    assert steps == [1, 2, 3]


@pytest.mark.parametrize(
    ("headers", "statuses"),
    [
        ({"X-Long": "x" * 7_000}, {200}),
        ({"X-Long": "x" * 70_000}, {400, 431}),
        ({f"X-{number}": "x" for number in range(200)}, {200, 400, 431}),
        ({"Mcp-Name": "x" * 70_000}, {400, 431}),
    ],
    ids=["7 KB", "70 KB", "200", "name"],
)
async def test_odd_headers_are_read_or_refused_and_a_refused_update_answers_nothing(
    client: McpClient, headers: dict[str, str | None], statuses: set[int]
) -> None:
    task_id = await client.start("ask", {"n": 1})
    (key,) = await client.parked(task_id)
    params = {"taskId": task_id, "inputResponses": {key: accept(text="yes")}}
    body, own = parts(client, "tasks/update", params)
    async with connected(client) as wire:
        await wire.send(wire.request(body, own | headers))
        response = await wire.response()
    assert response.status in statuses
    if response.status == 200:
        assert (await client.finished(task_id))["status"] == "completed"
    else:
        assert (await client.parked(task_id)).keys() == {key}
    await client.alive()
