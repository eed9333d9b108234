"""Task ids: what a workflow id is made of.

An id is unguessable, header-safe (it travels in `Mcp-Name`) and the server's own: random, unless the same run has to be
found again by who only knows a name of their own for it. Then it is a keyed HMAC of the owner and that name, which
nobody can compute or guess without the deployment's keys: a creation key names a task, and a client of an older
revision names a call that waits by its session and request id, to cancel it at any replica.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Sequence
from typing import Final

from bridge.jsonrpc import RequestId
from workflows.kit.contract import Principal

PREFIX: Final = "task-"
_HEX_DIGITS: Final = 32
"""128 bits."""


def random_id() -> str:
    """An id that nothing else has."""
    return PREFIX + secrets.token_hex(_HEX_DIGITS // 2)


class TaskIds:
    """Ids that can be found again. Each is a list, one for each key of the ring: the first is given to new runs, the
    others are where runs of before a rotation are.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = [hmac.digest(key.encode(), b"mcp-temporal-tasks/task-id", hashlib.sha256) for key in keys]

    def of_creation_key(self, owner: Principal, creation_key: str) -> list[str]:
        """Where the task is that `owner` created with this key."""
        return self._named("creation", owner, creation_key)

    def of_request(self, owner: Principal, session: str, request_id: RequestId) -> list[str]:
        """Where the run is that this request of a session started."""
        return self._named("request", owner, session, request_id)

    def _named(self, kind: str, owner: Principal, *name: RequestId) -> list[str]:
        text = json.dumps([kind, owner.issuer, owner.subject, *name]).encode()
        return [PREFIX + hmac.new(key, text, hashlib.sha256).hexdigest()[:_HEX_DIGITS] for key in self._keys]
