"""An environment that runs one activity as a worker would, and a real site."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer
from temporalio.testing import ActivityEnvironment

from activities import web as crawl_web
from activities.secret_store import FILE_VARIABLE

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Serve = Callable[[Handler], Awaitable[str]]


@pytest.fixture
def env() -> ActivityEnvironment:
    return ActivityEnvironment()


@pytest.fixture
def heartbeats(env: ActivityEnvironment) -> list[dict[str, Any]]:
    """What the activity of `env` heartbeats."""
    seen: list[dict[str, Any]] = []
    env.on_heartbeat = lambda *details: seen.extend(details)
    return seen


@pytest_asyncio.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts a server on loopback that answers every request with the given handler; returns its address."""
    servers: list[TestServer] = []

    async def start(handler: Handler) -> str:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        server = TestServer(app)
        servers.append(server)
        await server.start_server(shutdown_timeout=0.1)  # a test may leave a request without an answer
        return str(server.make_url("/"))

    yield start
    for server in servers:
        await server.close()


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Crawls may visit loopback, have no secrets, and try again at once."""
    monkeypatch.setenv(crawl_web.ALLOW_PRIVATE_VARIABLE, "1")
    monkeypatch.delenv(FILE_VARIABLE, raising=False)
    monkeypatch.setattr(crawl_web, "RETRY_SECONDS", 0.0)
