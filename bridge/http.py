"""Streamable HTTP of MCP 2026-07-28 on aiohttp: one path, one POST per message, nothing remembered between requests.

The rungs follow the specification's order of refusals: origin, method, credentials, media types, size, JSON, envelope,
headers, version; only then the SDK's kernel runs the method. Nothing of a body is read for a caller who is not known,
and a refusal that leaves a body unread closes the connection, so that what is left of it can never be taken for the
next request.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.http import HttpProcessingError
from mcp.server.connection import Connection
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_one
from mcp.shared.inbound import InboundModernRoute
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data, progress_token_from_params
from mcp.shared.transport_context import TransportContext
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND
from pydantic import ValidationError

from bridge.auth import Authenticator, Unauthenticated
from bridge.exchange import Exchange, ExchangeDispatch
from bridge.headers import (
    Accepts,
    Headers,
    accepted,
    check_notification,
    check_parameters,
    check_request,
    is_json,
    is_plain,
)
from bridge.jsonrpc import Notification, Refusal, Request, encode, parse_message, result_response
from bridge.origin import host_allowed, origin_allowed
from bridge.sse import Answer, Reply
from workflows.kit.contract import MAX_DEPTH, Principal

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
"""Arguments that this transport needs its `web.AppRunner` to have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Limits and policies of the endpoint.

    `loopback` says whether the listener is bound to a loopback address; for the lists see `host_allowed` and
    `origin_allowed`. `receive_seconds` bounds the arrival of a body, `write_seconds` each write to a client that does
    not read, and `shutdown_grace_seconds` what running requests still have when the server stops.
    """

    path: str = "/mcp"
    max_body_bytes: int = 4 * 1024 * 1024
    max_depth: int = MAX_DEPTH
    loopback: bool = True
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    keep_alive_seconds: float = 15.0
    receive_seconds: float = 60.0
    write_seconds: float = 60.0
    shutdown_grace_seconds: float = 1.0


def mount_mcp(app: web.Application, server: Server[Any], settings: HttpSettings, authenticate: Authenticator) -> None:
    """Serve `server` at `settings.path` of `app`, and end its requests when `app` shuts down.

    `app` has to be run with `SERVER_OPTIONS`. The server's lifespan is not entered: its handlers own what they need.
    """
    endpoint = _Endpoint(server, settings, authenticate)
    app.router.add_route("*", settings.path, endpoint.handle, expect_handler=_check_expectation)
    app.on_shutdown.append(endpoint.close)


class _Endpoint:
    def __init__(self, server: Server[Any], settings: HttpSettings, authenticate: Authenticator) -> None:
        self._server = server
        self._settings = settings
        self._authenticate = authenticate
        self._running: set[asyncio.Task[Reply]] = set()
        self._receiving: set[asyncio.Timeout] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one HTTP request, whatever it is."""
        try:
            self._check_origin(request)
            if request.method != hdrs.METH_POST:
                response: web.StreamResponse = web.Response(status=405, headers={hdrs.ALLOW: hdrs.METH_POST})
            else:
                response = await self._post(request)
        except Unauthenticated as refusal:
            headers = {hdrs.WWW_AUTHENTICATE: refusal.challenge}
            response = web.Response(status=401, headers=headers, text="A valid bearer token is required.\n")
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
        if not response.prepared and not request.content.is_eof():
            response.force_close()
        return response

    async def close(self, _app: web.Application) -> None:
        """Give running requests the grace period, then cancel them; stop waiting for bodies at once."""
        now = asyncio.get_running_loop().time()
        for receiving in self._receiving:
            if not receiving.expired():
                receiving.reschedule(now)
        if self._running:
            await asyncio.wait(self._running, timeout=self._settings.shutdown_grace_seconds)
        for task in self._running:
            task.cancel()

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
        if len(origins) > 1 or not all(origin_allowed(origin, settings.allowed_origins) for origin in origins):
            raise Refusal(INVALID_REQUEST, "This Origin is not allowed", status=403)

    async def _post(self, request: web.Request) -> web.StreamResponse:
        owner = self._authenticate(request)
        accepts = accepted(request.headers.getall(hdrs.ACCEPT, []))
        if not accepts.json and not accepts.sse:
            raise Refusal(INVALID_REQUEST, "Accept must allow application/json or text/event-stream", status=406)
        if not is_json(request.headers.getall(hdrs.CONTENT_TYPE, [])):
            raise Refusal(INVALID_REQUEST, "Content-Type must be application/json in UTF-8", status=415)
        if not is_plain(request.headers.getall(hdrs.CONTENT_ENCODING, [])):
            raise Refusal(INVALID_REQUEST, "Content-Encoding is not supported; send the body uncompressed", status=415)
        message = parse_message(await self._body(request), max_depth=self._settings.max_depth)
        if isinstance(message, Notification):
            return self._acknowledge(message, request)
        route = check_request(message, request.headers)
        if self._server.get_request_handler(message.method) is None:
            # Here, because the kernel checks the params of methods that it knows before it looks for a handler
            raise Refusal(METHOD_NOT_FOUND, "Method not found", request_id=message.id, data=message.method)
        return await self._answer(request, message, route, owner, accepts)

    async def _body(self, request: web.Request) -> bytes:
        """Raises Refusal: 413 above the limit, 408 when the body takes too long, 400 when its framing is broken."""
        limit = self._settings.max_body_bytes
        too_large = Refusal(INVALID_REQUEST, f"The body exceeds the limit of {limit} bytes", status=413)
        if (request.content_length or 0) > limit:
            raise too_large
        body = bytearray()
        receiving = asyncio.timeout(self._settings.receive_seconds)
        try:
            async with receiving:
                self._receiving.add(receiving)
                await _continue(request)
                async for chunk in request.content.iter_any():
                    body += chunk
                    if len(body) > limit:
                        raise too_large
        except TimeoutError:
            raise Refusal(INVALID_REQUEST, "The body did not arrive in time", status=408) from None
        except web.RequestPayloadError:
            raise Refusal(INVALID_REQUEST, "The body is not framed as its headers say") from None
        finally:
            self._receiving.discard(receiving)
        return bytes(body)

    def _acknowledge(self, message: Notification, request: web.Request) -> web.Response:
        """Accept a notification and drop it: this revision defines none over HTTP, where closing a stream cancels."""
        if self._server.get_request_handler(message.method) is not None:
            raise Refusal(INVALID_REQUEST, "This method is a request and needs an id")
        check_notification(message, request.headers)
        return web.Response(status=202)

    def _check_call(self, message: Request, headers: Headers) -> None:
        name = message.params.get("name")
        lookup = self._server.get_tool_input_schema
        if message.method == "tools/call" and isinstance(name, str) and lookup is not None:
            schema = lookup(name)
            if schema is not None:
                check_parameters(message, schema, headers)

    async def _answer(
        self, request: web.Request, message: Request, route: InboundModernRoute, owner: Principal, accepts: Accepts
    ) -> web.StreamResponse:
        answer = Answer(
            request,
            message.id,
            accepts,
            keep_alive_seconds=self._settings.keep_alive_seconds,
            write_seconds=self._settings.write_seconds,
        )
        token = progress_token_from_params(message.params)
        exchange = Exchange(owner=owner, channel="http", progress_token=token, send=answer.send)
        transport = TransportContext(kind="streamable-http", can_send_request=False, headers=request.headers)
        dispatch = ExchangeDispatch(exchange=exchange, request_id=message.id, transport=transport)
        task = asyncio.create_task(self._run(message, route, dispatch, request.headers), name="mcp-request")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await answer.deliver(task, exchange)

    async def _run(
        self, message: Request, route: InboundModernRoute, dispatch: ExchangeDispatch, headers: Headers
    ) -> Reply:
        connection = Connection.from_envelope(route.protocol_version, route.client_info, route.client_capabilities)
        try:
            self._check_call(message, headers)
            result = await serve_one(
                self._server, dispatch, message.method, message.params, connection=connection, lifespan_state=None
            )
            return Reply(encode(result_response(message.id, result)))
        except Refusal as refusal:
            return Reply(encode(refusal.to_json()), refusal.status)
        except ValidationError as invalid:
            return Reply.error(message.id, INVALID_PARAMS, _params_problem(invalid))
        except Exception as failure:
            error = handler_exception_to_error_data(failure)
            try:
                if error is not None:
                    return Reply.error(message.id, error.code, error.message, error.data)
            except (ValueError, TypeError) as unencodable:
                failure = unencodable
            log.exception("exchange.failed id=%.80r method=%.80r", message.id, message.method, exc_info=failure)
            return Reply.error(message.id, INTERNAL_ERROR, "Internal server error")


def _params_problem(invalid: ValidationError) -> str:
    """What is wrong with a request's params, naming the place, without repeating the value."""
    first = invalid.errors(include_url=False, include_context=False, include_input=False)[0]
    place = list(map(str, first["loc"]))
    if "inputResponses" in place[:-1]:  # a union: what it says is about one kind of answer of several
        key = place[place.index("inputResponses") + 1]
        return f"Invalid params: inputResponses: {key!r} is not an answer to any input request"
    return f"Invalid params: {'.'.join(place)}: {first['msg']}"


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
