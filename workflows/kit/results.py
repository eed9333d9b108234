"""What a tool returns becomes a CallToolResult, whole and small enough, or the tool fails saying why.

Temporal retries for ever a workflow task whose result it cannot store, so nothing may leave here that is not plain JSON
below `MAX_PAYLOAD_BYTES`. NaN and infinities, which JSON has no word for, become null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from .contract import MAX_PAYLOAD_BYTES
from .errors import ToolError


def call_tool_result(value: object) -> dict[str, Any]:
    """`value` as a CallToolResult: a model or any other JSON value is structured content and text, a string is text,
    None is nothing, and an object with a `content` list is taken for a CallToolResult as it is.

    Raises:
        ToolError: The result is larger than `MAX_PAYLOAD_BYTES`.
        TypeError: The value has no JSON form.
    """
    data = plain_json(value)
    if isinstance(data, dict) and isinstance(data.get("content"), list):
        result = data
    elif data is None:
        result = {"content": []}
    elif isinstance(data, str):
        result = {"content": [_text(data)]}
    else:
        result = {"content": [_text(json.dumps(data, ensure_ascii=False))], "structuredContent": data}
    size = len(json.dumps(result, ensure_ascii=False).encode())
    if size > MAX_PAYLOAD_BYTES:
        raise ToolError(f"The result is too large: {size} bytes of JSON, the limit is {MAX_PAYLOAD_BYTES}.")
    return result


def plain_json(value: object) -> Any:
    """`value` with models dumped, tuples as lists and non-finite numbers as null.

    Raises:
        TypeError: Something in it has no JSON form.
    """
    if isinstance(value, BaseModel):
        return plain_json(value.model_dump(mode="json", by_alias=True))
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Mapping):
        return {_key(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    raise TypeError(f"a tool cannot return {type(value).__name__}: it has no JSON form")


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a tool cannot return an object with {type(key).__name__} keys")
    return key


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}
