"""Connections before there is a request on them: how many there may be, and what is said to bytes that are no HTTP.

How long one may take to send a request's head is bounded by the keep-alive time, which a stranger could use up with any
number of connections. So beyond `MOST_IDLE` those are cut that have waited longest, for their first head or for the
next. Whoever sends a request at once is served, however many do not; an open stream is a request under way, and is
never cut.

With TLS a connection is counted from the end of its handshake, which has a time of its own.

aiohttp would answer bytes that are no HTTP with those very bytes, up to a whole head of them. Here they get the status.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Transport
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

log = logging.getLogger(__name__)

MOST_IDLE: Final = 1000
"""Connections without a request under way."""

_LOOK_EVERY: Final = 50
"""New connections from one count of the idle ones to the next: it takes time with thousands of open streams."""


HANDSHAKE_SECONDS: Final = 10.0
"""For a TLS handshake; asyncio's own bound is a minute."""


class Site(web.TCPSite):
    """Listens for such connections."""

    async def start(self) -> None:
        """See aiohttp's, which has no bound for the handshake."""
        await web.BaseSite.start(self)
        if self._runner.server is None:
            raise RuntimeError("the runner is not set up")
        self._server = await asyncio.get_running_loop().create_server(
            self._runner.server,
            self._host,
            self._port,
            ssl=self._ssl_context,
            ssl_handshake_timeout=HANDSHAKE_SECONDS if self._ssl_context else None,
            backlog=self._backlog,
        )


class Runner(web.AppRunner):
    """Runs an application on such connections."""

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        return _Server(
            server.request_handler,
            request_factory=server.request_factory,
            handler_cancellation=server.handler_cancellation,
            **server._kwargs,
        )


class _Server(web.Server):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._made = 0

    def __call__(self) -> RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)

    def connection_made(self, handler: RequestHandler, transport: Transport) -> None:
        self._made += 1
        if self._made % _LOOK_EVERY == 0 and len(self._connections) >= MOST_IDLE:
            self._cut_longest_idle()  # before the new one is among them
        super().connection_made(handler, transport)

    def _cut_longest_idle(self) -> None:
        idle = [
            connection
            for connection, transport in self._connections.items()
            if connection._current_request is None and not transport.is_closing()
        ]
        idle.sort(key=lambda connection: connection._next_keepalive_close_time)  # so long after it was last busy
        excess = idle[: max(0, len(idle) + 1 - MOST_IDLE)]
        for connection in excess:
            self._connections[connection].abort()
        if excess:
            log.warning("http.idle_cut count=%d", len(excess))


class _Connection(RequestHandler):
    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """See aiohttp's; the text is the status."""
        response = super().handle_error(request, status, exc, message)
        if isinstance(response, web.Response):
            response.text = f"{status} {HTTPStatus(status).phrase}\n"
        return response
