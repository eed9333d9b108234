"""The page of one question: GET shows it to whoever may answer it, POST takes the answer.

What is entered leaves this module as a signal alone: in clear for a decision, sealed for a secret. It is in no log, in
no other answer, and in no page: a form that is shown again has its secret fields empty.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import HttpVersion11, hdrs, web

from bridge.errors import BridgeError
from bridge.identity import LOCAL, Unavailable
from bridge.pages.address import PageAddress
from bridge.pages.forms import content, fields
from bridge.pages.posted import BadForm, Posted, check_origin, one, posted
from bridge.pages.questions import NotKnown, NotOpen, NotYours, OpenQuestion, Questions
from bridge.pages.render import message, page
from bridge.pages.sealing import Sealer
from bridge.pages.sessions import Forms, Visitor
from bridge.pages.sign_in import SignIn
from bridge.rates import Rate
from workflows.kit.forms import content_problem

log = logging.getLogger(__name__)

MOST_VISITS_AT_ONCE: Final = 50
MOST_VISITS_PER_SECOND: Final = 5
"""Of one visitor, who is a person; each costs calls to Temporal."""

AFRESH: Final = "another-account"
"""The query that asks to sign in as somebody else."""

NOTHING_HERE: Final = "There is nothing here for you: it does not exist, is over, or is for somebody else."
"""One answer for all that a visitor may not know."""


class AnswerPage:
    """Serves the page of each question."""

    def __init__(
        self,
        address: PageAddress,
        questions: Questions,
        sign_in: SignIn,
        forms: Forms,
        sealer: Sealer | None,
        host_served: Callable[[str], bool],
    ) -> None:
        """`host_served` says which Host headers are served."""
        self._address = address
        self._questions = questions
        self._sign_in = sign_in
        self._forms = forms
        self._sealer = sealer
        self._host_served = host_served
        self._visits = Rate(MOST_VISITS_PER_SECOND, MOST_VISITS_AT_ONCE)

    def mount(self, app: web.Application) -> None:
        """Serve them."""
        path = f"{self._address.path}/{{task}}/{{key}}"
        app.router.add_get(path, self._guarded(self._show))
        app.router.add_post(path, self._guarded(self._take))
        self._sign_in.mount(app)

    def _guarded(
        self, handle: Callable[[web.Request, Visitor], Awaitable[web.Response]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """`handle` for visitors who are known, with a page for whatever goes wrong."""

        async def guarded(request: web.Request) -> web.Response:
            hosts = request.headers.getall(hdrs.HOST, [])
            if len(hosts) != 1 or request.version < HttpVersion11 or not self._host_served(hosts[0]):
                return message("Not here", "This server is not known under this name.", 403)
            try:
                if request.method == hdrs.METH_POST:
                    check_origin(request, self._address.origin)
                visitor = await self._sign_in.visitor(request)
                afresh = AFRESH in request.query and self._sign_in.switches
                if visitor is not None and not (afresh and request.method == hdrs.METH_GET):
                    if visitor.identity.principal != LOCAL.principal and not self._visits.take(
                        visitor.identity.principal.identity
                    ):
                        return message("Too often", "Wait a few seconds, then try again. Nothing was sent.", 429)
                    return await handle(request, visitor)
                if request.method == hdrs.METH_POST:
                    return self._signed_out(request)
                return await self._sign_in.begin(request, request.rel_url.raw_path, afresh=afresh)
            except NotYours:
                again = f"{request.rel_url.raw_path}?{AFRESH}"
                link = (again, "Use another account") if self._sign_in.switches else None
                return message("Nothing here", NOTHING_HERE, 404, link=link)
            except NotOpen:
                return message("Not open", "This is not asked, or not any more: somebody may have answered it.", 410)
            except NotKnown:
                return message("Try again", "Nobody can say at the moment what is asked. Try again later.", 503)
            except (BridgeError, Unavailable):
                return message("Try again", "This server cannot do this at the moment. Try again later.", 503)
            except BadForm as bad:
                return message("That did not work", bad.message, bad.status)

        return guarded

    async def _show(self, request: web.Request, visitor: Visitor) -> web.Response:
        return self._form(await self._found(request, visitor), visitor)

    async def _take(self, request: web.Request, visitor: Visitor) -> web.Response:
        form = await posted(request)
        question = await self._found(request, visitor)
        if not self._forms.accepts(one(form, "form"), visitor, question.task_id, question.key):
            return self._form(question, visitor, form, "This form was too old. Please send it again.", 403)
        action = one(form, "action")
        if action == "decline":
            return await self._answered(question, visitor, {"action": "decline"})
        if action != "accept":
            raise BadForm("The form says neither yes nor no.")
        entered = content(question.page.form, form)
        if problem := content_problem(question.page.form, entered):
            return self._form(question, visitor, form, f"{_sentence(question, problem)}.", 422)
        if not question.page.sealed:
            return await self._answered(question, visitor, {"action": "accept", "content": entered})
        if self._sealer is None:
            log.error("page.no_key", extra={"task_id": question.task_id})
            return message("Not possible", "This server has no key to seal a secret with. Tell its operator.", 503)
        sealed = self._sealer.seal(entered, question.task_id, question.key)
        return await self._answered(question, visitor, {"action": "accept", "sealed": sealed})

    async def _found(self, request: web.Request, visitor: Visitor) -> OpenQuestion:
        task_id, key = request.match_info["task"], request.match_info["key"]
        return await self._questions.find(task_id, key, visitor.identity)

    async def _answered(self, question: OpenQuestion, visitor: Visitor, response: dict[str, Any]) -> web.Response:
        await self._questions.answer(question, response, visitor.identity)
        log.info("page.answered", extra={"task_id": question.task_id, "key": question.key, "tool": question.tool})
        done = "Your answer is on its way" if response["action"] == "accept" else "You declined"
        return message(done, f"{question.tool} goes on with it. You can close this page.", 200)

    def _form(
        self,
        question: OpenQuestion,
        visitor: Visitor,
        form: Posted | None = None,
        problem: str | None = None,
        status: int = 200,
    ) -> web.Response:
        who = visitor.identity.principal
        return page(
            "question",
            status,
            question=question,
            own=question.owner.identity == who.identity,
            owner=f"{question.owner.subject} ({question.owner.issuer})",
            visitor=f"{who.subject} ({who.issuer})",
            fields=fields(question.page.form, form),
            token=self._forms.token(visitor, question.task_id, question.key),
            problem=problem,
            other_account=f"?{AFRESH}" if self._sign_in.switches else None,
        )

    def _signed_out(self, request: web.Request) -> web.Response:
        """Not a redirect: a form may not lead to another server, and what was entered is not kept."""
        link = (request.rel_url.raw_path, "Sign in again")
        return message("Signed out", "Your sign-in has ended, and nothing was sent.", 401, link=link)


def _sentence(question: OpenQuestion, problem: str) -> str:
    """The problem with a field's title in place of its name."""
    name, separator, what = problem.partition(": ")
    title = question.page.form["properties"].get(name, {}).get("title")
    return f"{title}: {what}" if separator and title else problem
