"""What a tool returns becomes a CallToolResult, whole and small enough, or the tool fails and says why.

Temporal retries for ever a workflow task whose outcome it cannot store, so nothing may leave here that is not plain
JSON below `MAX_PAYLOAD_BYTES`. NaN and infinities, which JSON has no word for, become null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel
from temporalio.api.failure.v1 import Failure
from temporalio.converter import DefaultFailureConverterWithEncodedAttributes, PayloadConverter
from temporalio.exceptions import ApplicationError, FailureError

from .contract import JSONRPC_ERROR, MAX_DEPTH, MAX_PAYLOAD_BYTES, cut
from .errors import JsonRpcError, ToolError

MAX_CAUSES: Final = 20
"""Causes kept with a failure; a protocol message nested 100 deep cannot be read by Temporal."""


def call_tool_result(value: object) -> dict[str, Any]:
    """`value` as a CallToolResult: a model or any other JSON value is structured content and text, a string is text,
    None is nothing, and a mapping with a `content` list is taken for a CallToolResult as it is.

    Raises:
        ToolError: The result is larger than `MAX_PAYLOAD_BYTES`, or nested deeper than `MAX_DEPTH`.
        TypeError, ValueError: The value has no JSON form.
    """
    try:
        data = plain_json(value)
    except TooDeep as error:
        raise ToolError(f"The result is {error}.") from None
    result: dict[str, Any]
    if isinstance(value, Mapping) and isinstance(data.get("content"), list):
        result = data
    elif data is None:
        result = {"content": []}
    elif isinstance(data, str):
        result = {"content": [_text(data)]}
    else:
        result = {"content": [_text(json.dumps(data, ensure_ascii=False))], "structuredContent": data}
    size = json_size(result)
    if size > MAX_PAYLOAD_BYTES:
        raise ToolError(f"The result is too large: {size} bytes of JSON, the limit is {MAX_PAYLOAD_BYTES}.")
    return result


def storable(error: FailureError, converter: PayloadConverter) -> FailureError:
    """`error` if Temporal can store it; else, of an application error, the most that it can: without its causes, or
    without its details too, with a message that says so.
    """
    if can_be_stored(error, converter) or not isinstance(error, ApplicationError):
        return error
    alone = ApplicationError(cut(error.message), *error.details, type=error.type, non_retryable=error.non_retryable)
    if can_be_stored(alone, converter):
        return alone
    limits = f"{MAX_PAYLOAD_BYTES} bytes of JSON, {MAX_DEPTH} levels"
    message = f"{error.message} (The details cannot be kept: they are no JSON, or beyond the limits of {limits}.)"
    if error.type == JSONRPC_ERROR and error.details and isinstance(error.details[0], Mapping):
        return JsonRpcError(error.details[0].get("code", -32603), message)
    return ApplicationError(cut(message), type=error.type, non_retryable=error.non_retryable)


def loggable(error: BaseException, causes: int = MAX_CAUSES) -> BaseException:
    """`error` as a log may show it: with its traceback, at most `causes` causes, and messages of bounded length."""
    shown = type(type(error).__name__, (Exception,), {"__module__": type(error).__module__})
    copy: BaseException = shown(cut(text_of(error))).with_traceback(error.__traceback__)
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    copy.__cause__ = loggable(cause, causes - 1) if cause is not None and causes else None
    return copy


def text_of(error: BaseException) -> str:
    """The message of any exception, also of one that cannot say it."""
    try:
        return str(error)
    except Exception as unsaid:  # an author's own __str__
        return f"(no message: {type(unsaid).__name__})"


def json_size(value: object) -> int:
    """The bytes that a JSON value takes."""
    return len(json.dumps(value, ensure_ascii=False).encode())


def storable_json(value: object) -> Any:
    """`value` as JSON that can be stored.

    Raises:
        TypeError, ValueError: It has no JSON form, or it is larger than `MAX_PAYLOAD_BYTES`; the message says which.
    """
    data = plain_json(value)
    if (size := json_size(data)) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"{size} bytes of JSON, the limit is {MAX_PAYLOAD_BYTES}")
    return data


class TooDeep(ValueError):
    """A value is nested deeper than `MAX_DEPTH`."""

    def __init__(self) -> None:
        super().__init__(f"nested too deeply, the limit is {MAX_DEPTH} levels")


def plain_json(value: object, depth: int = 0) -> Any:
    """`value` with models dumped, tuples as lists and non-finite numbers as null; whatever this gives can be stored.

    Raises:
        TooDeep: It is nested deeper than `MAX_DEPTH`.
        TypeError: Something in it has no JSON form.
        UnicodeEncodeError: A string in it is no text, but has lone surrogates.
    """
    if depth > MAX_DEPTH:
        raise TooDeep
    if isinstance(value, BaseModel):
        return plain_json(value.model_dump(mode="json", by_alias=True), depth)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return _encodable(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, Mapping):
        return {_key(key): plain_json(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item, depth + 1) for item in value]
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"an object with {type(key).__name__} keys has no JSON form")
    return _encodable(key)


def _encodable(text: str) -> str:
    if not text.isascii():
        text.encode()
    return text


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def can_be_stored(error: BaseException, converter: PayloadConverter) -> bool:
    """Whether Temporal can store a failure made of `error`, also where its texts are moved into a payload: as JSON,
    whose escapes make more of them, to be encrypted.
    """
    if _causes(error) > MAX_CAUSES:
        return False
    failure = Failure()
    try:
        DefaultFailureConverterWithEncodedAttributes().to_failure(error, converter, failure)
    except Exception:  # whatever a payload converter raises for details that have no JSON form
        return False
    return failure.ByteSize() <= MAX_PAYLOAD_BYTES


def _causes(error: BaseException) -> int:
    count, cause = 0, error.__cause__
    while cause is not None and count <= MAX_CAUSES:
        count, cause = count + 1, cause.__cause__
    return count
