"""A bridge that serves more than tools, one that serves tools alone, and a worker for both."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bridge.dev_server import DevServer
from tests.cases.client import McpClient
from tests.cases.stack import Programs, program_environment
from tests.support import unique

EXTENDED = "tests.extension.served"
PLAIN = "tests.fixtures.cases"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def programs(temporal: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Programs]:
    """What may be started beside Temporal, on a task queue of its own."""
    environment = program_environment(tmp_path_factory.mktemp("counter"), temporal.environment)
    programs = Programs(environment={**environment, "MCP_TASKS_TASK_QUEUE": unique("extension")})
    try:
        await programs.worker(EXTENDED)
        yield programs
    finally:
        await programs.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def client(programs: Programs) -> AsyncIterator[McpClient]:
    """A client of the bridge whose module registers handlers."""
    async with McpClient((await programs.bridge(EXTENDED)).url) as client:
        yield client


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def plain(programs: Programs) -> AsyncIterator[McpClient]:
    """A client of a bridge whose module has tools alone."""
    async with McpClient((await programs.bridge(PLAIN)).url) as client:
        yield client
