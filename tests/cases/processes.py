"""What a bridge holds, read from the outside: descriptors, memory, its log, its talk with Temporal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, Final

from bridge.child import stop_child
from tests.cases.client import McpClient
from tests.cases.stack import Process, Stack
from tests.support import open_files, resident_bytes
from tests.wire import Wire

MEGABYTE: Final = 1024 * 1024

ONE_LOOK_SECONDS: Final = 7.0
"""Longer than any of the bridge's long polls, so that each is asked for again within."""

NOTHING_ASKED_BYTES: Final = 500
"""More than a ping of an idle connection to Temporal, and less than a look's polls of three watches."""


@dataclass(frozen=True)
class Watched:
    """A bridge that nobody else uses, and what can be seen of it."""

    process: Process
    wire: Wire
    log: IO[bytes]
    client: McpClient

    @property
    def descriptors(self) -> int:
        """Its open files and sockets."""
        return open_files(self.process.process.pid)

    @property
    def resident_bytes(self) -> int:
        """Its memory."""
        return resident_bytes(self.process.process.pid)

    def complaints(self) -> list[bytes]:
        """What it logged that is more than information."""
        self.log.seek(0)
        lines = self.log.read().splitlines()
        return [line for line in lines if b" INFO " not in line]

    async def asks_nothing(self) -> bool:
        """Whether it leaves Temporal alone for a while, as without a watch."""
        before = self.wire.sent
        await asyncio.sleep(ONE_LOOK_SECONDS)
        return self.wire.sent - before < NOTHING_ASKED_BYTES


@asynccontextmanager
async def watched_bridge(stack: Stack) -> AsyncIterator[Watched]:
    """A bridge of its own, for the context."""
    wire = Wire(stack.temporal.address)
    await wire.open()
    with TemporaryFile() as log:
        process = await stack.bridge(log=log, TEMPORAL_ADDRESS=wire.address, MCP_TASKS_LOG_LEVEL="info")
        try:
            async with McpClient(process.url) as client:
                yield Watched(process, wire, log, client)
        finally:
            await stop_child(process.process, ask=signal.SIGKILL, patience=10)
            await wire.cut()
