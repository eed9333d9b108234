"""Who calls: an authenticator turns an HTTP request into a principal before anything of its body is read.

Without authentication, and with one static token, everybody is the local owner. A token is taken from exactly one
Authorization header and from nowhere else: query strings end up in logs and histories (basic/authorization).
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable
from typing import Final

from aiohttp import hdrs, web

from workflows.kit.contract import Principal

LOCAL_OWNER: Final = Principal(issuer="local", subject="local")
"""The one principal of a server that does not tell its callers apart."""

Authenticator = Callable[[web.Request], Principal]
"""The principal of a request. Raises Unauthenticated. Must not block."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750, b64token


class Unauthenticated(Exception):
    """No valid credentials; `challenge` is the value of the WWW-Authenticate header."""

    def __init__(self, challenge: str) -> None:
        super().__init__("no valid credentials")
        self.challenge = challenge


def no_authentication(_request: web.Request) -> Principal:
    """Everybody is the local owner."""
    return LOCAL_OWNER


def static_bearer(token: str) -> Authenticator:
    """Whoever shows `token` is the local owner.

    Raises ValueError if `token` could not be sent in an Authorization header.
    """
    if not _TOKEN.fullmatch(token):
        raise ValueError("A bearer token must be one or more of A-Z a-z 0-9 - . _ ~ + / and may end in =")
    expected = token.encode("ascii")

    def authenticate(request: web.Request) -> Principal:
        headers = request.headers.getall(hdrs.AUTHORIZATION, [])
        if not headers:
            raise Unauthenticated("Bearer")
        scheme, _, credentials = headers[0].partition(" ")
        # Bytes, because the comparison of strings refuses what is not ASCII.
        presented = credentials.strip(" ").encode("utf-8", "surrogateescape")
        if len(headers) > 1 or scheme.lower() != "bearer" or not hmac.compare_digest(presented, expected):
            raise Unauthenticated('Bearer error="invalid_token"')
        return LOCAL_OWNER

    return authenticate
