"""JSON-RPC 2.0 messages as MCP restricts them: strict JSON in, plain ASCII JSON out.

One message is one JSON object (basic/index). Ids are strings or integers and are echoed with the same type and
characters; an id that cannot be read is left out of the error, because the schema does not allow null. Whatever a
client sends ends as a message or as a `Refusal`, never as another exception: a bad message costs its sender an error,
not the process.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS
from mcp_types import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR

from workflows.kit.contract import cut

RequestId = str | int

MAX_ECHO_CHARS: Final = 200
"""How much of a text that a client sent stands in an error's data."""


class Refusal(Exception):
    """A request that is not served: the JSON-RPC error to answer with, and its HTTP status where there is one."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        request_id: RequestId | None = None,
        data: Any = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.request_id = request_id
        self.data = data
        self.status = http_status(code) if status is None else status

    def to_json(self) -> dict[str, Any]:
        """The error response; without an `id` when the id could not be read."""
        return error_response(self.request_id, self.code, self.message, self.data)


@dataclass(frozen=True, slots=True)
class Request:
    """A message that is owed a response."""

    id: RequestId
    method: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Notification:
    """A message without an id; never answered."""

    method: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Response:
    """What a client answers to a request of ours, which only revisions before 2026-07-28 know. `result` is None if it
    is an error, or nothing that could be used.
    """

    id: RequestId
    result: dict[str, Any] | None


Message = Request | Notification | Response


def http_status(code: int) -> int:
    """The HTTP status of an error response with this code; 200 where the specification fixes none."""
    return ERROR_CODE_HTTP_STATUS.get(code, 200)


def result_response(request_id: RequestId, result: Mapping[str, Any]) -> dict[str, Any]:
    """The success response to a request."""
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def error_response(request_id: RequestId | None, code: int, message: str, data: Any = None) -> dict[str, Any]:
    """The error response to a request, or to something whose id could not be read (None).

    A message that repeats what was sent is cut: nobody gets megabytes back for having sent them.
    """
    error = {"code": code, "message": cut(message)} | ({} if data is None else {"data": data})
    return {"jsonrpc": "2.0"} | ({} if request_id is None else {"id": request_id}) | {"error": error}


def encode(message: Mapping[str, Any]) -> bytes:
    """One line of ASCII: all else is escaped, so no reader can take U+2028 or U+0085 for the end of a line.

    Raises ValueError or TypeError for what is not JSON, such as NaN.
    """
    return json.dumps(message, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")


def parse_message(raw: bytes, *, max_depth: int) -> Message:
    """The message in `raw`, which may nest objects and arrays `max_depth` deep, itself included.

    Raises Refusal: -32700 for what is not JSON in UTF-8, -32600 for JSON that is not one message, -32602 for a request
    whose params are not an object. The error carries the id wherever that could be read.
    """
    document = _parse_json(raw, max_depth)
    if not isinstance(document, dict):
        raise Refusal(INVALID_REQUEST, "One JSON-RPC message object is expected; batches are not supported")
    request_id = _readable_id(document)
    if "id" in document and request_id is None:
        raise Refusal(INVALID_REQUEST, "The id must be a string or an integer")
    if document.get("jsonrpc") != "2.0":
        raise Refusal(INVALID_REQUEST, 'The jsonrpc member must be "2.0"', request_id=request_id)
    if "method" not in document and ("result" in document or "error" in document):
        return _response(document, request_id)
    method = document.get("method")
    if not isinstance(method, str):
        raise Refusal(INVALID_REQUEST, "The method must be a string", request_id=request_id)
    params = document.get("params", {})
    if not isinstance(params, dict):
        if request_id is None:
            raise Refusal(INVALID_REQUEST, "The params of a notification must be an object")
        raise Refusal(INVALID_PARAMS, "The params must be an object", request_id=request_id)
    return Notification(method, params) if request_id is None else Request(request_id, method, params)


def _response(document: Mapping[str, Any], request_id: RequestId | None) -> Response:
    """A malformed result is as good as an error. Raises Refusal without an id: errors do not answer responses."""
    result = document.get("result")
    if request_id is None:
        raise Refusal(INVALID_REQUEST, "A response needs the id of the request that it answers")
    return Response(request_id, result if isinstance(result, dict) and "error" not in document else None)


def _parse_json(raw: bytes, max_depth: int) -> Any:
    try:
        text = raw.decode("utf-8-sig")
        document = _DECODER.decode(text)
    except (ValueError, RecursionError):
        # ValueError also covers undecodable bytes, integers above the interpreter's digit limit, NaN and 1e400.
        raise Refusal(PARSE_ERROR, "The message is not valid JSON in UTF-8") from None
    if text.count("{") + text.count("[") > max_depth and _deeper_than(document, max_depth):
        message = f"The message nests deeper than the limit of {max_depth} levels"
        raise Refusal(INVALID_REQUEST, message, request_id=_readable_id(document))
    if "\\ud" in text or "\\uD" in text:
        try:
            _check_unicode(document)
        except UnicodeEncodeError:
            message = "The message contains a lone surrogate, which no UTF-8 text can carry"
            raise Refusal(INVALID_REQUEST, message, request_id=_readable_id(document)) from None
    return document


def _readable_id(document: Any) -> RequestId | None:
    candidate = document.get("id") if isinstance(document, dict) else None
    if isinstance(candidate, bool) or not isinstance(candidate, str | int):
        return None
    try:
        _check_unicode(candidate)
    except UnicodeEncodeError:
        return None
    return candidate


def _check_unicode(value: Any) -> None:
    """Raise UnicodeEncodeError if a string in `value` holds a lone surrogate. `value` is known not to be deep."""
    json.dumps(value, ensure_ascii=False).encode("utf-8")


def _deeper_than(document: Any, max_depth: int) -> bool:
    """Whether `document` nests deeper than `max_depth`; by level, because recursion is what depth attacks."""
    level = [document]
    for _ in range(max_depth):
        level = [child for node in level for child in _children(node) if isinstance(child, dict | list)]
        if not level:
            return False
    return True


def _children(node: Any) -> Any:
    return node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()


def _finite(literal: str) -> float:
    number = float(literal)
    if math.isinf(number):
        raise ValueError("a number that no double can hold")
    return number


def _no_constant(literal: str) -> Any:
    raise ValueError(f"{literal} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_no_constant)
