"""Who is signed in, in a cookie that nobody can read or make, and forms that belong to one session.

No state in the server: any replica with the same sealing keys goes on. A session ends with the credentials that it came
from, and after `SESSION` at the latest. A form is good for one question, one person, one session.
"""

from __future__ import annotations

import json
import secrets
import time
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from aiohttp import web

from bridge.identity import Identity
from bridge.seal import Seal, Unsealed
from workflows.kit.contract import Principal

SESSION: Final = timedelta(hours=1)
FORM: Final = timedelta(hours=1)
FLOW: Final = timedelta(minutes=10)
"""From leaving for the authorization server to coming back."""

MAX_COOKIE_CHARS: Final = 3_800
"""What browsers keep is 4096 bytes, with name and attributes."""

_ANYBODY: Final = Principal(issuer="", subject="")
"""Whose these cookies are is inside, and known only once they are open."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who looks at a page; `session` is empty where each request says anew who that is."""

    identity: Identity
    session: str = ""


class Cookies:
    """The cookies of the pages; `secure` where browsers come over TLS."""

    def __init__(self, keys: Sequence[str], *, secure: bool) -> None:
        self._sessions = Seal(keys, "page-session", SESSION)
        self._flows = Seal(keys, "page-sign-in", FLOW)
        self._secure = secure
        prefix = "__Host-" if secure else ""
        self._session_name = f"{prefix}mcp-tasks-session"
        self._flow_name = f"{prefix}mcp-tasks-sign-in"

    def visitor(self, request: web.Request) -> Visitor | None:
        """Who is signed in; None if nobody is, or no longer."""
        try:
            claims = _unpacked(self._sessions.open(request.cookies.get(self._session_name, ""), _ANYBODY))
        except Unsealed:
            return None
        if not time.time() < claims["end"]:
            return None
        scopes = claims["scopes"]
        identity = Identity(
            principal=Principal.model_validate(claims["principal"]),
            scopes=None if scopes is None else frozenset(scopes),
            groups=frozenset(claims["groups"]),
            expires_at=claims["end"],
        )
        return Visitor(identity, claims["id"])

    def sign_in(self, response: web.StreamResponse, identity: Identity) -> bool:
        """Sign `identity` in. Returns whether all its groups fit; those at the end are left out."""
        end = min(time.time() + SESSION.total_seconds(), identity.expires_at or float("inf"))
        claims: dict[str, Any] = {
            "id": secrets.token_urlsafe(16),
            "principal": identity.principal.to_json(),
            "scopes": None if identity.scopes is None else sorted(identity.scopes),
            "groups": sorted(identity.groups),
            "end": end,
        }
        while len(token := self._sessions.seal(_packed(claims), _ANYBODY)) > MAX_COOKIE_CHARS and claims["groups"]:
            claims["groups"] = claims["groups"][: len(claims["groups"]) * 9 // 10]
        self._set(response, self._session_name, token, max(0, int(end - time.time())))
        return len(claims["groups"]) == len(identity.groups)

    def begin_flow(self, response: web.StreamResponse, claims: Mapping[str, Any]) -> None:
        """Keep what is needed when this browser comes back from signing in."""
        self._set(response, self._flow_name, self._flows.seal(claims, _ANYBODY), int(FLOW.total_seconds()))

    def flow(self, request: web.Request) -> dict[str, Any] | None:
        """What was kept; None if this browser is not signing in."""
        try:
            return self._flows.open(request.cookies.get(self._flow_name, ""), _ANYBODY)
        except Unsealed:
            return None

    def end_flow(self, response: web.StreamResponse) -> None:
        """Forget it: a code is used once."""
        self._set(response, self._flow_name, "", 0)

    def _set(self, response: web.StreamResponse, name: str, value: str, seconds: int) -> None:
        # Lax: the page is opened by a link, and by the way back from signing in
        response.set_cookie(name, value, max_age=seconds, path="/", httponly=True, samesite="Lax", secure=self._secure)


class Forms:
    """Tokens against forms that another site, another person, or an earlier session made."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._seal = Seal(keys, "page-form", FORM)

    def token(self, visitor: Visitor, *about: str) -> str:
        """What the form about that sends back."""
        return self._seal.seal({"about": list(about), "session": visitor.session}, visitor.identity.principal)

    def accepts(self, token: str, visitor: Visitor, *about: str) -> bool:
        """Whether this form was made for that, by this visitor in this session."""
        try:
            claims = self._seal.open(token, visitor.identity.principal)
        except Unsealed:
            return False
        return claims["about"] == list(about) and secrets.compare_digest(claims["session"], visitor.session)


def _packed(claims: Mapping[str, Any]) -> dict[str, Any]:
    return {"z": urlsafe_b64encode(zlib.compress(json.dumps(claims).encode(), 9)).decode()}


def _unpacked(packed: Mapping[str, Any]) -> dict[str, Any]:
    claims: dict[str, Any] = json.loads(zlib.decompress(urlsafe_b64decode(packed["z"])))
    return claims
