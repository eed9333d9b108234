"""How a result travels: as one JSON object, or as the last event of an SSE stream.

The choice is made late, because once a stream is open its status is 200 and the statuses that the specification fixes
for errors are lost (basic/transports/streamable-http). JSON it is, unless a notification or a long silence has opened
the stream before. Streams cannot be resumed: events carry no ids, and the stream ends with the response. Whether the
client went away is learned from the handler's own cancellation or from a failed write; what that means is the
exchange's affair (`Exchange.left`).
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import struct
from collections.abc import Awaitable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import hdrs, web

from bridge.dispatch import Reply, interrupted
from bridge.exchange import Exchange
from bridge.headers import Accepts
from bridge.jsonrpc import encode

log = logging.getLogger(__name__)

WIND_DOWN_SECONDS: Final = 5.0
"""How long a cancelled handler may take to end before its exchange is given up without it."""

KEEP_ALIVE: Final = b":\n\n"
"""A comment line, which clients ignore and proxies take for life."""

_STREAM_HEADERS: Final = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}


def event(body: bytes) -> bytes:
    """One SSE event. `body` is one line of ASCII, so nothing in it can end the event early."""
    return b"event: message\ndata: " + body + b"\n\n"


class Answer:
    """The HTTP response of one request while its handler runs: the only writer to the connection."""

    def __init__(
        self,
        request: web.Request,
        accepts: Accepts,
        *,
        keep_alive_seconds: float,
        write_seconds: float,
    ) -> None:
        self._request = request
        self._accepts = accepts
        self._keep_alive_seconds = keep_alive_seconds
        self._write_seconds = write_seconds
        self._events: asyncio.Queue[_Outgoing | None] = asyncio.Queue()
        self._ended = False
        self._response: web.StreamResponse | None = None
        self._writing: asyncio.Timeout | None = None
        self._last_write_at = math.inf

    async def send(self, message: Mapping[str, Any]) -> None:
        """Write a message, opening the stream; returns once it is written, or at once if it cannot be.

        Raises ValueError or TypeError if `message` is not JSON.
        """
        if self._ended or not self._accepts.sse:
            return
        outgoing = _Outgoing(event(encode(message)), asyncio.get_running_loop().create_future())
        self._events.put_nowait(outgoing)
        await outgoing.gone  # a handler must not be faster than its client reads

    def hurry(self, seconds: float) -> None:
        """Give up a client that has not read all within `seconds`."""
        self._last_write_at = asyncio.get_running_loop().time() + seconds
        if self._writing is not None and not self._writing.expired():
            self._writing.reschedule(self._until())

    async def deliver(self, handler: asyncio.Task[Reply], exchange: Exchange) -> web.StreamResponse:
        """Write what `handler` sends and then its reply; end the exchange as delivered or as undelivered.

        Raises CancelledError when the client has left; by then the handler has been cancelled and its end awaited.
        """
        handler.add_done_callback(lambda _: self._events.put_nowait(None))
        try:
            await self._relay()
            reply = interrupted(exchange) if handler.cancelled() else handler.result()
            response = await self._finish(reply)
        except ConnectionError:
            await _uninterrupted(self._abandon(handler, exchange))
            return self._response or web.Response()  # aiohttp finds the connection closed, and says nothing
        except BaseException:
            await _uninterrupted(self._abandon(handler, exchange))
            raise
        finally:
            self._close()
        if handler.cancelled():
            await _uninterrupted(exchange.undelivered())
        else:
            exchange.delivered()
        return response

    async def _relay(self) -> None:
        """Write notifications until the handler has ended."""
        while True:
            try:
                async with asyncio.timeout(self._keep_alive_seconds):
                    outgoing = await self._events.get()
            except TimeoutError:
                if self._accepts.sse:
                    await self._stream(KEEP_ALIVE)
                continue
            if outgoing is None:
                return
            try:
                await self._stream(outgoing.event)
            finally:
                outgoing.release()

    async def _finish(self, reply: Reply) -> web.StreamResponse:
        if self._response is None and (self._accepts.json or reply.status != 200):
            response: web.StreamResponse = web.Response(
                body=reply.body, status=reply.status, content_type="application/json"
            )
            if reply.retry_after is not None:
                response.headers[hdrs.RETRY_AFTER] = str(reply.retry_after)
            self._response = response
            await self._bounded(self._whole(response))
        else:
            response = await self._stream(event(reply.body))
            await self._bounded(response.write_eof())
        return response

    async def _whole(self, response: web.StreamResponse) -> None:
        await response.prepare(self._request)
        await response.write_eof()

    async def _stream(self, data: bytes) -> web.StreamResponse:
        response = self._response
        if response is None:
            response = self._response = web.StreamResponse(headers=_STREAM_HEADERS)
            await self._bounded(response.prepare(self._request))
        await self._bounded(response.write(data))
        return response

    async def _bounded(self, write: Awaitable[object]) -> None:
        """Raises ConnectionError if the client has left, or has not read for so long that it may as well have."""
        try:
            async with asyncio.timeout_at(self._until()) as self._writing:
                await write
        except TimeoutError:
            _reset(self._request.transport)
            raise ConnectionResetError("the client does not read") from None
        finally:
            self._writing = None

    def _until(self) -> float:
        """When a write that begins now is given up."""
        return min(asyncio.get_running_loop().time() + self._write_seconds, self._last_write_at)

    async def _abandon(self, handler: asyncio.Task[Reply], exchange: Exchange) -> None:
        self._close()
        handler.cancel()
        _, running = await asyncio.wait({handler}, timeout=WIND_DOWN_SECONDS)
        if running:
            log.error("exchange.cancellation_ignored id=%.80r seconds=%s", exchange.request_id, WIND_DOWN_SECONDS)
        log.info("exchange.left id=%.80r", exchange.request_id)
        await exchange.left()

    def _close(self) -> None:
        """From here on notifications are dropped, the queued ones included."""
        self._ended = True
        while not self._events.empty():
            outgoing = self._events.get_nowait()
            if outgoing is not None:
                outgoing.release()


@dataclass(frozen=True, slots=True)
class _Outgoing:
    event: bytes
    gone: asyncio.Future[None]

    def release(self) -> None:
        """Let the sender go on, unless it has given up."""
        if not self.gone.done():
            self.gone.set_result(None)


def _reset(transport: asyncio.Transport | None) -> None:
    """Close the connection without what is still to be sent: the kernel would keep that, and try for minutes."""
    if transport is not None:
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()


async def _uninterrupted(work: Coroutine[Any, Any, None]) -> None:
    """Run `work`, which bounds its own time, to its end; a cancellation that comes meanwhile is raised afterwards."""
    task = asyncio.create_task(work)
    interruption: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as cancelled:
            interruption = cancelled
    if interruption is not None:
        raise interruption
    await task
