"""Requests over plain sockets, for cases about what happens to the connection itself."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tests.cases.client import McpClient
from tests.support import eventually

ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
EVENT: Final = b"event: message\ndata: "


def request_bytes(client: McpClient, method: str, params: Mapping[str, Any], **changes: Any) -> bytes:
    """A whole request as it goes over the wire; see `McpClient.body` for `changes`."""
    body = json.dumps(client.body(method, params, **changes)).encode()
    where = urlsplit(client.url)
    headers = {**client.headers(method, params), "Host": where.netloc, "Content-Length": str(len(body))}
    head = f"POST {where.path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return head.encode() + b"\r\n" + body


def listen_bytes(client: McpClient, task_ids: Sequence[str], **changes: Any) -> bytes:
    """subscriptions/listen to these tasks, as it goes over the wire."""
    return request_bytes(client, "subscriptions/listen", {"notifications": {"taskIds": list(task_ids)}}, **changes)


def reset(writer: asyncio.StreamWriter) -> None:
    """Leave as a killed client does: with a RST."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class RawStream:
    """A response that is read as it comes, each chunk with the time of its arrival."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.status = 0
        self.headers: dict[str, str] = {}
        self.head_at = 0.0
        self.arrivals: list[float] = []
        self.messages: list[dict[str, Any]] = []
        self.comments = 0
        self.unknown: list[bytes] = []
        self.clean_end = False
        self._reader = reader
        self._rest = b""
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        """Until the end of the response, clean or not."""
        try:
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            self.head_at = asyncio.get_running_loop().time()
            self.status = int(head[0].split(" ")[1])
            pairs = (line.partition(":") for line in head[1:] if line)
            self.headers = {name.lower(): value.strip() for name, _, value in pairs}
            while size := int(await self._reader.readuntil(b"\r\n"), 16):
                self._take((await self._reader.readexactly(size + 2))[:-2])
            self.clean_end = await self._reader.readexactly(2) == b"\r\n"
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    def _take(self, chunk: bytes) -> None:
        """Sort what has come whole: messages, comments, and what should not be there."""
        self.arrivals.append(asyncio.get_running_loop().time())
        *frames, self._rest = (self._rest + chunk).split(b"\n\n")
        for frame in frames:
            if frame == b":":
                self.comments += 1
            elif frame.startswith(EVENT):
                self.messages.append(json.loads(frame.removeprefix(EVENT)))
            else:
                self.unknown.append(frame)

    def told(self, task_id: str, status: str) -> bool:
        """Whether this was told of the task."""
        return any(
            message["params"]["taskId"] == task_id and message["params"]["status"] == status
            for message in self.messages
            if message.get("method") == "notifications/tasks"
        )

    async def acknowledged(self, *, within: float = 20.0) -> dict[str, Any]:
        """What the acknowledgement honours; it is the first message."""

        async def first() -> dict[str, Any] | None:
            return next(iter(self.messages), None)

        message = await eventually(first, what="the acknowledgement", within=within)
        assert message["method"] == ACKNOWLEDGED
        return dict(message["params"]["notifications"])

    async def tells(self, task_id: str, status: str, *, within: float = 30.0) -> None:
        """Fail unless this is told of the task in time."""

        async def found() -> bool:
            return self.told(task_id, status)

        await eventually(found, what=f"{task_id} {status}", within=within)


@asynccontextmanager
async def raw_stream(host: str, port: int, request: bytes) -> AsyncIterator[RawStream]:
    """Send a request on a connection of its own, and read its response within the context.

    Fails if there is anything on the stream but whole events and comments.
    """
    reader, writer = await asyncio.open_connection(host, port, limit=16 * 1024 * 1024)
    writer.write(request)
    await writer.drain()
    stream = RawStream(reader, writer)
    try:
        yield stream
    finally:
        stream.reading.cancel()
        writer.transport.abort()
    assert stream.unknown == []


def address(client: McpClient) -> tuple[str, int]:
    """Where its bridge listens."""
    where = urlsplit(client.url)
    assert where.hostname
    assert where.port
    return where.hostname, where.port


@contextmanager
def never_reading(client: McpClient, task_ids: Sequence[str]) -> Iterator[socket.socket]:
    """A subscription whose client does not read a byte, with little room for what it does not read."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.connect(address(client))
        listener.sendall(listen_bytes(client, task_ids))
        yield listener


def is_stalled(listener: socket.socket) -> bool:
    """Whether there is more for it than its connection takes: the kernel holds a megabyte that it cannot send on."""
    here, there = (f"{sock[1]:04X}" for sock in (listener.getsockname(), listener.getpeername()))
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        if (local.split(":")[1], remote.split(":")[1]) == (there, here):
            return int(queues.split(":")[0], 16) > 1_000_000
    return False
