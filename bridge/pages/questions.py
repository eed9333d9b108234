"""Questions as the pages see them: read and answered like those of any caller, by the reader and the tasks' handlers.

`NotYours` is one answer for all that a visitor may not know: no such task, no such question, somebody else's, expired,
or credentials that are not good for answering. Only who may answer for a task learns that it asks nothing any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from mcp.shared.exceptions import MCPError

from bridge.answering import actor_of
from bridge.envelope import MODERN_VERSIONS, Peer
from bridge.errors import NotAllowed, TaskNotFound
from bridge.exchange import Caller
from bridge.identity import Identity, Scope
from bridge.reader import Reader
from bridge.rights import Right
from bridge.status import Live
from bridge.tasks import Tasks
from workflows.kit.answerers import in_words, may_answer
from workflows.kit.contract import PAGE_CHANNEL, PageForm, Principal
from workflows.kit.pages import page_form_problem

_PEER: Final = Peer(version=next(iter(MODERN_VERSIONS)), capabilities={})


class NotYours(Exception):
    """There is nothing here for this visitor."""


class NotOpen(Exception):
    """The visitor may answer for the task, and it does not ask this now: it never did, or it was answered."""


class NotKnown(Exception):
    """Nobody can tell at the moment what the task asks: no worker answers for it."""


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question that the visitor may answer. `who` may, in words, if not the owner and delegates alone."""

    task_id: str
    key: str
    tool: str
    owner: Principal
    created_at: datetime
    message: str
    page: PageForm
    who: str | None


class Questions:
    """Finds and answers questions for visitors."""

    def __init__(self, reader: Reader, tasks: Tasks) -> None:
        self._reader = reader
        self._tasks = tasks

    async def find(self, task_id: str, key: str, identity: Identity) -> OpenQuestion:
        """The question, as it is now.

        Raises:
            NotYours, NotOpen, NotKnown
            EngineUnavailable, EngineRefused: Temporal could not be asked.
        """
        if not identity.has(Scope.ANSWER):
            raise NotYours
        try:
            state = await self._reader.read(task_id, identity, Right.ANSWER, exact=True)
        except (TaskNotFound, NotAllowed):
            raise NotYours from None
        if not isinstance(state, Live):
            raise NotOpen
        request, page = (state.input_requests or {}).get(key), (state.page_forms or {}).get(key)
        if request is None:
            raise NotOpen if state.questions_known and not state.uncertain else NotKnown
        if page is None or page_form_problem(page) is not None:
            raise NotOpen
        answerer = (state.answerers or {}).get(key)
        if not may_answer(answerer, state.memo.owner, actor_of(_caller(identity), state)):
            raise NotYours
        return OpenQuestion(
            task_id=task_id,
            key=key,
            tool=state.memo.tool,
            owner=state.memo.owner,
            created_at=state.created_at,
            message=str(request.get("params", {}).get("message", "")),
            page=page,
            who=in_words(answerer) if answerer else None,
        )

    async def answer(self, question: OpenQuestion, response: Mapping[str, Any], identity: Identity) -> None:
        """Send the answer. The first one wins, and the workflow checks again whose it is.

        Raises:
            NotYours, NotOpen: Meanwhile it was answered, or taken from this visitor.
            EngineUnavailable, EngineRefused: It was not sent, as far as is known.
        """
        try:
            sent = await self._tasks.deliver(question.task_id, {question.key: dict(response)}, _caller(identity))
        except (TaskNotFound, NotAllowed, MCPError):
            raise NotYours from None
        if not sent:
            raise NotOpen


def _caller(identity: Identity) -> Caller:
    return Caller(identity=identity, channel=PAGE_CHANNEL, peer=_PEER)
