"""One stack for all cases that do not break it: Temporal, a worker, a bridge."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from temporalio.client import Client

from tests.cases.client import FORMS, McpClient
from tests.cases.stack import Process, Stack, running_stack
from tests.encryption import CONVERTER
from tests.stdio.client import StdioClient, stdio_client


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    """A shared stack; leave its worker and its bridge alone."""
    async with running_stack(tmp_path_factory.mktemp("counter")) as stack:
        yield stack


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def worker(stack: Stack) -> Process:
    """The shared worker."""
    return await stack.worker()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def bridge(stack: Stack, worker: Process) -> Process:
    """The shared bridge, with a worker behind it."""
    return await stack.bridge()


@pytest_asyncio.fixture(loop_scope="session")
async def client(bridge: Process) -> AsyncIterator[McpClient]:
    """A client of the shared bridge that declares forms and the Tasks extension."""
    async with McpClient(bridge.url) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="session")
async def plain(bridge: Process) -> AsyncIterator[McpClient]:
    """A client that declares forms, and no Tasks extension."""
    async with McpClient(bridge.url, FORMS) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def engine(stack: Stack) -> Client:
    """Temporal itself."""
    return await Client.connect(stack.temporal.address, data_converter=CONVERTER)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pipe(stack: Stack, worker: Process) -> AsyncIterator[StdioClient]:
    """The same server as `client` talks to, as a process of its own on two pipes."""
    async with stdio_client(stack.environment) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ground(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    """A Temporal with nothing beside it."""
    async with running_stack(tmp_path_factory.mktemp("faults")) as stack:
        yield stack


@pytest_asyncio.fixture(loop_scope="session")
async def faulty(ground: Stack) -> AsyncIterator[Stack]:
    """The same, for one test that may break what it starts."""
    stack = Stack(temporal=ground.temporal, environment=ground.environment)
    yield stack
    await stack.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def front(ground: Stack) -> Process:
    """A bridge that no test breaks."""
    return await ground.bridge()
