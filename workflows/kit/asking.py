"""Asking people: what a tool calls to put a question, and to know who answered it.

Every question goes the same way, `_ask`: it is checked before it is shown, published by the base class, and closed when
it was read or its asker went away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, Literal, TypeVar

from pydantic import ValidationError
from temporalio import workflow

from .answerers import Answer
from .approvals import Approval, Decision, digest_of
from .contract import MAX_PAYLOAD_BYTES, TASK_MEMO, Actor, Answerer, PageForm, TaskMemo
from .errors import Declined, ToolError, Unapproved
from .forms import Form, choice_schema
from .pages import page_url
from .questions import (
    ELICITATION,
    Question,
    Questions,
    can_be_asked,
    check_key,
    check_request,
    needed_capability,
)
from .results import plain_json
from .sealed import SealedAnswer, SecretForm

FormT = TypeVar("FormT", bound=Form)

SETTLE: Final = timedelta(milliseconds=1)
"""The shortest timer: what has come in the same activation is known when it fires."""


class Asking:
    """The part of a task that asks. `memo` is None in a run that nobody started as a task."""

    def __init__(self) -> None:
        """Nothing is asked yet."""
        self.memo = _task_memo()
        self._questions = Questions(
            owner=self.memo.owner if self.memo else None,
            new_key=lambda: workflow.uuid4().hex,
            new_future=lambda: asyncio.get_running_loop().create_future(),
            page_url=self._page_url,
        )
        self._answers: dict[str, Answer] = {}
        self._spent: set[str] = set()

    async def elicit(
        self,
        message: str,
        form: type[FormT],
        *,
        answered_by: Answerer | None = None,
        out_of_band: bool = False,
        key: str | None = None,
        deadline: timedelta | None = None,
        on_deadline: FormT | Literal["decline", "cancel"] = "decline",
    ) -> FormT:
        """Ask a person to fill in `form`, and wait, for as long as it takes or until `deadline`.

        `answered_by` says who may answer, `NOT_OWNER` or `group(...)`; None: whoever may answer for the task. `key`
        names the question on the wire (made unique when repeated). With `out_of_band` it is answered on a page of the
        server, by whoever signs in there: neither client nor model sees the answer. When the deadline passes,
        `on_deadline` is what happens: a form is taken as the answer, a word is raised as `Declined`. Several questions
        at once: `asyncio.gather`.

        Raises:
            Declined: It was declined or cancelled, or nobody answered in time.
            ToolError: The client did not declare that it can be asked, or the server has no pages.
        """
        schema = form.requested_schema()
        asked = message
        until = None if deadline is None else workflow.now() + deadline
        while True:
            left = None if until is None else until - workflow.now()
            content = _accepted(await self._ask(*_elicitation(asked, schema, out_of_band), answered_by, key, left))
            if content is None:
                if isinstance(on_deadline, Form):
                    return on_deadline
                raise Declined(on_deadline, expired=True)
            try:
                return form.model_validate(content)
            except ValidationError as error:  # a validator of the author's own, which the client could not know
                reasons = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
                asked = f"{message} (The last answer was not accepted: {reasons})"

    async def choose(
        self,
        message: str,
        options: Mapping[str, str],
        *,
        title: str = "Choice",
        answered_by: Answerer | None = None,
        out_of_band: bool = False,
        key: str | None = None,
        deadline: timedelta | None = None,
        on_deadline: str = "decline",
    ) -> str:
        """Ask a person to choose one of `options` (value to label) that are known only now; returns the value.

        `on_deadline` is `decline`, `cancel` or one of the values. The rest is as for `elicit`.
        """
        schema = choice_schema(options, title=title)
        content = _accepted(await self._ask(*_elicitation(message, schema, out_of_band), answered_by, key, deadline))
        if content is not None:
            return str(content["choice"])
        if on_deadline in options:
            return on_deadline
        raise Declined("cancel" if on_deadline == "cancel" else "decline", expired=True)

    async def approve(
        self,
        message: str,
        subject: object,
        *,
        answered_by: Answerer | None = None,
        out_of_band: bool = False,
        key: str | None = None,
        deadline: timedelta | None = None,
    ) -> Approval:
        """Ask a person to approve `subject`, any JSON value or model; `message` says what it is in their words, and
        its digest is shown with it. `spend` the approval right before the side effect that it is for. The rest is as
        for `elicit`.

        Raises:
            Declined: It was not approved, or nobody answered in time; `note` says why, if somebody did.
            ToolError: The client did not declare that it can be asked.
            TypeError, ValueError: `subject` has no JSON form.
        """
        digest = digest_of(subject)
        asked = f"{message}\nThis approves what has the digest {digest}."
        elicitation = _elicitation(asked, Decision.requested_schema(), out_of_band)
        question = await self._ask(*elicitation, answered_by, key, deadline)
        content = _accepted(question)
        if content is None:
            raise Declined("decline", expired=True)
        decision = Decision.model_validate(content)
        if not decision.approve:
            raise Declined("decline", note=decision.note)
        answer = question.provenance or Answer(key=question.key, at=workflow.now())
        return Approval(
            digest=digest,
            task=workflow.info().workflow_id,
            key=question.key,
            by=_bare(answer.by),
            at=answer.at,
            note=decision.note,
        )

    async def ask_secret(
        self,
        message: str,
        form: type[SecretForm],
        *,
        answered_by: Answerer | None = None,
        key: str | None = None,
        deadline: timedelta | None = None,
    ) -> SealedAnswer:
        """Ask a person for what nobody else may see, such as a password, on a page of the server.

        What comes back is sealed: give it to the activity that needs it, which opens it. It is never in clear in a
        history, a log, or a message of the client's. The rest is as for `elicit`.

        Raises:
            Declined: It was declined or cancelled, or nobody answered in time.
            ToolError: The client did not declare that it can open a page, or the server has none that takes secrets.
        """
        asked = ELICITATION, {"mode": "url", "message": message}, PageForm(form=form.requested_schema(), sealed=True)
        question = await self._ask(*asked, answered_by, key, deadline)
        response = _accepted_response(question)
        if response is None:
            raise Declined("decline", expired=True)
        sealed = response["sealed"]
        return SealedAnswer(
            task=workflow.info().workflow_id, key=question.key, key_id=sealed["keyId"], data=sealed["data"]
        )

    def can_ask_secret(self) -> bool:
        """Whether `ask_secret` can be asked of the caller: the server has pages that take secrets, and the client can
        open one.
        """
        pages, opened = self.memo and self.memo.pages, {"method": ELICITATION, "params": {"mode": "url"}}
        return bool(self.memo and pages and pages.seals and can_be_asked(self.memo.client_capabilities, opened))

    def spend(self, approval: Approval, subject: object) -> None:
        """Use up `approval` for one side effect on `subject`, before it. What was spent is known in later runs, too.

        Raises:
            Unapproved: It is for something else, of another task, or was spent before.
        """
        approval.check(subject)
        if approval.task != workflow.info().workflow_id:
            raise Unapproved("The approval was given to another task.")
        if approval.key in self._spent:
            raise Unapproved("The approval was used before. Each one is for one use.")
        self._spent.add(approval.key)

    def answer_of(self, key: str) -> Answer | None:
        """Who answered the last question of that `key`, and when; None if nobody has, since this run began."""
        return self._answers.get(key)

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        answered_by: Answerer | None = None,
        key: str | None = None,
        deadline: timedelta | None = None,
    ) -> dict[str, Any] | None:
        """The raw form of a question: any input request of MCP (`elicitation/create`, `sampling/createMessage`,
        `roots/list`).

        Returns the raw response object, or None when `deadline` passed.

        Raises:
            ToolError: The client did not declare that it can be asked, or the open questions are too large together.
            TypeError, ValueError: The request is none that MCP defines, or key or request cannot be written as JSON.
        """
        return (await self._ask(method, params, None, answered_by, key, deadline)).answered.result()

    async def _ask(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        page: PageForm | None,
        answered_by: Answerer | None,
        key: str | None,
        deadline: timedelta | None,
    ) -> Question:
        """The question, once it is answered or its deadline has passed."""
        if page is not None:
            params = {**(params or {}), "url": self._pages(page)}
        request = plain_json({"method": method} if params is None else {"method": method, "params": params})
        check_request(request)
        check_key(key)
        if answered_by is None:  # somebody else is asked by a client of their own, which says what it can be asked
            self._require_capability(request)
        size = self._questions.size_with(request, page)
        if size > MAX_PAYLOAD_BYTES:
            raise ToolError(f"The question is too large: {size} bytes of JSON, the limit is {MAX_PAYLOAD_BYTES}.")
        if key is not None:
            self._answers.pop(key, None)
        question = self._questions.ask(key, request, workflow.now(), answered_by, page)
        self._changed()
        timer = None
        if deadline is not None:
            left = question.asked_at + deadline - workflow.now()
            timer = call_later(max(left, SETTLE), lambda: _pass_deadline(question))
        try:
            await question.answered
        except asyncio.CancelledError:
            self._close_question(question, timer)
            raise
        self._close_question(question, timer)
        if key is not None and question.provenance is not None:
            self._answers[key] = question.provenance
        return question

    def _close_question(self, question: Question, timer: asyncio.TimerHandle | None) -> None:
        """Not a `finally`: a run that is dropped from a stopping worker's memory is closed outside of its loop."""
        self._questions.close(question)
        if timer is not None:
            timer.cancel()
        self._changed()

    def _require_capability(self, request: Mapping[str, Any]) -> None:
        """A client must not be asked what it did not declare (MRTR; elicitation `{}` means forms only)."""
        if self.memo is None or can_be_asked(self.memo.client_capabilities, request):
            return
        needed = needed_capability(request)
        raise ToolError(f"This tool has a question, but the client did not declare that it can answer one ({needed}).")

    def _pages(self, page: PageForm) -> str:
        """Where the server's pages are. Raises ToolError: It has none, or none for what is asked."""
        pages = self.memo.pages if self.memo else None
        if pages is None:
            raise ToolError(
                "This tool asks on a page of the server, and this server has no pages. Its operator has to set them up."
            )
        if page.sealed and not pages.seals:
            raise ToolError(
                "This tool asks for a secret, and this server has no key to seal it with. Its operator has to set one."
            )
        return pages.url

    def _page_url(self, key: str) -> str:
        pages = self.memo.pages if self.memo else None
        return page_url(pages.url if pages else "", workflow.info().workflow_id, key)

    def _changed(self) -> None:
        """The questions may have changed; the base class publishes what there is to see."""
        raise NotImplementedError


