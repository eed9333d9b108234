"""A wire to Temporal that tests can cut, freeze, or make deaf on one side."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Wire:
    """A TCP relay to the dev server that can be cut (connections die, new ones are refused) or frozen.

    Without `answering` only what the server sends is held back; `sent` counts the bytes that reached it.
    """

    def __init__(self, target: str) -> None:
        self.host, port = target.rsplit(":", 1)
        self.port = int(port)
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.answering = asyncio.Event()
        self.answering.set()
        self.sent = 0
        self.writers: set[asyncio.StreamWriter] = set()
        self.relays: set[asyncio.Task[None]] = set()
        self.server: asyncio.Server | None = None
        self.address = ""

    async def open(self) -> None:
        port = int(self.address.rsplit(":", 1)[1]) if self.address else 0
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.address = "127.0.0.1:%d" % self.server.sockets[0].getsockname()[1]  # noqa: UP031

    async def cut(self) -> None:
        assert self.server is not None
        self.server.close()
        for writer in list(self.writers):
            writer.transport.abort()
        for relay in list(self.relays):
            relay.cancel()
        await asyncio.gather(*self.relays, return_exceptions=True)
        await self.server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(self.host, self.port)
        except OSError:
            self._drop(writer)
            return
        if writer.transport.is_closing():  # the wire was cut meanwhile
            self._drop(writer, upstream_writer)
            return
        for source, sink, there in ((reader, upstream_writer, True), (upstream_reader, writer, False)):
            self.writers.add(sink)
            relay = asyncio.create_task(self._relay(source, sink, there=there))
            self.relays.add(relay)
            relay.add_done_callback(self.relays.discard)

    def _drop(self, *writers: asyncio.StreamWriter) -> None:
        for writer in writers:
            writer.transport.abort()
            self.writers.discard(writer)

    async def _relay(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, there: bool) -> None:
        try:
            with suppress(OSError):
                while data := await source.read(65536):
                    await self.flowing.wait()
                    if there:
                        self.sent += len(data)
                    else:
                        await self.answering.wait()
                    sink.write(data)
                    await sink.drain()
        finally:
            sink.close()
            self.writers.discard(sink)
