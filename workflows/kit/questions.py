"""The questions of one task: which are open, which answers were taken, and which keys are spent.

Pure state, no Temporal: the base class feeds it signals and publishes what it shows. Invariants (Tasks extension,
"Input"): a key is used once in a task's life; the first acceptable answer to an open key wins; everything else is
ignored, and uses up nothing. Acceptable is what fits, and comes from somebody who may answer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from .answerers import Answer, may_answer
from .contract import Actor, Answerer, PageForm, Principal, Wire, cut
from .forms import check_schema, content_problem
from .pages import page_problem
from .results import json_size

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


def answer_problem(
    request: Mapping[str, Any], page: PageForm | None, response: object, actor: Actor | None
) -> str | None:
    """The same for an answer by `actor`, where `page` is what the bridge's page asks for the question, if it is one of
    those.
    """
    problem = response_problem(request, response)
    if problem is not None or page is None or not isinstance(response, Mapping):
        return problem
    return page_problem(page, response, actor)


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
    answerer: Answerer | None = None
    page: PageForm | None = None
    asked_at: datetime | None = None
    answer: dict[str, Any] | None = None
    provenance: Answer | None = None


@dataclass(frozen=True)
class Giver:
    """Who sent a signal with answers, and when."""

    by: Actor | None
    at: datetime


@dataclass(eq=False)
class Question:
    """One question; `answered` resolves with the raw response, or with None when its deadline passed. `provenance` says
    whose response it is.
    """

    key: str
    name: str | None
    request: dict[str, Any]
    answerer: Answerer | None
    page: PageForm | None
    asked_at: datetime
    answered: asyncio.Future[dict[str, Any] | None]
    provenance: Answer | None = None


@dataclass
class Delivered:
    """What became of a signal's answers: whether an outstanding question was answered, whether one was that the run
    before asked and this one has not yet, and the keys of the questions whose answers were not the actor's to give.
    """

    changed: bool = False
    carried: bool = False
    refused: list[str] = field(default_factory=list)


@dataclass
class Questions:
    """All questions of a task. `new_key` makes a unique suffix, from the workflow's seeded randomness; `page_url` says
    where the page of a key is.
    """

    owner: Principal | None
    new_key: Callable[[], str]
    new_future: Callable[[], asyncio.Future[dict[str, Any] | None]]
    page_url: Callable[[str], str] = lambda key: key
    names: set[str] = field(default_factory=set)
    _open: dict[str, Question] = field(default_factory=dict)
    _carried: list[CarriedQuestion] = field(default_factory=list)
    offers: dict[str, Any] = field(default_factory=dict)
    offered_by: dict[str, Answer] = field(default_factory=dict)

    def outstanding(self) -> dict[str, dict[str, Any]]:
        """Every question without an answer, by key, in the order asked."""
        return {question.key: question.request for question in self._outstanding()}

    def answerers(self) -> dict[str, Answerer]:
        """Who may answer them, of those that say it."""
        return {question.key: question.answerer for question in self._outstanding() if question.answerer is not None}

    def size_with(self, request: Mapping[str, Any], page: PageForm | None) -> int:
        """Bytes of JSON of all that is outstanding, with one more question and what its page asks: all in one view."""
        forms = [each.form for each in (*self.page_forms().values(), page) if each is not None]
        return json_size([*self.outstanding().values(), request, *forms])

    def page_forms(self) -> dict[str, PageForm]:
        """What the bridge's pages ask for them, of those that have one."""
        return {question.key: question.page for question in self._outstanding() if question.page is not None}

    def ask(
        self,
        name: str | None,
        request: dict[str, Any],
        now: datetime,
        answerer: Answerer | None = None,
        page: PageForm | None = None,
    ) -> Question:
        """Open a question, or take up the same one that was open before the run continued as new. The address of a
        question with a `page` is put in here, because it has the key in it.
        """
        for carried in self._carried:
            again = self._addressed(request, carried.key, page)
            if (carried.name, carried.request, carried.answerer, carried.page) == (name, again, answerer, page):
                self._carried.remove(carried)
                question = self._opened(carried.key, name, request, answerer, page, carried.asked_at or now)
                if carried.answer is not None:
                    question.provenance = carried.provenance
                    question.answered.set_result(carried.answer)
                return question
        if name is None:
            return self._opened(f"q-{self.new_key()}", None, request, answerer, page, now)
        if name in self.names:
            return self._opened(f"{name}-{self.new_key()}", name, request, answerer, page, now)
        self.names.add(name)
        question = self._opened(name, name, request, answerer, page, now)
        offer, offered_by = self.offers.pop(name, None), self.offered_by.pop(name, None)
        if offer is not None and may_answer(answerer, self.owner, offered_by.by if offered_by else None):
            self._answer(question, offer, offered_by)
        return question

    def close(self, question: Question) -> None:
        """Forget a question that was read, or whose asker went away."""
        self._open.pop(question.key, None)

    def deliver(self, responses: Mapping[str, Any], giver: Giver, *, offered: bool) -> Delivered:
        """Take answers. Never raises, whatever the values are."""
        delivered = Delivered()
        for key, response in responses.items():
            known = self._open.get(key) or next((carried for carried in self._carried if carried.key == key), None)
            provenance = Answer(key=cut(key, MAX_KEY_CHARS), by=giver.by, at=giver.at)
            if known is None:
                if offered and key not in self.names and key not in self.offers:
                    self.offers[key], self.offered_by[key] = response, provenance
            elif not may_answer(known.answerer, self.owner, giver.by):
                delivered.refused.append(key)
            elif isinstance(known, Question):
                delivered.changed |= self._answer(known, response, provenance)
            else:
                delivered.carried |= self._answer_carried(known, response, provenance)
        return delivered

    def carried(self) -> list[CarriedQuestion]:
        """What the next run must know of the open and the unread questions."""
        return [
            *self._carried,
            *(
                CarriedQuestion(
                    key=question.key,
                    name=question.name,
                    request=question.request,
                    answerer=question.answerer,
                    page=question.page,
                    asked_at=question.asked_at,
                    answer=question.answered.result() if question.answered.done() else None,
                    provenance=question.provenance,
                )
                for question in self._open.values()
            ),
        ]

    def resume(
        self,
        carried: list[CarriedQuestion],
        names: list[str],
        offers: dict[str, Any],
        offered_by: dict[str, Answer],
    ) -> None:
        """Take over from the run before; called once, before anything is asked or delivered."""
        self.offers, self.offered_by = dict(offers), dict(offered_by)
        self._carried = list(carried)
        self.names = set(names)

    def _outstanding(self) -> list[Question | CarriedQuestion]:
        carried = [question for question in self._carried if question.answer is None]
        return [*carried, *(question for question in self._open.values() if not question.answered.done())]

    def _opened(
        self,
        key: str,
        name: str | None,
        request: dict[str, Any],
        answerer: Answerer | None,
        page: PageForm | None,
        asked_at: datetime,
    ) -> Question:
        addressed = self._addressed(request, key, page)
        question = self._open[key] = Question(key, name, addressed, answerer, page, asked_at, self.new_future())
        return question

    def _addressed(self, request: dict[str, Any], key: str, page: PageForm | None) -> dict[str, Any]:
        if page is None:
            return request
        return {**request, "params": {**request["params"], "url": self.page_url(key)}}

    def _answer(self, question: Question, response: Any, provenance: Answer | None) -> bool:
        by = provenance.by if provenance else None
        if question.answered.done() or answer_problem(question.request, question.page, response, by) is not None:
            return False
        question.provenance = provenance
        question.answered.set_result(dict(response))
        return True

    def _answer_carried(self, carried: CarriedQuestion, response: Any, provenance: Answer) -> bool:
        problem = answer_problem(carried.request, carried.page, response, provenance.by)
        if carried.answer is not None or problem is not None:
            return False
        answered = carried.model_copy(update={"answer": dict(response), "provenance": provenance})
        self._carried[self._carried.index(carried)] = answered
        return True
