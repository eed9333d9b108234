"""Revisions 2025-11-25 and 2025-06-18 without a server-side session: what their clients must be remembered for, they
carry themselves, sealed.

A handshake's outcome is the session token, so any replica knows what the client declared. A question of ours has an id
that says to which task and key its answer belongs, so the answer may come to any replica, with or without the token. An
answer is delivered like one of tasks/update; where it cannot be used, the client has nothing to answer any more, and
that counts as `cancel`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST, InitializeRequestParams

from bridge.answering import MayNotAnswer
from bridge.capabilities import bounded
from bridge.envelope import OLDER_VERSIONS, Peer
from bridge.errors import EngineUnavailable, TaskNotFound, TooLarge
from bridge.exchange import Caller
from bridge.identity import Identity
from bridge.jsonrpc import Notification, Refusal, RequestId, Response
from bridge.seal import Seal, Unsealed
from workflows.kit.contract import Principal
from workflows.kit.questions import ELICITATION

log = logging.getLogger(__name__)

T = TypeVar("T")

SESSION_LIFETIME: Final = timedelta(days=30)
"""Old clients seldom start over by themselves when a session has ended, so it is long; it grants nothing."""

OUTAGE_PAUSES: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between attempts to deliver an answer: its client will not send it again."""

_SESSION_NONCE_BYTES: Final = 12
"""Makes the session's name unique: request ids are, within one session."""


class Answers(Protocol):
    """What takes the answers: the handlers of `tasks/*`, without their gate."""

    async def deliver(self, task_id: str, responses: Mapping[str, Any], caller: Caller) -> bool:
        """Send answers to outstanding questions to the task."""

    async def asks(self, task_id: str, key: str, identity: Identity) -> bool:
        """Whether a question is outstanding."""


class OlderRevisions:
    """What transports need to serve clients that open with a handshake."""

    def __init__(
        self,
        *,
        sessions: Seal,
        question_ids: Seal,
        answers: Answers,
        cancel_task: Callable[[str, Principal], Awaitable[None]],
        cancel_request: Callable[[RequestId, Caller], Awaitable[None]],
        capabilities: Mapping[str, Any],
        server_info: Mapping[str, Any],
        instructions: str | None = None,
    ) -> None:
        """The last three are what a handshake tells."""
        self._sessions = sessions
        self._question_ids = question_ids
        self._answers = answers
        self._cancel_task = cancel_task
        self._cancel_request = cancel_request
        self._welcome: dict[str, Any] = {"capabilities": dict(capabilities), "serverInfo": dict(server_info)}
        if instructions:
            self._welcome["instructions"] = instructions

    def initialize(self, params: Mapping[str, Any]) -> tuple[dict[str, Any], Peer]:
        """The result of `initialize`, and the client it came from. A version that is not served is answered with the
        newest that has a handshake (2025-11-25, "Version Negotiation").

        Raises pydantic's ValidationError: The params are not those of initialize.
        """
        InitializeRequestParams.model_validate(params, by_name=False)
        requested = params["protocolVersion"]
        version = requested if requested in OLDER_VERSIONS else OLDER_VERSIONS[0]
        declared = _known_then(version, bounded(params["capabilities"]))
        peer = Peer(version=version, capabilities=declared, session=secrets.token_urlsafe(_SESSION_NONCE_BYTES))
        return {"protocolVersion": version, **self._welcome}, peer

    def token(self, peer: Peer, owner: Principal) -> str:
        """What its client sends as `Mcp-Session-Id` from now on."""
        claims = {"version": peer.version, "capabilities": peer.capabilities, "session": peer.session}
        return self._sessions.seal(claims, owner)

    def peer(self, token: str, owner: Principal) -> Peer:
        """The client that `token` was made for. Raises Refusal: 404, upon which a client starts over."""
        try:
            claims = self._sessions.open(token, owner)
        except Unsealed:
            message = "The session is unknown or has ended; send initialize again"
            raise Refusal(INVALID_REQUEST, message, status=404) from None
        return Peer(version=claims["version"], capabilities=claims["capabilities"], session=claims["session"])

    async def answered(self, response: Response, identity: Identity, channel: str) -> None:
        """Deliver the answer to a request of ours; an error counts as `cancel`, a question that is gone is ignored.

        Raises:
            Refusal: It answers nothing of ours, or nothing of this caller's, or too late, or it does not fit, or it is
                not theirs to give.
            EngineUnavailable, EngineRefused: It was not delivered.
        """
        try:
            claims = self._question_ids.open(str(response.id), identity.principal)
        except Unsealed:
            raise Refusal(INVALID_REQUEST, "This answers no open request of this server") from None
        peer = Peer(version=OLDER_VERSIONS[0], capabilities={})
        caller = Caller(identity=identity, channel=channel, peer=peer)
        task_id, key = claims["task"], claims["key"]
        if response.result is None:
            with suppress(MayNotAnswer):
                await self._refused(claims, caller)
            return
        try:
            await _through_an_outage(lambda: self._answers.deliver(task_id, {key: response.result}, caller))
        except MayNotAnswer as theirs:  # it stays open for whoever may
            raise Refusal(theirs.code, theirs.message, status=400) from None
        except (MCPError, TooLarge) as unfit:
            await self._refused(claims, caller)
            raise Refusal(unfit.code, f"{unfit.message}. It counts as cancelled", status=400) from None

    async def cancelled(self, notification: Notification, caller: Caller) -> None:
        """notifications/cancelled: end the run of the call that it names. Malformed ones are ignored, as the
        specification wants it.

        Raises:
            EngineUnavailable, EngineRefused
        """
        request_id = notification.params.get("requestId")
        if isinstance(request_id, str | int) and not isinstance(request_id, bool):
            log.info("call.cancelled id=%.80r reason=%.200r", request_id, notification.params.get("reason"))
            await self._cancel_request(request_id, caller)

    async def _refused(self, claims: Mapping[str, Any], caller: Caller) -> None:
        """Nobody will answer: an elicitation has a word for that, other requests do not, and the work ends."""
        task_id, key = claims["task"], claims["key"]
        if claims["method"] == ELICITATION:
            await _through_an_outage(lambda: self._answers.deliver(task_id, {key: {"action": "cancel"}}, caller))
        elif await _through_an_outage(lambda: self._answers.asks(task_id, key, caller.identity)):
            await _through_an_outage(lambda: self._cancel_task(task_id, caller.owner))


def _known_then(version: str, capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """What of `capabilities` that revision has: 2025-06-18 had neither URLs to visit nor tools in sampling."""
    return dict(capabilities) if version == OLDER_VERSIONS[0] else {name: {} for name in capabilities}


async def _through_an_outage(ask: Callable[[], Awaitable[T]]) -> T | None:
    """What `ask` gives, through a short outage; None of a task that is gone, which wants nothing any more.

    Raises EngineUnavailable: The outage lasts.
    """
    with suppress(TaskNotFound):
        for pause in OUTAGE_PAUSES:
            try:
                return await ask()
            except EngineUnavailable:
                await asyncio.sleep(pause)
        return await ask()
    return None
