"""What browsers are told, so that pages of allowed origins can call and read the answers.

A preflight never has credentials, so it is answered before they are looked at; it says what may be sent, and does
nothing. Cookies are no credentials here, so `Access-Control-Allow-Credentials` is never sent. The caller has checked
the Origin: what is not allowed has been refused, and is told nothing.
"""

from __future__ import annotations

import re
from typing import Final

from aiohttp import hdrs
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PARAM_HEADER_PREFIX,
    MCP_PROTOCOL_VERSION_HEADER,
)

from bridge.headers import SESSION_HEADER, Headers

ALLOWED_HEADERS: Final = (
    hdrs.AUTHORIZATION,
    hdrs.CONTENT_TYPE,
    hdrs.ACCEPT,
    MCP_PROTOCOL_VERSION_HEADER,
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    SESSION_HEADER,
    "Last-Event-ID",
)
"""What a page may send. `Mcp-Param-*` has to be named one by one, so those that are asked for are allowed."""

EXPOSED_HEADERS: Final = (SESSION_HEADER, hdrs.RETRY_AFTER, hdrs.WWW_AUTHENTICATE)
"""What a page may read of an answer, beside its body and its status."""

PREFLIGHT_SECONDS: Final = 600
"""How long a browser need not ask again; browsers have limits of their own."""

_PARAMETER: Final = re.compile(rf"{MCP_PARAM_HEADER_PREFIX}[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.IGNORECASE)


def is_preflight(method: str, headers: Headers) -> bool:
    """Whether a browser asks whether it may send a request (Fetch, "CORS-preflight request")."""
    return method == hdrs.METH_OPTIONS and hdrs.ORIGIN in headers and hdrs.ACCESS_CONTROL_REQUEST_METHOD in headers


def preflight_headers(headers: Headers) -> dict[str, str]:
    """The answer to a preflight, beside `response_headers`."""
    asked = (name.strip() for name in headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS, "").split(","))
    parameters = [name for name in asked if _PARAMETER.fullmatch(name)]
    return {
        hdrs.ACCESS_CONTROL_ALLOW_METHODS: hdrs.METH_POST,
        hdrs.ACCESS_CONTROL_ALLOW_HEADERS: ", ".join((*ALLOWED_HEADERS, *parameters)),
        hdrs.ACCESS_CONTROL_MAX_AGE: str(PREFLIGHT_SECONDS),
    }


def response_headers(origin: str) -> dict[str, str]:
    """What every answer to a page of `origin` carries, refusals included: a page may learn why."""
    return {
        hdrs.ACCESS_CONTROL_ALLOW_ORIGIN: origin,
        hdrs.ACCESS_CONTROL_EXPOSE_HEADERS: ", ".join(EXPOSED_HEADERS),
        hdrs.VARY: hdrs.ORIGIN,
    }
