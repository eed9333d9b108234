"""The load generator for MCP servers: prebuilt bytes over keep-alive connections, one per client.

A client library would cost as much as the server that it measures. Here a request is one write and an answer two reads;
JSON is only read where a cycle needs it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self
from urllib.parse import urlsplit

from tests.bench.sessions import ANSWER, BenchError, Poll

_META: Final = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {
        "elicitation": {"form": {}},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    },
}
_ID: Final = "########"

ARGUMENTS: Final[Mapping[str, Any]] = {"change": "release 4.2"}

_ids = itertools.count(1)

Prepared = tuple[bytes, bytes]
"""A request's bytes before and after its id, which takes eight digits."""


class McpServer:
    """An MCP server, and the requests to it that are prepared, for all its clients."""

    def __init__(self, url: str) -> None:
        self.address: Final = urlsplit(url)
        self._reads: dict[str, Prepared] = {}

    def read(self, task_id: str) -> Prepared:
        """tasks/get of this task."""
        if task_id not in self._reads:
            self._reads[task_id] = self.request("tasks/get", {"taskId": task_id}, task_id)
        return self._reads[task_id]

    def request(self, method: str, params: Mapping[str, Any], name: str = "") -> Prepared:
        """Any request; `name` is what its `Mcp-Name` header says, if it has one."""
        document = {"jsonrpc": "2.0", "id": _ID, "method": method, "params": {**params, "_meta": _META}}
        body = json.dumps(document, separators=(",", ":")).encode()
        headers = (
            f"POST {self.address.path} HTTP/1.1\r\nHost: {self.address.netloc}\r\n"
            f"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
            f"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n"
            + (f"Mcp-Name: {name}\r\n" if name else "")
            + f"Content-Length: {len(body)}\r\n\r\n"
        )
        head, _, tail = (headers.encode() + body).partition(_ID.encode())
        return head, tail


class _Connection:
    def __init__(self, server: McpServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, server: McpServer) -> Self:
        """A new connection to this server."""
        reader, writer = await asyncio.open_connection(server.address.hostname, server.address.port)
        return cls(server, reader, writer)

    async def close(self) -> None:
        """Close it, in whatever state it is."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            return

    def _send(self, prepared: Prepared) -> None:
        head, tail = prepared
        self._writer.write(head + b"%08d" % (next(_ids) % 100_000_000) + tail)


class McpSession(_Connection):
    """One client of one MCP server; `tool` is what it calls, with `ARGUMENTS`."""

    tool = "approve"

    async def create(self) -> str:
        """Call the tool; returns the id of the task."""
        params = {"name": self.tool, "arguments": ARGUMENTS}
        return str((await self._result("tools/call", params, self.tool))["taskId"])

    async def poll(self, task_id: str) -> Poll:
        """tasks/get."""
        task = await self.get(task_id)
        return Poll(task["status"], next(iter(task.get("inputRequests", {})), None))

    async def get(self, task_id: str) -> dict[str, Any]:
        """tasks/get, the whole result."""
        return await self._result("tasks/get", {"taskId": task_id}, task_id)

    async def answer(self, task_id: str, key: str) -> None:
        """tasks/update."""
        await self._result("tasks/update", {"taskId": task_id, "inputResponses": {key: ANSWER}}, task_id)

    async def read(self, task_id: str) -> None:
        """tasks/get with everything prepared, for reads whose answer is known; raises BenchError for an error."""
        body = await self._exchange(self._server.read(task_id))
        if b'"status":' not in body:
            raise BenchError(body.decode(errors="replace"))

    async def _result(self, method: str, params: Mapping[str, Any], name: str) -> dict[str, Any]:
        message = json.loads(await self._exchange(self._server.request(method, params, name)))
        if "result" not in message:
            raise BenchError(f"{method}: {message}")
        result: dict[str, Any] = message["result"]
        return result

    async def _exchange(self, request: Prepared) -> bytes:
        self._send(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        start = head.find(b"content-length:")
        if start < 0:
            raise BenchError("an answer without Content-Length, which this generator does not read")
        return await self._reader.readexactly(int(head[start + 15 : head.index(b"\r", start)]))


class McpStream(_Connection):
    """One subscriptions/listen."""

    def __init__(self, server: McpServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(server, reader, writer)
        self._unread = b""

    async def listen(self, task_ids: Sequence[str]) -> None:
        """Open it; returns once all of these tasks are acknowledged."""
        self._send(self._server.request("subscriptions/listen", {"notifications": {"taskIds": list(task_ids)}}))
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        if b"transfer-encoding: chunked" not in head or b"text/event-stream" not in head:
            raise BenchError(f"no stream: {head.decode(errors='replace')}")
        honoured = (await self._message())["params"]["notifications"].get("taskIds", [])
        if len(honoured) != len(task_ids):
            raise BenchError(f"{len(honoured)} of {len(task_ids)} tasks are subscribed to")

    async def task(self) -> dict[str, Any]:
        """The next task that is told."""
        while True:
            message = await self._message()
            if message.get("method") == "notifications/tasks":
                params: dict[str, Any] = message["params"]
                return params

    async def _message(self) -> dict[str, Any]:
        while True:
            while (end := self._unread.find(b"\n\n")) < 0:
                size = int(await self._reader.readuntil(b"\r\n"), 16)
                if not size:
                    raise BenchError("the stream ended")
                self._unread += (await self._reader.readexactly(size + 2))[:-2]
            event, self._unread = self._unread[:end], self._unread[end + 2 :]
            start = event.find(b"data: ")
            if start >= 0:  # else a comment that keeps the connection alive
                message: dict[str, Any] = json.loads(event[start + 6 :])
                return message
