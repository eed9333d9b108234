"""The load generator for both MCP servers: prebuilt bytes over keep-alive connections, one per client.

A client library would cost as much as the server that it measures. Here a request is one write and an answer two reads;
JSON is only read where a cycle needs it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Mapping
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

_ids = itertools.count(1)


class McpSession:
    """One client of one MCP server."""

    def __init__(self, url: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tool: str) -> None:
        self._address = urlsplit(url)
        self._reader = reader
        self._writer = writer
        self._tool = tool
        self._polls: dict[str, tuple[bytes, bytes]] = {}

    @classmethod
    async def open(cls, url: str, tool: str = "approve") -> Self:
        """Connect to `url`; `tool` is what `create` calls."""
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        return cls(url, reader, writer, tool)

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        await self._writer.wait_closed()

    async def create(self) -> str:
        """Call the tool; returns the id of the task."""
        params = {"name": self._tool, "arguments": {"change": "release 4.2"}}
        result = await self._request("tools/call", params, self._tool)
        return str(result["taskId"])

    async def poll(self, task_id: str) -> Poll:
        """tasks/get."""
        task = await self._request("tasks/get", {"taskId": task_id}, task_id)
        return Poll(task["status"], next(iter(task.get("inputRequests", {})), None))

    async def answer(self, task_id: str, key: str) -> None:
        """tasks/update."""
        await self._request("tasks/update", {"taskId": task_id, "inputResponses": {key: ANSWER}}, task_id)

    async def poll_blindly(self, task_id: str) -> None:
        """tasks/get with everything prepared, for reads whose answer is known; raises BenchError for an error."""
        if task_id not in self._polls:
            self._polls[task_id] = self._prepared("tasks/get", {"taskId": task_id}, task_id)
        head, tail = self._polls[task_id]
        body = await self._exchange(head + b"%08d" % (next(_ids) % 100_000_000) + tail)
        if b'"status":' not in body:
            raise BenchError(body.decode(errors="replace"))

    def _prepared(self, method: str, params: Mapping[str, Any], name: str) -> tuple[bytes, bytes]:
        """The request's bytes before and after its id, which takes eight digits."""
        document = {"jsonrpc": "2.0", "id": "########", "method": method, "params": {**params, "_meta": _META}}
        body = json.dumps(document, separators=(",", ":")).encode()
        headers = (
            f"POST {self._address.path} HTTP/1.1\r\nHost: {self._address.netloc}\r\n"
            f"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
            f"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\nMcp-Name: {name}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        head, _, tail = (headers.encode() + body).partition(b"########")
        return head, tail

    async def _request(self, method: str, params: Mapping[str, Any], name: str) -> dict[str, Any]:
        head, tail = self._prepared(method, params, name)
        message = json.loads(await self._exchange(head + b"%08d" % (next(_ids) % 100_000_000) + tail))
        if "result" not in message:
            raise BenchError(f"{method}: {message}")
        result: dict[str, Any] = message["result"]
        return result

    async def _exchange(self, request: bytes) -> bytes:
        self._writer.write(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        start = head.find(b"content-length:")
        if start < 0:
            raise BenchError("an answer without Content-Length, which this generator does not read")
        return await self._reader.readexactly(int(head[start + 15 : head.index(b"\r", start)]))
