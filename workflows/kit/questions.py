"""The questions of one task: which are open, which answers were taken, and which keys are spent.

Pure state, no Temporal: the base class feeds it signals and publishes what it shows. Invariants (Tasks extension,
"Input"): a key is used once in a task's life; the first acceptable answer to an open key wins; everything else is
ignored.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from .contract import Wire, cut
from .forms import check_schema, content_problem

ELICITATION: Final = "elicitation/create"
SAMPLING: Final = "sampling/createMessage"
ROOTS: Final = "roots/list"

MAX_KEY_CHARS: Final = 128

_ACTIONS: Final = ("accept", "decline", "cancel")
_MODES: Final = ("form", "url")
_WEB_ADDRESS: Final = re.compile(r"https?://[^\s/?#]\S*", re.IGNORECASE)
"""Where a person may be sent: other schemes (`javascript:`, `file:`) run or open something on their machine."""
_MAX_SHOWN_CHARS: Final = 100
_CAPABILITY: Final[Mapping[str, str]] = {ELICITATION: "elicitation", SAMPLING: "sampling", ROOTS: "roots"}


def needed_capability(request: Mapping[str, Any]) -> str:
    """The member of `clientCapabilities` that allows to send this input request."""
    return _CAPABILITY.get(request["method"], request["method"])


def can_be_asked(capabilities: Mapping[str, Any], request: Mapping[str, Any]) -> bool:
    """Whether a client with these declared `clientCapabilities` may be sent this input request."""
    declared = capabilities.get(needed_capability(request))
    if not isinstance(declared, Mapping):
        return False
    params = request.get("params", {})
    if request["method"] == ELICITATION:
        mode = params.get("mode", "form")
        return mode in declared or (mode == "form" and "url" not in declared)
    if request["method"] == SAMPLING and ("tools" in params or "toolChoice" in params):
        return isinstance(declared.get("tools"), Mapping)
    return True


def response_problem(request: Mapping[str, Any], response: object) -> str | None:
    """What is wrong with `response` as an answer to an input `request` (`{method, params?}`); None if it can be
    used.
    """
    if not isinstance(response, Mapping):
        return "the answer must be an object"
    method = request["method"]
    if method == ELICITATION:
        return _elicitation_problem(request.get("params", {}), response)
    if method == SAMPLING and not {"role", "content", "model"} <= response.keys():
        return "the answer needs role, content and model"
    if method == ROOTS and not isinstance(response.get("roots"), list):
        return "the answer needs a list of roots"
    return None


def _elicitation_problem(params: Mapping[str, Any], response: Mapping[str, Any]) -> str | None:
    action = response.get("action")
    if action not in _ACTIONS:
        return f"action must be one of {', '.join(_ACTIONS)}"
    if action != "accept" or params.get("mode") == "url":
        return None
    return content_problem(params["requestedSchema"], response.get("content"))


def check_request(request: Mapping[str, Any]) -> None:
    """Raises TypeError if `request` is no input request that MCP defines, or an answer to it could not be checked.

    For a request that passes, `can_be_asked` and `response_problem` raise nothing, whatever the answer is.
    """
    method, params = request.get("method"), request.get("params", {})
    if not isinstance(method, str) or method not in _CAPABILITY:
        raise TypeError(f"{cut(repr(method), _MAX_SHOWN_CHARS)} is no input request")
    if not isinstance(params, Mapping):
        raise TypeError(f"{method}: params must be an object")
    if method == ELICITATION:
        _check_elicitation(params)
    elif method == SAMPLING:
        _check_type(method, params, "messages", list)
        _check_type(method, params, "maxTokens", int)


def _check_elicitation(params: Mapping[str, Any]) -> None:
    mode = params.get("mode", "form")
    if not isinstance(mode, str) or mode not in _MODES:
        raise TypeError(f"{ELICITATION}: params.mode must be one of {', '.join(_MODES)}")
    _check_type(ELICITATION, params, "message", str)
    if mode == "form":
        check_schema("requestedSchema", params.get("requestedSchema"))
        return
    _check_type(ELICITATION, params, "url", str)
    if not _WEB_ADDRESS.fullmatch(params["url"]):
        raise TypeError(f"{ELICITATION}: params.url must be an address that begins with http:// or https://")


def _check_type(method: str, params: Mapping[str, Any], name: str, kind: type) -> None:
    value = params.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{method}: params.{name} must be of type {kind.__name__}")


def request_problem(request: object) -> str | None:
    """Why `request`, of a workflow that need not be the kit's, cannot be asked or its answers not be checked; None if
    they can.
    """
    if not isinstance(request, Mapping):
        return "an input request is an object with a method, and params that are one"
    try:
        check_request(request)
    except TypeError as problem:
        return str(problem)
    return None


def check_key(key: str | None) -> None:
    """Raises ValueError if `key` cannot name a question on the wire."""
    if key is not None and not (0 < len(key) <= MAX_KEY_CHARS and key.isprintable()):
        raise ValueError(f"a question's key must have 1 to {MAX_KEY_CHARS} printable characters")


class CarriedQuestion(Wire):
    """A question that is open, or answered but not yet read, when a run continues as new."""

    key: str
    name: str | None = None
    request: dict[str, Any]
    asked_at: datetime | None = None
    answer: dict[str, Any] | None = None


@dataclass(eq=False)
class Question:
    """One question; `answered` resolves with the raw response, or with None when its deadline passed."""

    key: str
    name: str | None
    request: dict[str, Any]
    asked_at: datetime
    answered: asyncio.Future[dict[str, Any] | None]


@dataclass
class Questions:
    """All questions of a task. `new_key` makes a unique suffix, from the workflow's seeded randomness."""

    new_key: Callable[[], str]
    new_future: Callable[[], asyncio.Future[dict[str, Any] | None]]
    names: set[str] = field(default_factory=set)
    _open: dict[str, Question] = field(default_factory=dict)
    _carried: list[CarriedQuestion] = field(default_factory=list)
    offers: dict[str, Any] = field(default_factory=dict)

    def outstanding(self) -> dict[str, dict[str, Any]]:
        """Every question without an answer, by key, in the order asked."""
        carried = {question.key: question.request for question in self._carried if question.answer is None}
        asked = {key: question.request for key, question in self._open.items() if not question.answered.done()}
        return carried | asked

    def ask(self, name: str | None, request: dict[str, Any], now: datetime) -> Question:
        """Open a question, or take up the same one that was open before the run continued as new."""
        for carried in self._carried:
            if carried.name == name and carried.request == request:
                self._carried.remove(carried)
                return self._opened(carried.key, name, request, carried.asked_at or now, carried.answer)
        if name is None:
            return self._opened(f"q-{self.new_key()}", None, request, now)
        if name in self.names:
            return self._opened(f"{name}-{self.new_key()}", name, request, now)
        self.names.add(name)
        offer = self.offers.pop(name, None)
        acceptable = offer is not None and response_problem(request, offer) is None
        return self._opened(name, name, request, now, offer if acceptable else None)

    def close(self, question: Question) -> None:
        """Forget a question that was read, or whose asker went away."""
        self._open.pop(question.key, None)

    def deliver(self, responses: Mapping[str, Any], *, offered: bool) -> bool:
        """Take answers; returns whether an outstanding question was answered. Never raises, whatever the values are."""
        changed = False
        for key, response in responses.items():
            if key in self._open:
                changed |= self._answer(self._open[key], response)
            elif not self._answer_carried(key, response) and offered and key not in self.names:
                self.offers.setdefault(key, response)
        return changed

    def carried(self) -> list[CarriedQuestion]:
        """What the next run must know of the open and the unread questions."""
        return [
            *self._carried,
            *(
                CarriedQuestion(
                    key=question.key,
                    name=question.name,
                    request=question.request,
                    asked_at=question.asked_at,
                    answer=question.answered.result() if question.answered.done() else None,
                )
                for question in self._open.values()
            ),
        ]

    def resume(self, carried: list[CarriedQuestion], names: list[str], offers: dict[str, Any]) -> None:
        """Take over from the run before; called once, before anything is asked or delivered."""
        self.offers = dict(offers)
        self._carried = list(carried)
        self.names = set(names)

    def _opened(
        self,
        key: str,
        name: str | None,
        request: dict[str, Any],
        asked_at: datetime,
        answer: dict[str, Any] | None = None,
    ) -> Question:
        question = Question(key, name, request, asked_at, self.new_future())
        if answer is not None:
            question.answered.set_result(answer)
        self._open[key] = question
        return question

    def _answer(self, question: Question, response: Any) -> bool:
        if question.answered.done() or response_problem(question.request, response) is not None:
            return False
        question.answered.set_result(dict(response))
        return True

    def _answer_carried(self, key: str, response: Any) -> bool:
        for index, carried in enumerate(self._carried):
            if carried.key != key:
                continue
            if carried.answer is None and response_problem(carried.request, response) is None:
                self._carried[index] = carried.model_copy(update={"answer": dict(response)})
            return True
        return False
