"""Bridges behind a proxy that names the caller, so that there are two owners. Each module has one with its limits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from bridge.dev_server import DevServer
from tests.cases.client import FULL, McpClient
from tests.cases.stack import Process, Programs, program_environment
from tests.support import unique


class Named(McpClient):
    """A client that a proxy lets through under a name, which nobody has used before."""

    def __init__(self, url: str, subject: str | None = None, capabilities: Mapping[str, Any] = FULL) -> None:
        super().__init__(url, capabilities)
        self.subject = subject or unique("owner")
        self._headers["X-Forwarded-User"] = self.subject


@pytest.fixture(scope="session")
def queue() -> str:
    """The task queue of everything here."""
    return unique("limits")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def programs(
    temporal: DevServer, queue: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Programs]:
    """A worker, and what may be started beside it."""
    environment = program_environment(tmp_path_factory.mktemp("counter"), temporal.environment)
    programs = Programs(
        environment={**environment, "MCP_TASKS_TASK_QUEUE": queue, "MCP_TASKS_TRUSTED_PROXIES": "127.0.0.1"}
    )
    try:
        await programs.worker()
        yield programs
    finally:
        await programs.close()


@pytest_asyncio.fixture(loop_scope="session")
async def alice(bridge: Process) -> AsyncIterator[Named]:
    """Who is at the limit of the module's bridge."""
    async with Named(bridge.url) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="session")
async def bob(bridge: Process) -> AsyncIterator[Named]:
    """Who must not notice."""
    async with Named(bridge.url) as client:
        yield client
