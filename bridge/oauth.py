"""The OAuth 2.1 resource server: who sent a request, by the access token in its one Authorization header.

Every request is checked on its own; nothing of a token is kept or passed on. What is shown no token, or a bad one, is
told where the way in begins (`bridge.protected_resource`). An authorization server that cannot be reached is not the
caller's fault: 503, never a refusal that would make a client throw its token away.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from aiohttp import hdrs, web

from bridge.auth import TOKEN, bearer_token
from bridge.identity import Identity, Unauthenticated
from bridge.jwks import IssuerKeys
from bridge.protected_resource import ProtectedResource
from bridge.tokens import InvalidToken, TokenRules, unverified, verified

log = logging.getLogger(__name__)


class OAuth:
    """An `Authenticator` for the tokens of some issuers."""

    def __init__(self, resource: ProtectedResource, issuers: Mapping[str, IssuerKeys], rules: TokenRules) -> None:
        self._resource: Final = resource
        self._issuers: Final = issuers
        self._rules: Final = rules

    async def __call__(self, request: web.Request) -> Identity:
        """Who sent `request`. Raises Unauthenticated and Unavailable."""
        headers = request.headers.getall(hdrs.AUTHORIZATION, [])
        if not headers or (len(headers) == 1 and headers[0].partition(" ")[0].lower() != "bearer"):
            raise Unauthenticated(self._resource.challenge())
        token = bearer_token(headers)
        if not token:
            raise self._refusal("There must be one bearer token")
        if not TOKEN.fullmatch(token):
            raise Unauthenticated(
                self._resource.challenge("invalid_request", "The Authorization header is malformed"),
                text="The Authorization header is malformed.",
                status=400,
            )
        try:
            return await self._holder(token)
        except InvalidToken as invalid:
            log.info("auth.refused why=%r", invalid.reason)
            raise self._refusal(invalid.reason) from None

    async def _holder(self, token: str) -> Identity:
        said = unverified(token, self._issuers)
        key = await self._issuers[said.issuer].key(said.key_id, said.algorithm)
        if key is None:
            raise InvalidToken("The token's key is not known")
        return verified(token, said, key, self._rules)

    def _refusal(self, reason: str) -> Unauthenticated:
        return Unauthenticated(self._resource.challenge("invalid_token", reason))
