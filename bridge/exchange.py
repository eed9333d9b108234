"""One request on its way through the bridge, as its handler sees it (`ctx.request`), whatever transport carried it.

The exchange knows who asks and what they declared, carries progress (and, in older revisions, questions) to the
request's own stream, and remembers what has to be undone when the answer does not reach the client: a task whose handle
nobody holds can be named by nobody. It ends in exactly one way: `delivered`, `undelivered`, or `left`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import anyio
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp.shared.message import MessageMetadata, ServerMessageMetadata
from mcp.shared.transport_context import TransportContext

from bridge.envelope import Peer
from bridge.identity import Identity
from bridge.jsonrpc import RequestId
from workflows.kit.contract import Principal

log = logging.getLogger(__name__)

UNDELIVERED_SECONDS: Final = 5.0
"""How long the undelivered callbacks of one exchange may take together: a call to the engine, even a slow one."""

Send = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Puts one JSON-RPC message on the request's stream, or drops it if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls, over which channel (`http`, `stdio`), with which client."""

    identity: Identity
    channel: str
    peer: Peer

    @property
    def owner(self) -> Principal:
        """Whose tasks these are."""
        return self.identity.principal


class Exchange:
    """A request, its owner, its client, and the way back."""

    def __init__(
        self,
        *,
        request_id: RequestId,
        params: Mapping[str, Any],
        caller: Caller,
        send: Send,
        stopping: asyncio.Event | None = None,
    ) -> None:
        """`stopping` is set when the transport or the caller's credentials are about to end; what waits then should
        answer.
        """
        self.stopping: Final = stopping or asyncio.Event()
        self.request_id: Final = request_id
        self.caller: Final = caller
        self.progress_token: Final = progress_token_from_params(params)
        self._send = send
        self._callbacks: list[Callable[[], Awaitable[None]]] = []

    @property
    def owner(self) -> Principal:
        """Who calls."""
        return self.caller.owner

    @property
    def peer(self) -> Peer:
        """Their client."""
        return self.caller.peer

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Send a notification on this request's own stream; returns once it is written or dropped."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        await self._send(message if params is None else message | {"params": params})

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Send a progress notification if the client asked for them. The caller sees to it that `progress` grows."""
        if self.progress_token is None:
            return
        params: dict[str, Any] = {"progressToken": self.progress_token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        await self.notify("notifications/progress", params)

    async def request(self, request_id: str, method: str, params: Mapping[str, Any]) -> None:
        """Send a request of ours on this request's stream (revisions before 2026-07-28). Its answer comes as a message
        of its own, perhaps to another process.
        """
        await self._send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})

    def on_undelivered(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Have `callback` run if the result does not reach the client.

        Register before the step that is to be undone: the client may leave in the middle of it.
        """
        self._callbacks.append(callback)

    def delivered(self) -> None:
        """The transport wrote the whole response: there is nothing to undo."""
        self._callbacks.clear()

    async def undelivered(self) -> None:
        """The transport could not deliver the result: run the callbacks, newest first, within `UNDELIVERED_SECONDS`."""
        try:
            async with asyncio.timeout(UNDELIVERED_SECONDS):
                while self._callbacks:
                    await self._undo(self._callbacks.pop())
        except TimeoutError:
            log.warning("exchange.undo_timeout seconds=%s left=%d", UNDELIVERED_SECONDS, len(self._callbacks))
            self._callbacks.clear()

    async def left(self) -> None:
        """The client went away. In 2026-07-28 that cancels the request; before, it SHOULD NOT be taken for a cancel
        (2025-11-25, "Sending Messages to the Server").
        """
        if self.peer.modern:
            await self.undelivered()
        else:
            self._callbacks.clear()

    async def _undo(self, callback: Callable[[], Awaitable[None]]) -> None:
        try:
            await callback()
        except Exception:
            log.exception("exchange.undo_failed")


@dataclass(frozen=True, kw_only=True)
class ExchangeDispatch:
    """The SDK kernel's view of an exchange (its `DispatchContext`). Handlers never wait for the client: an answer may
    come to another process.
    """

    exchange: Exchange
    transport: TransportContext
    can_send_request: bool = field(default=False, init=False)

    @cached_property
    def cancel_requested(self) -> anyio.Event:
        """Never set: whoever cancels a request cancels its handler. Made for whoever asks, which is hardly ever."""
        return anyio.Event()

    @property
    def request_id(self) -> RequestId:
        """The request's own id."""
        return self.exchange.request_id

    @property
    def message_metadata(self) -> MessageMetadata:
        """How the exchange reaches handlers: as `ctx.request`."""
        return ServerMessageMetadata(request_context=self.exchange, can_send_request=False)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Raises NoBackChannelError: input is asked for inside results."""
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """See `Exchange.notify`."""
        await self.exchange.notify(method, params)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """See `Exchange.progress`."""
        await self.exchange.progress(progress, total, message)
