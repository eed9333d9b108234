"""Streamable HTTP on aiohttp: one path, one POST per message, nothing remembered between requests.

The rungs follow the specification's order of refusals: origin, method, credentials, media types, size, JSON, envelope,
headers, version; only then the SDK's kernel runs the method. Nothing of a body is read for a caller who is not known,
and a refusal that leaves a body unread closes the connection, so that what is left of it can never be taken for the
next request.

A message that carries the version in its `_meta`, or names a modern one in its header, is of 2026-07-28. Older ones
open with `initialize` and bring the session token that they got for it; without one they have declared nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.http import HttpProcessingError
from mcp.server.lowlevel import Server
from mcp.shared.inbound import MCP_METHOD_HEADER
from mcp.shared.transport_context import TransportContext
from mcp_types import INVALID_PARAMS, INVALID_REQUEST
from pydantic import ValidationError

from bridge.cors import is_preflight, preflight_headers, response_headers
from bridge.dispatch import dispatch, params_problem
from bridge.envelope import MODERN_VERSIONS, NO_RESPONSES, OLDER_VERSIONS, Peer, unsupported_version
from bridge.errors import RETRY_AFTER_MS, TOO_MANY_REQUESTS, BridgeError
from bridge.exchange import Caller, Exchange
from bridge.headers import (
    SESSION_HEADER,
    Accepts,
    Headers,
    accepted,
    check_notification,
    check_parameters,
    check_request,
    check_single,
    is_json,
    is_modern,
    is_plain,
    version_header,
)
from bridge.identity import Authenticator, Identity, Unauthenticated, Unavailable
from bridge.jsonrpc import Message, Notification, Refusal, Request, Response, encode, parse_message, result_response
from bridge.older import OlderRevisions
from bridge.origin import host_allowed, origin_allowed
from bridge.protected_resource import insufficient_scope
from bridge.rates import URGENT, RequestRates, is_urgent
from bridge.scopes import InsufficientScope, ToolScopes, check_scopes
from bridge.sse import Answer
from bridge.until import Ending
from workflows.kit.contract import MAX_DEPTH

CHANNEL: Final = "http"
LISTEN: Final = "subscriptions/listen"

LAST_WRITES_SECONDS: Final = 2.0
"""How long a client may take to read its answer, once the grace of a server that stops is over."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class _ClientFaults(logging.Filter):
    """One line for a client that breaks HTTP: the traceback would quote its headers, and be of no use."""

    def filter(self, record: logging.LogRecord) -> bool:
        failure = record.exc_info[1] if record.exc_info else None
        if isinstance(failure, HttpProcessingError | web.RequestPayloadError):
            record.msg, record.args, record.exc_info = "http.malformed kind=%s", (type(failure).__name__,), None
            record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
        return True


_server_log: Final = logging.getLogger(f"{__name__}.server")
_server_log.addFilter(_ClientFaults())

SERVER_OPTIONS: Final[dict[str, Any]] = {
    "handler_cancellation": True,  # a client that leaves cancels its request
    "auto_decompress": False,  # compressed bodies are refused, not unpacked
    "keepalive_timeout": 75.0,  # also bounds how long headers may take to arrive
    "lingering_time": 5.0,  # for the rest of a body that was refused
    "logger": _server_log,
    "max_line_size": 8190,
    "max_field_size": 16_380,  # Mcp-Name and Mcp-Param-* carry whole arguments in Base64
}
"""Arguments that this transport needs its `Runner` to have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Limits and policies of the endpoint.

    `loopback` says whether the listener is bound to a loopback address; for the lists see `host_allowed` and
    `origin_allowed`. `task_name_required` is whether `tasks/*` must have the `Mcp-Name` header, as the Tasks extension
    wants it of clients. `receive_seconds` bounds the arrival of a body, `write_seconds` each write to a client that
    does not read, and `shutdown_grace_seconds` what running requests still have when the server stops. For the last
    two see `RequestRates`.
    """

    path: str = "/mcp"
    max_body_bytes: int = 4 * 1024 * 1024
    max_depth: int = MAX_DEPTH
    loopback: bool = True
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    task_name_required: bool = True
    keep_alive_seconds: float = 15.0
    receive_seconds: float = 60.0
    write_seconds: float = 60.0
    shutdown_grace_seconds: float = 1.0
    requests_per_second: float = 500
    request_burst: int = 1000


