"""What the headers must say: media types that a browser form cannot send, and routing headers that repeat the body.

MCP mirrors the method, the name and annotated arguments into headers so that a proxy can route without reading the
body; a server that reads the body has to refuse a request whose headers tell another story
(basic/transports/streamable-http, "Header validation"). An incomplete `_meta` is told first, then
the headers, then the version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PARAM_HEADER_PREFIX,
    MCP_PROTOCOL_VERSION_HEADER,
    decode_header_value,
    find_duplicated_routing_header,
    find_invalid_x_mcp_header,
    validate_mcp_param_headers,
    x_mcp_header_map,
)
from mcp_types import HEADER_MISMATCH, INVALID_PARAMS
from multidict import CIMultiDict, CIMultiDictProxy

from bridge.envelope import (
    MODERN_VERSIONS,
    OLDER_VERSIONS,
    Peer,
    carries_version,
    classify,
    peer_of,
    unsupported_version,
)
from bridge.jsonrpc import Notification, Refusal, Request

Headers = CIMultiDict[str] | CIMultiDictProxy[str]

SESSION_HEADER: Final = "Mcp-Session-Id"

TASK_METHODS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
"""Methods whose `Mcp-Name` is the task id (Tasks extension, "Streamable HTTP")."""

_ROUTING_HEADERS: Final = (MCP_PROTOCOL_VERSION_HEADER, MCP_METHOD_HEADER, MCP_NAME_HEADER)
_LEGAL_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_ZERO_QUALITY: Final = re.compile(r"q=0(\.0*)?")


@dataclass(frozen=True, slots=True)
class Accepts:
    """Which of the two response types the client takes."""

    json: bool
    sse: bool


def accepted(values: Sequence[str]) -> Accepts:
    """The response types that these Accept headers allow; both if there are none.

    The most specific range decides for each type (RFC 9110 section 12.5.1), so `application/json;q=0, */*` means SSE
    alone.
    """
    return _accepted(",".join(values))


@lru_cache(maxsize=64)  # a client sends the same ones with each request
def _accepted(value: str) -> Accepts:
    ranges: dict[str, bool] = {}
    for element in value.split(","):
        name, *parameters = (part.strip().lower() for part in element.split(";"))
        if name:
            ranges[name] = not any(_ZERO_QUALITY.fullmatch(parameter) for parameter in parameters)

    def allows(media_type: str) -> bool:
        specific_first = (media_type, media_type.split("/")[0] + "/*", "*/*")
        return next((ranges[name] for name in specific_first if name in ranges), not ranges)

    return Accepts(json=allows("application/json"), sse=allows("text/event-stream"))


def is_json(content_types: Sequence[str]) -> bool:
    """Whether the body is declared as JSON in UTF-8. Pages may send form and text types without asking."""
    if len(content_types) != 1:
        return False
    media_type, *parameters = (part.strip().lower() for part in content_types[0].split(";"))
    charsets = [value.strip('"') for name, _, value in (p.partition("=") for p in parameters) if name == "charset"]
    return media_type == "application/json" and all(charset == "utf-8" for charset in charsets)


def is_plain(content_encodings: Sequence[str]) -> bool:
    """Whether the body is sent as it is; a compressed one would pass the size limit before it is unpacked."""
    return all(coding.strip().lower() in ("", "identity") for coding in ",".join(content_encodings).split(","))


def check_single(headers: Headers) -> None:
    """Raise Refusal if a header that says what the message is, or whose, is there twice: a proxy may read the other."""
    duplicated = find_duplicated_routing_header(headers.items())
    if duplicated is None and len(headers.getall(SESSION_HEADER, [])) > 1:
        duplicated = SESSION_HEADER
    if duplicated is not None:
        raise Refusal(HEADER_MISMATCH, f"{duplicated} header appears more than once")


def is_modern(message: Request | Notification, headers: Headers) -> bool:
    """Whether a message is of 2026-07-28 or claims to be; else it is of a revision that opens with a handshake.

    What fits neither is taken for modern, whose checks say what is missing.
    """
    version = version_header(headers)
    if carries_version(message) or version in MODERN_VERSIONS:
        return True
    return not (message.method == "initialize" or version in OLDER_VERSIONS or SESSION_HEADER in headers)


def version_header(headers: Headers) -> str:
    """The `MCP-Protocol-Version` header; empty if there is none."""
    return headers.get(MCP_PROTOCOL_VERSION_HEADER, "").strip(" \t")


def check_request(message: Request, headers: Headers, *, task_name_required: bool) -> Peer:
    """The client of a request whose `_meta`, routing headers and version are in order. `Mcp-Name` of `tasks/*` may be
    missing if it is not required, never wrong.

    Raises Refusal: -32602 for an incomplete `_meta`, -32020 for headers, -32022 for the version.
    """
    verdict = classify(message, {name: headers[name].strip(" \t") for name in _ROUTING_HEADERS if name in headers})
    if isinstance(verdict, Refusal) and verdict.code == INVALID_PARAMS:
        raise verdict
    problem = _routing_problem(headers) or _task_name_problem(message, headers, required=task_name_required)
    if problem is not None:
        raise Refusal(HEADER_MISMATCH, problem, request_id=message.id)
    if isinstance(verdict, Refusal):
        raise verdict
    return peer_of(verdict, message)


def check_notification(headers: Headers) -> None:
    """Raise Refusal unless the version header names a served version; no other is defined for notifications."""
    problem = _routing_problem(headers)
    if problem is None and MCP_PROTOCOL_VERSION_HEADER not in headers:
        problem = f"{MCP_PROTOCOL_VERSION_HEADER} header is missing"
    if problem is not None:
        raise Refusal(HEADER_MISMATCH, problem)
    if (version := version_header(headers)) not in MODERN_VERSIONS:
        raise unsupported_version(version)


def check_parameters(message: Request, schema: Mapping[str, Any], headers: Headers) -> None:
    """Raise Refusal (-32020) unless the `Mcp-Param-*` headers that `schema` declares agree with a call's arguments."""
    arguments = message.params.get("arguments")
    if not isinstance(arguments, dict | None):
        return  # not a call at all; the kernel says so
    if find_invalid_x_mcp_header(schema) is not None:
        return  # clients ignore such a tool's annotations, so there is nothing to agree with
    for token in x_mcp_header_map(schema).values():
        name = MCP_PARAM_HEADER_PREFIX + token
        if not all(_LEGAL_VALUE.fullmatch(value) for value in headers.getall(name, [])):
            raise Refusal(HEADER_MISMATCH, f"{name} header contains illegal characters", request_id=message.id)
    stripped = CIMultiDict((name, value.strip(" \t")) for name, value in headers.items())
    rejection = validate_mcp_param_headers(schema, arguments or {}, stripped)
    if rejection is not None:
        raise Refusal(rejection.code, rejection.message, request_id=message.id, data=rejection.data)


def _routing_problem(headers: Headers) -> str | None:
    for name in _ROUTING_HEADERS:
        if not _LEGAL_VALUE.fullmatch(headers.get(name, "")):
            return f"{name} header contains illegal characters; other text is sent as =?base64?...?="
    return None


def _task_name_problem(message: Request, headers: Headers, *, required: bool) -> str | None:
    task_id = message.params.get("taskId")
    if message.method not in TASK_METHODS or not isinstance(task_id, str):
        return None
    name = headers.get(MCP_NAME_HEADER)
    if name is None:
        missing = f"{MCP_NAME_HEADER} header is missing; it repeats the request body's 'taskId' parameter"
        return missing if required else None
    if decode_header_value(name.strip(" \t")) != task_id:
        return f"{MCP_NAME_HEADER} header does not match the request body's 'taskId' parameter"
    return None
