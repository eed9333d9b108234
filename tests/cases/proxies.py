"""What stands between clients and bridges in the field: proxies that lose patience, hold back, or cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.cases.raw import reset


@dataclass(kw_only=True)
class Proxy:
    """A TCP proxy to one bridge; each connection carries one request.

    `idle_seconds`: cuts a connection on which the bridge sends nothing for so long, `cuts` counts them.
    `lifetime_seconds`: cuts every connection so long after the bridge began to answer.
    `buffers`: holds a response back until its end, unless its headers ask not to.
    """

    target: tuple[str, int]
    idle_seconds: float | None = None
    lifetime_seconds: float | None = None
    buffers: bool = False
    port: int = 0
    cuts: int = 0
    _relays: set[asyncio.Task[Any]] = field(default_factory=set)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Proxy]:
        """Listen at `port` of loopback within the context."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for relay in list(self._relays):
                relay.cancel()
            await asyncio.gather(*self._relays, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._relays.add(task)
        task.add_done_callback(self._relays.discard)
        back, forth = await asyncio.open_connection(*self.target)
        requests = asyncio.create_task(_forward(reader, forth))
        try:
            async with asyncio.timeout(None) as lifetime:
                await self._responses(back, writer, lifetime)
        except TimeoutError:
            self.cuts += 1
        finally:
            requests.cancel()
            reset(writer)
            reset(forth)

    async def _responses(
        self, back: asyncio.StreamReader, writer: asyncio.StreamWriter, lifetime: asyncio.Timeout
    ) -> None:
        """Raises TimeoutError if the bridge is silent for too long."""
        held = b""
        holds = self.buffers
        with suppress(ConnectionError):
            while True:
                async with asyncio.timeout(self.idle_seconds):
                    data = await back.read(65536)
                if self.lifetime_seconds is not None and lifetime.when() is None:
                    lifetime.reschedule(asyncio.get_running_loop().time() + self.lifetime_seconds)
                if holds:
                    held += data
                    head, complete, _ = held.partition(b"\r\n\r\n")
                    if data and not (complete and b"x-accel-buffering: no" in head.lower()):
                        continue
                    data, holds = held, False
                if not data:
                    return
                writer.write(data)
                await writer.drain()


async def _forward(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
