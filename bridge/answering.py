"""A caller's part in a task whose questions say who may answer them (docs/explanation/decisions/0009).

`inputRequests` are requests "from the server to the client" (Tasks extension, "Get"): a question that this caller may
not answer is none of theirs. Without one that they may, the task is shown to them as `working`, and its status message
says who is awaited. The rule itself is the workflow's, which applies it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from bridge.exchange import Caller
from bridge.rights import Right
from bridge.status import Live, TaskState
from workflows.kit.answerers import groups_named, in_words, may_answer
from workflows.kit.contract import PAGE_CHANNEL, Actor
from workflows.kit.pages import is_consent

WHOEVER_MAY: Final = "the task's owner or a delegate"
"""Who answers a question that does not say so, to those who may not."""


class MayNotAnswer(MCPError):
    """-32602: somebody else has to answer this question; `data` is `{"key", "reason"}`, as of any answer that cannot be
    used.
    """

    def __init__(self, key: str, whom: str) -> None:
        reason = f"it has to be answered by {whom}"
        message = f"The answer to {key!r} cannot be used: {reason}"
        super().__init__(INVALID_PARAMS, message, {"key": key, "reason": reason})


def actor_of(caller: Caller, state: Live) -> Actor:
    """`caller` as the task is told of them: of their groups, those that its questions name."""
    told = sorted(caller.identity.groups & groups_named((state.answerers or {}).values()))
    return Actor(**caller.owner.model_dump(exclude_none=True), channel=caller.channel, groups=told or None)


def check_may_answer(state: Live, keys: Iterable[str], actor: Actor) -> None:
    """Raises MayNotAnswer for the first of `keys` whose question is not `actor`'s to answer."""
    answerers = state.answerers or {}
    for key in keys:
        if key in answerers and not may_answer(answerers[key], state.memo.owner, actor):
            raise MayNotAnswer(key, in_words(answerers[key]))


def without_consents(state: Live, responses: Mapping[str, Any], actor: Actor) -> dict[str, Any]:
    """The responses, less those that only say that a page is opened: they are acknowledged, and answer nothing."""
    pages = {} if actor.channel == PAGE_CHANNEL else state.page_forms or {}
    return {key: response for key, response in responses.items() if not (key in pages and is_consent(response))}


def shown_to(state: TaskState, caller: Caller, rights: Collection[Right]) -> TaskState:
    """The task as `caller`, who has these rights to it, is shown it: without the questions that they may not answer."""
    if not isinstance(state, Live) or not state.input_requests:
        return state
    if not state.answerers and Right.ANSWER in rights:
        return state
    answerers, actor = state.answerers or {}, actor_of(caller, state)
    others = {
        key: (in_words(answerers[key]) if key in answerers else WHOEVER_MAY) + _where(state, key)
        for key in state.input_requests
        if Right.ANSWER not in rights or not may_answer(answerers.get(key), state.memo.owner, actor)
    }
    if not others:
        return state
    if own := {key: request for key, request in (state.input_requests or {}).items() if key not in others}:
        return replace(state, input_requests=own)
    awaited = f"Waiting for an answer by {' and '.join(dict.fromkeys(others.values()))}"
    message = state.status_message if state.uncertain else awaited
    return replace(state, status="working", input_requests=None, status_message=message, awaited=awaited)


def _where(state: Live, key: str) -> str:
    """Where a question is answered, if on a page: the link lets nobody in, so it may be passed on."""
    params = (state.input_requests or {}).get(key, {}).get("params", {})
    return f" at {params.get('url')}" if key in (state.page_forms or {}) else ""
