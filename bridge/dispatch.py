"""One request through the SDK's kernel, and every way in which that can end as one encoded response.

The same for all transports. What older revisions do not have is refused here, because the kernel would serve it to
them: it only knows which methods exist.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from mcp.server.connection import Connection
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_one
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data
from mcp.shared.transport_context import TransportContext
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from pydantic import ValidationError

from bridge.envelope import Peer
from bridge.errors import RETRY_AFTER_MS, TOO_MANY_REQUESTS
from bridge.exchange import Exchange, ExchangeDispatch
from bridge.jsonrpc import MAX_ECHO_CHARS, Refusal, Request, encode, error_response, http_status, result_response
from workflows.kit.contract import cut

log = logging.getLogger(__name__)

INTERRUPTED: Final = "The request was interrupted. Send it again."
RETRY: Final[Mapping[str, Any]] = {"retryAfterMs": 1000}

_MODERN_ONLY: Final = ("server/", "tasks/", "subscriptions/")


@dataclass(frozen=True, slots=True)
class Reply:
    """An encoded JSON-RPC response, one line of ASCII, and the HTTP status it has as a JSON body."""

    body: bytes
    status: int = 200
    retry_after: int | None = None
    """Seconds, for the header of that name."""


def serves(server: Server[Any], method: str, peer: Peer) -> bool:
    """Whether `method` exists for this client."""
    if not peer.modern and method.startswith(_MODERN_ONLY):
        return False
    return server.get_request_handler(method) is not None


async def dispatch(
    server: Server[Any],
    message: Request,
    exchange: Exchange,
    transport: TransportContext,
    check: Callable[[], None] = lambda: None,
) -> Reply:
    """Run the method and encode what comes of it. Raises nothing but CancelledError.

    `check` is what the transport has to say about a method that exists; it raises Refusal.
    """
    peer = exchange.peer
    if not serves(server, message.method, peer):
        # Here, because the kernel checks the params of methods that it knows before it looks for a handler
        return _error(exchange, METHOD_NOT_FOUND, "Method not found", cut(message.method, MAX_ECHO_CHARS))
    try:
        check()
        result = await serve_one(
            server,
            ExchangeDispatch(exchange=exchange, transport=transport),
            message.method,
            message.params,
            connection=Connection.from_envelope(peer.version, peer.info, peer.capabilities),
            lifespan_state=None,
        )
        return Reply(encode(result_response(message.id, result)))
    except Refusal as refusal:
        return _refused(exchange, refusal)
    except ValidationError as invalid:
        return _error(exchange, INVALID_PARAMS, params_problem(invalid))
    except asyncio.CancelledError:
        raise
    except BaseException as failure:  # a handler of a tasks module must not be able to end the process
        error = handler_exception_to_error_data(failure) if isinstance(failure, Exception) else None
        try:
            if error is not None:
                return _error(exchange, error.code, error.message, error.data)
        except (ValueError, TypeError) as unencodable:
            failure = unencodable
        log.exception("exchange.failed id=%.80r method=%.80r", message.id, message.method, exc_info=failure)
        return _error(exchange, INTERNAL_ERROR, "Internal server error")


def interrupted(exchange: Exchange) -> Reply:
    """The reply to a request whose handler was cancelled, and not by its client: the server stops."""
    log.warning("exchange.interrupted id=%.80r", exchange.request_id)
    return _error(exchange, INTERNAL_ERROR, INTERRUPTED, RETRY)


def _refused(exchange: Exchange, refusal: Refusal) -> Reply:
    reply = _error(exchange, refusal.code, refusal.message, refusal.data)
    if refusal.status == TOO_MANY_REQUESTS and exchange.peer.modern:
        return replace(reply, status=refusal.status, retry_after=RETRY_AFTER_MS // 1000)
    return reply


def _error(exchange: Exchange, code: int, message: str, data: Any = None) -> Reply:
    """Raises ValueError or TypeError if `data` is not JSON."""
    body = encode(error_response(exchange.request_id, code, message, data))
    # Before 2026-07-28 errors are 200: a 404 would mean that the session is gone
    return Reply(body, http_status(code) if exchange.peer.modern else 200)


def params_problem(invalid: ValidationError) -> str:
    """What is wrong with a request's params, naming the place, without repeating the value."""
    first: Mapping[str, Any] = dict(invalid.errors(include_url=False, include_context=False, include_input=False)[0])
    place = list(map(str, first["loc"]))
    if "inputResponses" in place[:-1]:  # a union: what it says is about one kind of answer of several
        key = place[place.index("inputResponses") + 1]
        return f"Invalid params: inputResponses: {key!r} is not an answer to any input request"
    return f"Invalid params: {'.'.join(place)}: {first['msg']}"