def call_later(delay: timedelta, callback: Callable[[], object]) -> asyncio.TimerHandle:
    """A durable timer: the workflow loop turns `call_later` into one."""
    return asyncio.get_running_loop().call_later(delay.total_seconds(), callback)


def _task_memo() -> TaskMemo | None:
    raw = workflow.memo_value(TASK_MEMO, default=None)
    try:
        return None if raw is None else TaskMemo.model_validate(raw)
    except ValidationError:
        workflow.logger.warning("memo.malformed")
        return None


def _elicitation(
    message: str, schema: Mapping[str, Any], out_of_band: bool
) -> tuple[str, dict[str, Any], PageForm | None]:
    if out_of_band:
        return ELICITATION, {"mode": "url", "message": message}, PageForm(form=dict(schema))
    return ELICITATION, {"mode": "form", "message": message, "requestedSchema": dict(schema)}, None


def _accepted(question: Question) -> dict[str, Any] | None:
    """The content of an accepted answer; None if the deadline passed. Raises Declined."""
    response = _accepted_response(question)
    return None if response is None else dict(response["content"])


def _accepted_response(question: Question) -> dict[str, Any] | None:
    """An accepted answer; None if the deadline passed. Raises Declined."""
    response = question.answered.result()
    if response is not None and response["action"] != "accept":
        raise Declined(response["action"])
    return response


def _bare(actor: Actor | None) -> Actor | None:
    """`actor` without what else a signal may have carried."""
    return None if actor is None else Actor(**{name: getattr(actor, name) for name in Actor.model_fields})


def _pass_deadline(question: Question) -> None:
    if not question.answered.done():
        question.answered.set_result(None)
