"""The two ways to serve one owner: no authentication, and one static token for a lab. Whoever is served is `LOCAL`.

A token is taken from exactly one Authorization header and from nowhere else: query strings end up in logs and histories
(basic/authorization).
"""

from __future__ import annotations

import hmac
import re
from typing import Final

from aiohttp import hdrs, web

from bridge.identity import LOCAL, Authenticator, Identity, Unauthenticated

TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
"""What can be sent as a bearer token (RFC 6750, b64token)."""


async def no_authentication(_request: web.Request) -> Identity:
    """Everybody is the local owner."""
    return LOCAL


def static_bearer(token: str) -> Authenticator:
    """Whoever shows `token` is the local owner.

    Raises ValueError if `token` could not be sent in an Authorization header.
    """
    if not TOKEN.fullmatch(token):
        raise ValueError("A bearer token must be one or more of A-Z a-z 0-9 - . _ ~ + / and may end in =")
    expected = token.encode("ascii")

    async def authenticate(request: web.Request) -> Identity:
        headers = request.headers.getall(hdrs.AUTHORIZATION, [])
        if not headers:
            raise Unauthenticated("Bearer")
        # Bytes, because the comparison of strings refuses what is not ASCII.
        presented = (bearer_token(headers) or "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(presented, expected):
            raise Unauthenticated('Bearer error="invalid_token"')
        return LOCAL

    return authenticate


def bearer_token(headers: list[str]) -> str | None:
    """The credentials in the one Authorization header, if its scheme is Bearer, in whatever case. Of several headers
    none counts: a proxy may go by another one.
    """
    scheme, _, credentials = headers[0].partition(" ")
    if len(headers) > 1 or scheme.lower() != "bearer":
        return None
    return credentials.strip(" ")
