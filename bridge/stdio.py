"""MCP over standard input and output: one message a line, all requests side by side, in whatever revision each is.

A request that carries the version in its `_meta` is of 2026-07-28, whatever came before it on the pipe. `initialize`
opens the older revisions for this process, which is their session; requests without the version are theirs from then
on. Nothing waits for anything else: the reader starts a task for each line, and each answer leaves when it is ready.

Every request ends in one of three ways: its response is written; or its client cancels it, and nothing more is written
for its id; or the process ends first. The last two undo what its caller cannot address. Tasks whose handle was written
go on in any case.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final

from mcp.server.lowlevel import Server
from mcp.shared.transport_context import TransportContext
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST
from pydantic import ValidationError

from bridge.dispatch import Reply, dispatch, interrupted, params_problem
from bridge.envelope import NO_RESPONSES, OLDER_VERSIONS, Peer, carries_version, checked_envelope
from bridge.errors import RETRY_AFTER_MS, BridgeError
from bridge.exchange import Caller, Exchange
from bridge.identity import LOCAL
from bridge.jsonrpc import (
    Message,
    Notification,
    Refusal,
    Request,
    RequestId,
    Response,
    encode,
    parse_message,
    result_response,
)
from bridge.lines import Channel, Writer, lines
from bridge.older import OlderRevisions
from workflows.kit.contract import MAX_DEPTH

log = logging.getLogger(__name__)

CHANNEL: Final = "stdio"

END_OF_INPUT_GRACE_SECONDS: Final = 4.0
"""What running requests still have when the input has ended: a client waits some 5 seconds for the process to go."""

STOP_GRACE_SECONDS: Final = 1.0
"""The same after SIGTERM or SIGINT, which clients follow up with SIGKILL after 2 seconds."""

CUT_OFF_SECONDS: Final = 1.0
"""How long requests that were not finished then may take to end, and their last lines to be read."""

WIND_DOWN_SECONDS: Final = 5.0
"""How long a request that its client cancelled may take to end before its exchange is given up without it."""

MAX_IN_FLIGHT: Final = 1000
"""Requests at a time. Each is a call to Temporal at most, which has long refused so many by then."""

_MAX_UNDER_WAY: Final = 2 * MAX_IN_FLIGHT
"""With what else is under way, e.g. errors that a client does not read: beyond it reading waits."""

_TRANSPORT: Final = TransportContext(kind=CHANNEL, can_send_request=False)

_UNKNOWN: Final = Peer(version=OLDER_VERSIONS[0], capabilities={})
"""Whoever sends `ping`, which is allowed before the handshake."""


async def serve_stdio(
    server: Server[Any], older: OlderRevisions, channel: Channel, stop: asyncio.Event, *, max_line_bytes: int
) -> None:
    """Serve until the input ends, `stop` is set, or nobody reads the output any more.

    A line of more than `max_line_bytes` is refused. The server's lifespan is not entered: its handlers own what they
    need.
    """
    writer = Writer(channel.output)
    pipe = _Pipe(server, older, writer, max_line_bytes)
    reading = asyncio.create_task(pipe.read(channel.input), name="stdio-reader")
    stopped = asyncio.create_task(stop.wait())
    broken = asyncio.create_task(writer.broken.wait())
    try:
        await asyncio.wait({reading, stopped, broken}, return_when=asyncio.FIRST_COMPLETED)
        ended = reading.done()
        reading.cancel()
        pipe.end_subscriptions()
        log.info("stdio.ending in_flight=%d end_of_input=%s stopped=%s", pipe.in_flight, ended, stopped.done())
        if ended:
            await pipe.quiet({stopped, broken}, END_OF_INPUT_GRACE_SECONDS)
        if stopped.done():
            await pipe.quiet({broken}, STOP_GRACE_SECONDS)
        await pipe.cut_off()
        if ended:
            reading.result()  # raises what can only be a bug
    finally:
        for task in (reading, stopped, broken):
            task.cancel()
        writer.close()


class _Call:
    """A request on its way to its response."""

    def __init__(self, server: Server[Any], message: Request, peer: Peer, writer: Writer) -> None:
        self._writer = writer
        self._silent = False
        self.method: Final = message.method
        self.exchange: Final = Exchange(
            request_id=message.id,
            params=message.params,
            caller=Caller(identity=LOCAL, channel=CHANNEL, peer=peer),
            send=self._send,
        )
        self.handler: Final = asyncio.create_task(dispatch(server, message, self.exchange, _TRANSPORT), name="mcp-call")

    async def reply(self) -> Reply | None:
        """What the handler ends with; None if its client has cancelled it. Nothing else is sent afterwards."""
        await asyncio.wait({self.handler})
        if self._silent:
            return None
        self._silent = True
        return interrupted(self.exchange) if self.handler.cancelled() else self.handler.result()

    async def deliver(self, reply: Reply) -> None:
        """Write the response, which ends the exchange."""
        try:
            await self._writer.write(reply.body)
        except ConnectionError:
            await self.exchange.undelivered()
        else:
            # A handler that was cut off, or that gave itself up, has left its run to nobody
            await self.exchange.undelivered() if self.handler.cancelled() else self.exchange.delivered()

    async def abandon(self) -> None:
        """End it without a further word, and undo what its caller cannot address."""
        self._silent = True
        self.handler.cancel()
        _, running = await asyncio.wait({self.handler}, timeout=WIND_DOWN_SECONDS)
        if running:
            log.error("exchange.cancellation_ignored id=%.80r seconds=%s", self.exchange.request_id, WIND_DOWN_SECONDS)
        await self.exchange.undelivered()

    async def _send(self, message: Mapping[str, Any]) -> None:
        if not self._silent:
            with suppress(ConnectionError):
                await self._writer.write(encode(message))


class _Pipe:
    """What is under way between one client and us."""

    def __init__(self, server: Server[Any], older: OlderRevisions, writer: Writer, max_line_bytes: int) -> None:
        self._server = server
        self._older = older
        self._writer = writer
        self._max_line_bytes = max_line_bytes
        self._older_client: Peer | None = None
        self._calls: dict[RequestId, _Call] = {}
        self._exchanges: set[Exchange] = set()
        self._under_way: set[asyncio.Task[None]] = set()

    @property
    def in_flight(self) -> int:
        """Requests without a response."""
        return len(self._calls)

    async def read(self, descriptor: int) -> None:
        """Take every line, until there are no more."""
        async with aclosing(lines(descriptor, self._max_line_bytes)) as arriving:
            async for line in arriving:
                self._take(line)
                await asyncio.sleep(0)  # many lines may be there at once: what one started has its turn before the next
                while len(self._under_way) >= _MAX_UNDER_WAY:
                    await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)

    def end_subscriptions(self) -> None:
        """Have those end that would go on for ever. Calls that wait have their grace instead: nobody could go on with
        them elsewhere.
        """
        for call in self._calls.values():
            if call.method == "subscriptions/listen":
                call.exchange.stopping.set()

    async def quiet(self, interruptions: set[asyncio.Task[Any]], seconds: float) -> None:
        """Wait until nothing is under way, for `seconds` at most, or until one of `interruptions` has come."""
        if not self._under_way:
            return
        ended = asyncio.ensure_future(asyncio.wait(self._under_way))
        await asyncio.wait({ended, *interruptions}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()

    async def cut_off(self) -> None:
        """End what is left. Its client is told so, if it still reads."""
        for call in self._calls.values():
            call.handler.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=CUT_OFF_SECONDS)
        await asyncio.gather(*(exchange.undelivered() for exchange in self._exchanges))

    def _take(self, line: bytes | None) -> None:
        try:
            message = self._parsed(line)
            if isinstance(message, Request):
                self._requested(message)
            elif isinstance(message, Notification):
                self._notified(message)
            else:
                self._answered(message)
        except Refusal as refusal:
            log.info("stdio.refused code=%d id=%.80r why=%.200r", refusal.code, refusal.request_id, refusal.message)
            self._start(self._write(encode(refusal.to_json())))

    def _parsed(self, line: bytes | None) -> Message:
        if line is None:
            raise Refusal(INVALID_REQUEST, f"The line exceeds the limit of {self._max_line_bytes} bytes")
        return parse_message(line, max_depth=MAX_DEPTH)

    def _requested(self, message: Request) -> None:
        if message.id in self._calls:
            # Without the id: it would be taken for the response to the first
            raise Refusal(INVALID_REQUEST, "A request with this id is in flight", data={"requestId": message.id})
        if message.method == "initialize":
            self._initialize(message)
            return
        peer = self._peer(message)
        if len(self._calls) >= MAX_IN_FLIGHT:
            reason = f"More than {MAX_IN_FLIGHT} requests are in flight; try again"
            raise Refusal(INTERNAL_ERROR, reason, request_id=message.id, data={"retryAfterMs": RETRY_AFTER_MS})
        call = _Call(self._server, message, peer, self._writer)
        self._calls[message.id] = call
        self._exchanges.add(call.exchange)
        self._start(self._serve(call))

    def _initialize(self, message: Request) -> None:
        try:
            result, self._older_client = self._older.initialize(message.params)
        except ValidationError as invalid:
            raise Refusal(INVALID_PARAMS, params_problem(invalid), request_id=message.id) from None
        self._start(self._write(encode(result_response(message.id, result))))

    def _peer(self, message: Request) -> Peer:
        """Who sent it. Raises Refusal: -32602 to a client that has not said how it wants to be spoken to; -32022."""
        if not carries_version(message):
            if self._older_client is not None:
                return self._older_client
            if message.method == "ping":
                return _UNKNOWN
        return checked_envelope(message)

    async def _serve(self, call: _Call) -> None:
        reply = await call.reply()
        if reply is None:
            return
        del self._calls[call.exchange.request_id]  # its client may use the id again as soon as it reads the response
        await call.deliver(reply)
        self._exchanges.discard(call.exchange)

    def _notified(self, message: Notification) -> None:
        """Unknown ones are ignored. Raises Refusal: this is a request, and its sender would wait for ever."""
        if self._server.get_request_handler(message.method) is not None:
            raise Refusal(INVALID_REQUEST, "This method is a request and needs an id")
        if message.method == "notifications/cancelled":
            self._cancelled(message.params)

    def _cancelled(self, params: Mapping[str, Any]) -> None:
        request_id = params.get("requestId")
        if isinstance(request_id, bool) or not isinstance(request_id, str | int):
            return
        call = self._calls.pop(request_id, None)
        if call is None:
            return
        log.info("stdio.cancelled id=%.80r reason=%.200r", request_id, params.get("reason"))
        self._start(self._abandon(call))

    async def _abandon(self, call: _Call) -> None:
        await call.abandon()
        self._exchanges.discard(call.exchange)

    def _answered(self, message: Response) -> None:
        """A client's answer to a question of ours. Raises Refusal: no client of these revisions is there."""
        if self._older_client is None:
            raise Refusal(INVALID_REQUEST, NO_RESPONSES)
        self._start(self._pass_on(message))

    async def _pass_on(self, message: Response) -> None:
        try:
            await self._older.answered(message, LOCAL, CHANNEL)
        except (Refusal, BridgeError) as problem:  # a response gets no response
            log.warning("stdio.answer_lost id=%.80r why=%.200r", message.id, problem.message)

    async def _write(self, line: bytes) -> None:
        with suppress(ConnectionError):
            await self._writer.write(line)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            log.error("stdio.bug", exc_info=bug)