def mount_mcp(
    app: web.Application,
    server: Server[Any],
    older: OlderRevisions,
    settings: HttpSettings,
    authenticate: Authenticator,
    *,
    tool_scopes: ToolScopes = lambda _name: (),
    resource_metadata: str | None = None,
) -> None:
    """Serve `server` at `settings.path` of `app`, and end its requests when `app` shuts down.

    `app` has to be run with `SERVER_OPTIONS`. The server's lifespan is not entered: its handlers own what they need.
    `resource_metadata` is the URL that a 403 points to, for clients that may get more scopes there.
    """
    endpoint = _Endpoint(server, older, settings, authenticate, tool_scopes, resource_metadata)
    app.router.add_route("*", settings.path, endpoint.handle, expect_handler=_check_expectation)
    app.on_response_prepare.append(endpoint.prepare)
    app.on_shutdown.append(endpoint.close)


class _Endpoint:
    def __init__(
        self,
        server: Server[Any],
        older: OlderRevisions,
        settings: HttpSettings,
        authenticate: Authenticator,
        tool_scopes: ToolScopes,
        resource_metadata: str | None,
    ) -> None:
        self._server = server
        self._older = older
        self._settings = settings
        self._authenticate = authenticate
        self._tool_scopes = tool_scopes
        self._resource_metadata = resource_metadata
        self._running: set[asyncio.Task[Any]] = set()
        self._receiving: set[asyncio.Timeout] = set()
        self._answers: set[Answer] = set()
        self._ending = Ending()
        self._rates = RequestRates(settings.requests_per_second, settings.request_burst)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one HTTP request, whatever it is."""
        try:
            self._check_origin(request)
            if is_preflight(request.method, request.headers):
                response: web.StreamResponse = web.Response(status=204, headers=preflight_headers(request.headers))
            elif request.method != hdrs.METH_POST:
                response = web.Response(status=405, headers={hdrs.ALLOW: hdrs.METH_POST})
            else:
                response = await self._post(request)
        except Unauthenticated as refusal:
            headers = {hdrs.WWW_AUTHENTICATE: refusal.challenge}
            response = web.Response(status=refusal.status, headers=headers, text=f"{refusal.text}\n")
        except Unavailable as refusal:
            headers = {hdrs.RETRY_AFTER: str(refusal.retry_after)}
            response = web.Response(
                status=503, headers=headers, text="The credentials cannot be checked at the moment; try again.\n"
            )
        except Refusal as refusal:
            log.info(
                "http.refused status=%d code=%d id=%.80r why=%.200r",
                refusal.status,
                refusal.code,
                refusal.request_id,
                refusal.message,
            )
            response = web.Response(
                status=refusal.status, body=encode(refusal.to_json()), content_type="application/json"
            )
            if refusal.status == TOO_MANY_REQUESTS:
                response.headers[hdrs.RETRY_AFTER] = str(RETRY_AFTER_MS // 1000)
            if isinstance(refusal, InsufficientScope):
                response.headers[hdrs.WWW_AUTHENTICATE] = insufficient_scope(refusal.scopes, self._resource_metadata)
        if not response.prepared and not request.content.is_eof():
            response.force_close()
        return response

    async def prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        """Let pages of allowed origins read what the endpoint answers."""
        origin = request.headers.get(hdrs.ORIGIN)
        if origin and request.path == self._settings.path and self._origin_allowed(origin):
            response.headers.update(response_headers(origin))

    async def close(self, _app: web.Application) -> None:
        """Give running requests the grace period, then cancel them; stop waiting for bodies at once, and soon for
        clients that do not read.
        """
        self._ending.now()
        now = asyncio.get_running_loop().time()
        for receiving in self._receiving:
            if not receiving.expired():
                receiving.reschedule(now)
        if self._running:
            await asyncio.wait(self._running, timeout=self._settings.shutdown_grace_seconds)
        for task in self._running:
            task.cancel()
        for answer in self._answers:
            answer.hurry(LAST_WRITES_SECONDS)

    def _check_origin(self, request: web.Request) -> None:
        hosts = request.headers.getall(hdrs.HOST, [])
        # Only HTTP/1.0 may leave the Host out, and no browser speaks that.
        hostless = not hosts and request.version < HttpVersion11
        settings = self._settings
        if len(hosts) > 1 or not (hosts or hostless):
            raise Refusal(INVALID_REQUEST, "Exactly one Host header is required")
        if hosts and not host_allowed(hosts[0], settings.allowed_hosts, loopback=settings.loopback):
            raise Refusal(INVALID_REQUEST, "This Host is not allowed", status=403)
        origins = request.headers.getall(hdrs.ORIGIN, [])
        if len(origins) > 1 or not all(map(self._origin_allowed, origins)):
            raise Refusal(INVALID_REQUEST, "This Origin is not allowed", status=403)

    def _origin_allowed(self, origin: str) -> bool:
        return origin_allowed(origin, self._settings.allowed_origins)

    async def _post(self, request: web.Request) -> web.StreamResponse:
        identity = await self._authenticate(request)
        method = request.headers.get(MCP_METHOD_HEADER)
        if method is not None:  # of a flood no body is read
            self._rates.check(identity, urgent=method in URGENT)
        accepts = accepted(request.headers.getall(hdrs.ACCEPT, []))
        if not accepts.json and not accepts.sse:
            raise Refusal(INVALID_REQUEST, "Accept must allow application/json or text/event-stream", status=406)
        if not is_json(request.headers.getall(hdrs.CONTENT_TYPE, [])):
            raise Refusal(INVALID_REQUEST, "Content-Type must be application/json in UTF-8", status=415)
        if not is_plain(request.headers.getall(hdrs.CONTENT_ENCODING, [])):
            raise Refusal(INVALID_REQUEST, "Content-Encoding is not supported; send the body uncompressed", status=415)
        message = parse_message(await self._body(request), max_depth=self._settings.max_depth)
        try:
            if method is None:
                self._rates.check(identity, urgent=is_urgent(message))
            return await self._serve(message, request, identity, accepts)
        except Refusal as refusal:
            if isinstance(message, Request):
                refusal.request_id = message.id
            raise

    async def _serve(
        self, message: Message, request: web.Request, identity: Identity, accepts: Accepts
    ) -> web.StreamResponse:
        check_single(request.headers)
        if isinstance(message, Response):
            return await self._answered(message, request, identity, accepts)
        if is_modern(message, request.headers):
            if isinstance(message, Notification):
                return self._acknowledge(message, request)
            if message.method == LISTEN and not accepts.sse:
                raise Refusal(
                    INVALID_REQUEST, f"{LISTEN} answers with text/event-stream; Accept must allow it", status=406
                )
            peer = check_request(message, request.headers, task_name_required=self._settings.task_name_required)
        elif isinstance(message, Request) and message.method == "initialize":
            return self._initialize(message, identity)
        else:
            peer = self._session_peer(request, identity, accepts)
        check_scopes(message, identity, self._tool_scopes)
        caller = Caller(identity=identity, channel=CHANNEL, peer=peer)
        if isinstance(message, Notification):
            return await self._older_notification(message, caller)
        return await self._answer(request, message, caller, accepts)

    async def _body(self, request: web.Request) -> bytes:
        """Raises Refusal: 413 above the limit, 408 when the body takes too long, 400 when its framing is broken."""
        self._check_size(request.content_length or 0)
        try:
            if request.content.is_eof():  # it came with its headers
                body = request.content.read_nowait()
                self._check_size(len(body))
                return body
            return await self._receive(request)
        except TimeoutError:
            raise Refusal(INVALID_REQUEST, "The body did not arrive in time", status=408) from None
        except web.RequestPayloadError:
            raise Refusal(INVALID_REQUEST, "The body is not framed as its headers say") from None

    async def _receive(self, request: web.Request) -> bytes:
        body = bytearray()
        receiving = asyncio.timeout(self._settings.receive_seconds)
        try:
            async with receiving:
                self._receiving.add(receiving)
                await _continue(request)
                async for chunk in request.content.iter_any():
                    body += chunk
                    self._check_size(len(body))
        finally:
            self._receiving.discard(receiving)
        return bytes(body)

    def _check_size(self, size: int) -> None:
        if size > (limit := self._settings.max_body_bytes):
            raise Refusal(INVALID_REQUEST, f"The body exceeds the limit of {limit} bytes", status=413)

    def _acknowledge(self, message: Notification, request: web.Request) -> web.Response:
        """Accept a notification and drop it: this revision defines none over HTTP, where closing a stream cancels."""
        if self._server.get_request_handler(message.method) is not None:
            raise Refusal(INVALID_REQUEST, "This method is a request and needs an id")
        check_notification(request.headers)
        return web.Response(status=202)

    def _initialize(self, message: Request, identity: Identity) -> web.Response:
        """The handshake of older revisions: its outcome goes to the client, as its session's id."""
        try:
            result, peer = self._older.initialize(message.params)
        except ValidationError as invalid:
            raise Refusal(INVALID_PARAMS, params_problem(invalid), request_id=message.id, status=200) from None
        return web.Response(
            body=encode(result_response(message.id, result)),
            content_type="application/json",
            headers={SESSION_HEADER: self._older.token(peer, identity.principal)},
        )

    def _session_peer(self, request: web.Request, identity: Identity, accepts: Accepts) -> Peer:
        """The client of an older revision. Raises Refusal: its session is over (404), or its revision is not served."""
        version = version_header(request.headers)
        if version and version not in OLDER_VERSIONS:
            raise unsupported_version(version)
        if SESSION_HEADER not in request.headers:
            return Peer(version=version, capabilities={})
        peer = self._older.peer(request.headers[SESSION_HEADER].strip(" \t"), identity.principal)
        return peer if accepts.sse else replace(peer, capabilities={})  # questions need a stream

    async def _older_notification(self, message: Notification, caller: Caller) -> web.Response:
        if self._server.get_request_handler(message.method) is not None:
            raise Refusal(INVALID_REQUEST, "This method is a request and needs an id")
        if message.method == "notifications/cancelled":
            await self._deliver(self._older.cancelled(message, caller))
        return web.Response(status=202)

    async def _answered(
        self, message: Response, request: web.Request, identity: Identity, accepts: Accepts
    ) -> web.Response:
        """The answer to a request of ours, which only older revisions know. It needs no session, but no wrong one."""
        if version_header(request.headers) in MODERN_VERSIONS:
            raise Refusal(INVALID_REQUEST, NO_RESPONSES)
        self._session_peer(request, identity, accepts)
        check_scopes(message, identity, self._tool_scopes)
        await self._deliver(self._older.answered(message, identity, CHANNEL))
        return web.Response(status=202)

    async def _deliver(self, delivery: Coroutine[Any, Any, None]) -> None:
        """See `delivery` through, though its client may not wait for it: it will not send it again.

        Raises Refusal.
        """
        task = self._track(asyncio.create_task(delivery))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_log_failure)
            raise
        except BridgeError as error:  # there is no JSON-RPC response that could say so
            raise Refusal(error.code, error.message, data=error.data, status=503) from None

    def _track(self, task: asyncio.Task[T]) -> asyncio.Task[T]:
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def _check_call(self, message: Request, headers: Headers) -> None:
        name = message.params.get("name")
        lookup = self._server.get_tool_input_schema
        if message.method == "tools/call" and isinstance(name, str) and lookup is not None:
            schema = lookup(name)
            if schema is not None:
                check_parameters(message, schema, headers)

    async def _answer(
        self, request: web.Request, message: Request, caller: Caller, accepts: Accepts
    ) -> web.StreamResponse:
        answer = Answer(
            request,
            accepts,
            keep_alive_seconds=self._settings.keep_alive_seconds,
            write_seconds=self._settings.write_seconds,
        )
        with self._ending.of(caller.identity.expires_at) as stopping:
            exchange = Exchange(
                request_id=message.id, params=message.params, caller=caller, send=answer.send, stopping=stopping.soon
            )
            transport = TransportContext(kind="streamable-http", can_send_request=False, headers=request.headers)
            check = partial(self._check_call, message, request.headers) if caller.peer.modern else _unchecked
            handler = dispatch(self._server, message, exchange, transport, check)
            task = self._track(asyncio.create_task(handler, name="mcp-request"))
            stopping.cancels(task)
            self._answers.add(answer)
            try:
                return await answer.deliver(task, exchange)
            finally:
                self._answers.discard(answer)


def _log_failure(delivery: asyncio.Task[None]) -> None:
    if not delivery.cancelled() and (failure := delivery.exception()):
        log.warning("delivery.failed why=%.200r", failure)


def _unchecked() -> None:
    """Older revisions have no `Mcp-Param-*` headers."""


async def _check_expectation(request: web.Request) -> web.StreamResponse | None:
    """Refuse expectations other than `100-continue`; the interim response itself waits until the body is wanted."""
    expectation = request.headers.get(hdrs.EXPECT, "")
    if request.version < HttpVersion11 or expectation.lower() == "100-continue":
        return None
    response = web.Response(status=417)
    response.force_close()
    return response


async def _continue(request: web.Request) -> None:
    if request.version >= HttpVersion11 and request.headers.get(hdrs.EXPECT):
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # aiohttp takes output for a response that has begun
