"""What must be true of every answer, whatever was asked."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from mcp_types.jsonrpc import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from mcp_types.methods import SERVER_RESULTS, validate_server_result
from pydantic import ValidationError

STATUSES: Final = frozenset({100, 200, 202, 400, 401, 403, 404, 405, 406, 408, 413, 415, 417, 429, 431})
"""HTTP statuses that the endpoint documents. A 503 says that Temporal is away, which it is not here."""

INSIDE: Final = re.compile(
    r"Traceback|File \"|site-packages|grpc|RPCError|StatusCode|temporalio|task_queue|\bworkflow|\.py\b|"
    r"127\.0\.0\.1:\d|localhost:\d|\b(?-i:SELECT|INSERT INTO|UPDATE) \w+ |pydantic|object at 0x",
    re.IGNORECASE,
)
"""What errors never tell: how the house is built."""

MAX_ERROR_CHARS: Final = 20_000
"""More than the longest text that a tool may fail with, and far less than what a client may send."""

UNEXPECTED: Final = ("Internal server error", "The task engine refused the request", "ended without a result")


class Find(AssertionError):
    """Something is wrong with the server."""


def demand(holds: object, what: str) -> None:
    """Raises Find if it does not hold."""
    if not holds:
        raise Find(what)


def strict_json(text: bytes) -> Any:
    """The JSON value; Find if it is none, or names a member twice."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        demand(len(set(names)) == len(names), f"a member is there twice: {names}")
        return dict(pairs)

    try:
        return json.loads(text.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=members)
    except ValueError as error:
        raise Find(f"no JSON: {error}: {text[:200]!r}") from None


def _no_constant(literal: str) -> Any:
    raise Find(f"{literal} in an answer")


def check_message(message: Any, method: str | None = None, version: str | None = None) -> None:
    """Raises Find unless this is a JSON-RPC message that we may send, the response to `method` if that is known."""
    demand(isinstance(message, dict), f"no message: {message!r:.200}")
    demand(message.get("jsonrpc") == "2.0", f"no JSON-RPC: {message!r:.200}")
    kinds = [kind for kind in ("result", "error", "method") if kind in message]
    demand(len(kinds) == 1, f"{kinds or 'nothing'} in one message")
    try:
        if "method" in message:
            (JSONRPCRequest if "id" in message else JSONRPCNotification).model_validate(message)
        elif "error" in message:
            _check_error(message)
        else:
            JSONRPCResponse.model_validate(message)
            if method and version and (method, version) in SERVER_RESULTS and "taskId" not in message["result"]:
                validate_server_result(method, version, message["result"])
    except ValidationError as error:
        raise Find(f"not by the schema: {error!s:.500}: {message!r:.500}") from None


def _check_error(message: dict[str, Any]) -> None:
    if "id" in message:
        JSONRPCError.model_validate(message)
    error = message["error"]
    demand(isinstance(error.get("code"), int) and isinstance(error.get("message"), str), f"no error: {error!r:.200}")
    text = json.dumps(error)
    demand(len(text) < MAX_ERROR_CHARS, f"an error of {len(text)} characters: {text[:200]}")
    demand(error["message"] not in UNEXPECTED, f"{error['message']}")
    found = INSIDE.search(error["message"])
    demand(found is None, f"an error tells of the inside: {found and found[0]!r} in {error['message']:.300}")
