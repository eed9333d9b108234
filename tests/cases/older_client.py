"""A plain client of a revision with a handshake: it opens a session, and answers what it is asked during a call.

Every message goes to the next of its replicas: there is no affinity to keep.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp

Answer = Callable[[dict[str, Any]], Mapping[str, Any]]
"""Gives `{"result": …}` or `{"error": …}` for a request of the server's."""

_ids = itertools.count(1)


@dataclass
class OlderCall:
    """One tools/call on its way: what the server has sent on its stream so far."""

    id: int
    response: aiohttp.ClientResponse
    notifications: list[dict[str, Any]] = field(default_factory=list)

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        """Everything that the server sends, to the end."""
        if self.response.content_type == "application/json":
            yield await self.response.json()
            return
        async for line in self.response.content:
            if line.startswith(b"data:"):
                yield json.loads(line.removeprefix(b"data:"))


class OlderClient:
    """Talks to some replicas in turn."""

    def __init__(
        self, urls: Sequence[str], version: str = "2025-11-25", capabilities: Mapping[str, Any] | None = None
    ) -> None:
        self.talk_to(urls)
        self.version = version
        self.capabilities = {"elicitation": {}} if capabilities is None else capabilities
        self.headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": version,
        }
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60))

    def talk_to(self, urls: Sequence[str]) -> None:
        """Use these replicas from now on."""
        self._urls = itertools.cycle(urls)

    async def __aenter__(self) -> Self:
        client = {"name": "old", "version": "1"}
        params = {"protocolVersion": self.version, "capabilities": self.capabilities, "clientInfo": client}
        async with self.send(
            {"jsonrpc": "2.0", "id": next(_ids), "method": "initialize", "params": params}
        ) as response:
            self.welcome = (await response.json())["result"]
            self.headers["Mcp-Session-Id"] = response.headers["Mcp-Session-Id"]
        await self.notify("notifications/initialized")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    @asynccontextmanager
    async def send(
        self, message: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """POST one message."""
        sent = self.headers if headers is None else headers
        body = io.BytesIO(json.dumps(message).encode())
        async with self._session.post(next(self._urls), data=body, headers=sent) as response:
            yield response

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        """Send a notification; its HTTP status."""
        async with self.send({"jsonrpc": "2.0", "method": method, "params": params or {}}) as response:
            return response.status

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request that streams nothing; the whole response message."""
        body = {"jsonrpc": "2.0", "id": next(_ids), "method": method} | ({} if params is None else {"params": params})
        async with self.send(body) as response:
            return dict(await response.json())

    @asynccontextmanager
    async def calling(self, tool: str, arguments: Mapping[str, Any], **meta: Any) -> AsyncIterator[OlderCall]:
        """A call on its way; leaving the context leaves the call."""
        params = {"name": tool, "arguments": dict(arguments)} | ({"_meta": meta} if meta else {})
        call_id = next(_ids)
        async with self.send({"jsonrpc": "2.0", "id": call_id, "method": "tools/call", "params": params}) as response:
            yield OlderCall(call_id, response)

    async def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, answer: Answer | None = None, **meta: Any
    ) -> dict[str, Any]:
        """Call a tool, answer what is asked with `answer`, and return the response message."""
        async with self.calling(tool, arguments or {}, **meta) as call:
            async for message in call.messages():
                if message.get("id") == call.id and "method" not in message:
                    return message
                if "id" in message:
                    assert answer is not None, f"asked: {message}"
                    assert await self.respond(message, answer(message)) == 202
                else:
                    call.notifications.append(message)
        raise AssertionError("the stream ended without a response")

    async def respond(
        self, request: Mapping[str, Any], members: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> int:
        """Answer a request of the server's; the HTTP status."""
        async with self.send({"jsonrpc": "2.0", "id": request["id"], **members}, headers) as response:
            return response.status


def accepting(**content: Any) -> Answer:
    """Accept every form with this content."""
    return lambda _request: {"result": {"action": "accept", "content": content}}


async def first_request(call: OlderCall) -> dict[str, Any]:
    """The first request that the server sends on the call's stream."""
    async with asyncio.timeout(20):
        async for message in call.messages():
            if "method" in message and "id" in message:
                return message
    raise AssertionError("nothing was asked")
