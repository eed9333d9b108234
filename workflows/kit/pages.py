"""Questions that are answered on a page of the bridge: elicitation in URL mode, unseen by client and model.

A client's `accept` to one means that its person agrees to open the page (elicitation, "Response Actions"); it answers
nothing, and uses up nothing. `decline` and `cancel` do answer. The answer itself comes from the page, by signal, of an
actor whose channel is `page`: only the bridge writes that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from .contract import PAGE_CHANNEL, Actor, PageForm
from .forms import content_problem
from .sealed import check_page_form, sealed_problem

CONSENT: Final = "accept only means that the page is opened"


def page_url(pages: str, task: str, key: str) -> str:
    """Where a question is answered: nothing in it is secret, and it lets nobody in."""
    return f"{pages}/{quote(task, safe='')}/{quote(key, safe='')}"


def is_consent(response: object) -> bool:
    """Whether a client's answer to a question of a page says no more than that the page is opened."""
    return isinstance(response, Mapping) and response.get("action") == "accept"


def page_problem(page: PageForm, response: Mapping[str, Any], actor: Actor | None) -> str | None:
    """Why this elicitation result does not answer a question of a page; None if it does."""
    if not is_consent(response):
        return None
    if actor is None or actor.channel != PAGE_CHANNEL:
        return CONSENT
    if page.sealed:
        return sealed_problem(response.get("sealed")) or (
            "the answer must be sealed" if "content" in response else None
        )
    return content_problem(page.form, response.get("content"))


def page_form_problem(page: PageForm) -> str | None:
    """Why no page can ask this, of a workflow that need not be the kit's; None if it can."""
    try:
        check_page_form("form", page.form)
    except TypeError as problem:
        return str(problem)
    return None
