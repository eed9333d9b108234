"""Who calls, and what their credentials allow: what an authenticator makes of a request, and every handler goes by.

A `Principal` (issuer and subject) is who somebody is and what a task keeps of its owner. An `Identity` adds what holds
for this request alone, and is never stored: scopes, groups, and when the credentials end.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from aiohttp import web

from workflows.kit.contract import Principal

_SUBJECT: Final = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,255}")


class Scope(StrEnum):
    """What a token may be good for, beside the scopes that single tools ask for."""

    CALL = "tasks:call"
    """tools/call, and cancelling one's own tasks."""
    READ = "tasks:read"
    """tools/list, tasks/get, subscriptions/listen, resources."""
    ANSWER = "tasks:answer"
    """tasks/update, and the answer pages."""
    OPERATE = "tasks:operate"
    """Reading and cancelling the tasks of others, and the codec server; never answering for them. Includes READ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who calls.

    `scopes` is None where credentials are not told apart (no authentication, the lab's static token): everything of
    one's own is allowed then, but for operating. `expires_at` is in seconds since 1970; None if there is no end.
    """

    principal: Principal
    scopes: frozenset[str] | None = None
    groups: frozenset[str] = frozenset()
    expires_at: float | None = None

    def has(self, scope: str) -> bool:
        """Whether this identity may do what `scope` is for."""
        if self.scopes is None:
            return scope != Scope.OPERATE
        return scope in self.scopes or (scope == Scope.READ and Scope.OPERATE in self.scopes)


LOCAL: Final = Identity(principal=Principal(issuer="local", subject="local"))
"""The one caller of a server that does not tell its callers apart."""

Authenticator = Callable[[web.Request], Awaitable[Identity]]
"""Who sent a request. Raises `Unauthenticated` or `Unavailable`."""


class Unauthenticated(Exception):
    """No valid credentials. `challenge` is the value of the WWW-Authenticate header, `text` the body: 401 says that
    credentials are missing or not valid, 400 that what was sent as such is malformed.
    """

    def __init__(self, challenge: str, *, text: str = "A valid bearer token is required.", status: int = 401) -> None:
        super().__init__(text)
        self.challenge = challenge
        self.text = text
        self.status = status


class Unavailable(Exception):
    """Nobody can tell now whether the credentials are valid; it may be tried again in `retry_after` seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__("the credentials cannot be checked at the moment")
        self.retry_after = retry_after


def is_subject(value: object) -> bool:
    """Whether `value` can name somebody: text of at most 255 characters that logs and JSON can carry."""
    return isinstance(value, str) and _SUBJECT.fullmatch(value) is not None
