"""A plain MCP client for black-box cases: it sends exactly what it is told and hides nothing of the answer."""

from __future__ import annotations

import asyncio
import base64
import io
import itertools
import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import urlsplit

import aiohttp

from tests.support import eventually

TASKS: Final = "io.modelcontextprotocol/tasks"
FULL: Final[Mapping[str, Any]] = {"elicitation": {"form": {}}, "extensions": {TASKS: {}}}
FORMS: Final[Mapping[str, Any]] = {"elicitation": {"form": {}}}
TERMINAL: Final = ("completed", "failed", "cancelled")

_ids = itertools.count(1)


@dataclass(frozen=True)
class Reply:
    """One answer: the HTTP status, and the JSON-RPC message with the notifications that came before it."""

    status: int
    message: dict[str, Any]
    notifications: list[dict[str, Any]]

    @property
    def result(self) -> dict[str, Any]:
        """The result, less the server's identity stamp."""
        assert "result" in self.message, self.message
        result = dict(self.message["result"])
        result.pop("_meta", None)
        return result

    @property
    def code(self) -> int | None:
        """The error's code; None for a result."""
        error = self.message.get("error")
        return None if error is None else int(error["code"])


class McpClient:
    """Talks to one bridge."""

    def __init__(self, url: str, capabilities: Mapping[str, Any] = FULL, *, token: str | None = None) -> None:
        self.url = url
        self.capabilities = capabilities
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    def body(self, method: str, params: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
        """The JSON-RPC request; `changes` replace members of it, or of `_meta` under `capabilities`."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "qa", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": changes.pop("capabilities", self.capabilities),
            **changes.pop("meta", {}),
        }
        return {
            "jsonrpc": "2.0",
            "id": next(_ids),
            "method": method,
            "params": {**params, "_meta": meta},
            **changes,
        }

    def headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        """The headers that go with a request."""
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
            **self._headers,
        }
        name = params.get("taskId") if method.startswith("tasks/") else params.get("name")
        if isinstance(name, str):
            headers["Mcp-Name"] = name if name.isascii() and name.strip() == name else sentinel(name)
        return headers

    async def post(self, body: bytes | Mapping[str, Any], headers: Mapping[str, str]) -> Reply:
        """Send any body with any headers."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sending = self._session.post(self.url, data=io.BytesIO(data), headers=dict(headers), allow_redirects=False)
        async with sending as response:
            text = await response.text()
            if response.content_type == "text/event-stream":
                events = [
                    json.loads(line.removeprefix("data:")) for line in text.splitlines() if line.startswith("data:")
                ]
                return Reply(response.status, events[-1], events[:-1])
            is_json = response.content_type == "application/json" and text
            return Reply(response.status, json.loads(text) if is_json else {"text": text}, [])

    async def request(self, method: str, params: Mapping[str, Any] | None = None, **changes: Any) -> Reply:
        """Send a well-formed request; see `body` for `changes`, `headers` adds or replaces headers."""
        extra = changes.pop("headers", {})
        params = params or {}
        return await self.post(self.body(method, params, **changes), self.headers(method, params) | extra)

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None, **changes: Any) -> Reply:
        """tools/call; `state` and `responses` make it the retry of a multi round-trip."""
        params: dict[str, Any] = {"name": tool, "arguments": dict(arguments or {})}
        if (state := changes.pop("state", None)) is not None:
            params["requestState"] = state
        if (responses := changes.pop("responses", None)) is not None:
            params["inputResponses"] = responses
        return await self.request("tools/call", params, **changes)

    async def call_and_reset(self, tool: str, arguments: Mapping[str, Any], delay: float, **changes: Any) -> None:
        """tools/call, and a reset of its connection after `delay` seconds, whatever has come back until then."""
        params = {"name": tool, "arguments": dict(arguments)}
        body = json.dumps(self.body("tools/call", params, **changes)).encode()
        where = urlsplit(self.url)
        headers = {**self.headers("tools/call", params), "Host": where.netloc, "Content-Length": str(len(body))}
        head = f"POST {where.path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        _, writer = await asyncio.open_connection(where.hostname, where.port)
        writer.write(head.encode() + b"\r\n" + body)
        await writer.drain()
        await asyncio.sleep(delay)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async def start(self, tool: str, arguments: Mapping[str, Any] | None = None) -> str:
        """The id of the task that a call of `tool` becomes."""
        result = (await self.call(tool, arguments)).result
        assert result["resultType"] == "task", result
        return str(result["taskId"])

    async def get(self, task_id: str, **changes: Any) -> Reply:
        """tasks/get."""
        return await self.request("tasks/get", {"taskId": task_id}, **changes)

    async def update(self, task_id: str, responses: Any, **changes: Any) -> Reply:
        """tasks/update."""
        return await self.request("tasks/update", {"taskId": task_id, "inputResponses": responses}, **changes)

    async def cancel(self, task_id: str, **changes: Any) -> Reply:
        """tasks/cancel."""
        return await self.request("tasks/cancel", {"taskId": task_id}, **changes)

    async def parked(self, task_id: str, count: int = 1, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
        """The outstanding questions, once there are `count` besides those in `without`."""

        async def outstanding() -> dict[str, Any] | None:
            requests = (await self.get(task_id)).result.get("inputRequests", {})
            return requests if len(requests) == count and not set(without) & set(requests) else None

        return await eventually(outstanding, what=f"{count} questions")

    async def finished(self, task_id: str, *, within: float = 30.0) -> dict[str, Any]:
        """The task, once its status is terminal."""

        async def terminal() -> dict[str, Any] | None:
            task = (await self.get(task_id)).result
            return task if task["status"] in TERMINAL else None

        return await eventually(terminal, what="a terminal status", within=within)

    async def alive(self) -> None:
        """Fail unless the bridge and a worker behind it answer promptly."""
        async with asyncio.timeout(5):
            assert (await self.request("server/discover")).result["supportedVersions"]
            assert (await self.call("echo", {"x": 1})).result["structuredContent"] == {"x": 1}

    async def count(self, label: str) -> int:
        """How many side effects `label` has had."""
        return int((await self.call("count", {"label": label})).result["structuredContent"]["count"])


def sentinel(text: str) -> str:
    """`text` as a header value carries it when it is not plain ASCII."""
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def accept(**content: Any) -> dict[str, Any]:
    """An accepted form."""
    return {"action": "accept", "content": content}
