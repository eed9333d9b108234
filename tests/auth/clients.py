"""Clients of a bridge with tokens of a real authorization server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.authserver.running import ALL, AuthServer
from tests.cases.client import McpClient
from tests.cases.stack import Process


@asynccontextmanager
async def as_(
    who: str, server: AuthServer, bridge: Process, scope: str = ALL, **options: Any
) -> AsyncIterator[McpClient]:
    """A client with a token for `who`."""
    token = await server.token(who, bridge.url, scope, ttl=options.pop("ttl", None))
    async with McpClient(bridge.url, **options, token=token) as client:
        yield client


@asynccontextmanager
async def with_token(bridge: Process, token: str | None) -> AsyncIterator[McpClient]:
    async with McpClient(bridge.url, token=token) as client:
        yield client


async def discover(bridge: Process, token: str | None) -> tuple[int, Any]:
    """The status of server/discover with this token, and the headers of the answer."""
    async with McpClient(bridge.url, token=token) as client, aiohttp.ClientSession() as session:
        headers = client.headers("server/discover", {})
        async with session.post(bridge.url, json=client.body("server/discover", {}), headers=headers) as response:
            return response.status, response.headers
