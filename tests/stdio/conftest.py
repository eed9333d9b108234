"""One Temporal with a worker for all tests that do not break it, and server processes in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.cases.stack import Stack, running_stack
from tests.stdio.client import StdioClient, stdio_client


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    """A shared stack; leave its worker alone."""
    async with running_stack(tmp_path_factory.mktemp("counter")) as stack:
        await stack.worker()
        yield stack


@pytest_asyncio.fixture(loop_scope="session")
async def server(stack: Stack) -> AsyncIterator[StdioClient]:
    """A fresh process, which a test may end."""
    async with stdio_client(stack.environment, MCP_TASKS_LOG_LEVEL="info") as client:
        yield client


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def long_lived(stack: Stack) -> AsyncIterator[StdioClient]:
    """The process behind `shared`."""
    async with stdio_client(stack.environment) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="session")
async def shared(long_lived: StdioClient) -> StdioClient:
    """A process that has survived all tests before; no handshake has been made. What it wrote to them, or is still
    writing, is forgotten.
    """
    await long_lived.alive()
    long_lived.messages.clear()
    return long_lived
