"""One Temporal development server for the whole session; tests keep apart by task queues and ids of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from bridge.dev_server import DevServer, dev_server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def temporal() -> AsyncIterator[DevServer]:
    """A running server, in memory, with the search attributes registered."""
    async with dev_server() as server:
        yield server
