"""Sealed tokens: what a client keeps for us and can neither read, change, lend, nor use for another purpose.

They replace server state, so that any replica with the same key ring can go on (AES-256-GCM by the SDK's codec; the
first key seals, all unseal, which makes rotation possible). Each purpose has keys of its own, derived from the ring:
a session token is no question id, whoever presents it where.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from mcp.server.request_state import AESGCMRequestStateCodec, InvalidRequestState

from workflows.kit.contract import Principal

_EXPIRES: Final = "exp"
_OWNER: Final = "own"


class Unsealed(Exception):
    """A token that was not sealed here for this purpose, or for somebody else, or that has expired."""


class Seal:
    """Seals and opens the tokens of one purpose."""

    def __init__(self, keys: Sequence[str], purpose: str, lifetime: timedelta) -> None:
        """`keys` is the deployment's ring; `lifetime` is how long a token is good for."""
        label = f"mcp-temporal-tasks/{purpose}".encode()
        self._codec = AESGCMRequestStateCodec([hmac.digest(key.encode(), label, hashlib.sha256) for key in keys])
        self._seconds = lifetime.total_seconds()

    def seal(self, claims: Mapping[str, Any], owner: Principal) -> str:
        """A URL-safe token with `claims`, for `owner` alone."""
        body = {**claims, _EXPIRES: time.time() + self._seconds, _OWNER: _bound(owner)}
        return self._codec.seal(json.dumps(body, separators=(",", ":")).encode())

    def lengthen(self, lifetime: timedelta) -> None:
        """Seal for `lifetime` at least from now on; what is sealed already keeps its end."""
        self._seconds = max(self._seconds, lifetime.total_seconds())

    def open(self, token: str, owner: Principal) -> dict[str, Any]:
        """The claims of a token. Raises Unsealed, saying nothing of why."""
        try:
            claims: dict[str, Any] = json.loads(self._codec.unseal(token))
        except InvalidRequestState:
            raise Unsealed from None
        if not (time.time() < claims.pop(_EXPIRES)) or not hmac.compare_digest(claims.pop(_OWNER), _bound(owner)):
            raise Unsealed
        return claims


def _bound(owner: Principal) -> str:
    return hashlib.sha256(owner.identity.encode()).hexdigest()[:32]
