"""The steps of `crawl_site`: polite visits of one site's pages.

Redirects are not followed but reported, so that every address passes the same checks (same site, robots.txt,
limits), and a credential goes to no address but the one that asked for it. What a person entered is opened here, and
goes to the site that it was entered for, where that asks for it. Visits only read, so a batch may be repeated.
"""

from __future__ import annotations

import asyncio
from typing import Final

import aiohttp
from yarl import URL

from workflows import crawl_site as signatures
from workflows.crawl_site import MAX_URL, Batch, CrawlArgs, Entered, SiteLogin, Start, Visit, Visits
from workflows.kit.errors import ToolError

from . import web
from .html_page import decoded, read_page
from .robots import read_robots
from .sealed_answers import opened
from .secret_store import SecretStore, basic, bearer, open_store, origin
from .signature import implements
from .steps import Step, beating

_PAGES: Final = frozenset({"text/html", "application/xhtml+xml"})
_LOGIN_WORDS: Final = frozenset({"login", "log-in", "log_in", "signin", "sign-in", "sign_in", "sso", "auth", "oauth2"})


@implements(signatures.open_crawl)
async def open_crawl(request: CrawlArgs) -> Start:
    """Check the start address.

    Raises:
        ToolError: It is not one that may be visited.
    """
    url = web.parse_url(request.url)
    if url is None or len(str(url)) > MAX_URL:
        raise ToolError("The address must be a http or https URL without a user name, and not too long.")
    await web.check_address(url)
    return Start(url=str(url))


@implements(signatures.visit_pages)
async def visit_pages(request: Batch) -> Visits:
    """Visit the pages of one site, one after the other.

    Raises:
        ToolError: The worker's secret store cannot be used, or what was entered not be opened.
    """
    step = Step(done=request.done, total=request.total, message="Visiting pages")
    store = await asyncio.to_thread(open_store)
    entered = _EnteredLogin(request.entered) if request.entered else None
    async with beating(step), web.session() as client:
        robots = await read_robots(client, URL(request.urls[0]))
        visits: list[Visit] = []
        for url in map(URL, request.urls):
            step.message = f"Visiting {url}"
            if robots.allows(url):
                await asyncio.sleep(robots.pause(request.delay_ms / 1000))
                visits.append(await _visit(client, url, request, store, entered))
            else:
                reason = robots.problem or "robots.txt does not allow it"
                visits.append(Visit(url=str(url), outcome="skipped", reason=reason))
            step.done += 1
    return Visits(visits=visits)


class _EnteredLogin:
    """What a person entered for one site."""

    def __init__(self, entered: Entered) -> None:
        """Open it. Raises ToolError: That cannot be done here."""
        login = opened(entered.answer, SiteLogin)
        secret = login.password.get_secret_value()
        self._site = origin(URL(entered.site))
        self._authorization = basic(login.username, secret) if login.username else bearer(secret)

    def authorization(self, url: URL) -> str | None:
        """The Authorization header for `url`; None if that is another site."""
        return self._authorization if origin(url) == self._site else None


async def _visit(
    client: aiohttp.ClientSession, url: URL, request: Batch, store: SecretStore, entered: _EnteredLogin | None
) -> Visit:
    """Visit one page, with the credential if it needs a login and one was chosen, or entered for the site."""
    answer = await web.ask(client, url, max_bytes=request.max_page_bytes)
    refused, entered_refused = None, False
    if entered is not None and not isinstance(answer, str) and _challenges(answer):
        authorization = entered.authorization(url)
        if authorization is not None:
            answer = await web.ask(client, url, max_bytes=request.max_page_bytes, authorization=authorization)
            entered_refused = not isinstance(answer, str) and _challenges(answer)
    if not isinstance(answer, str) and _needs_login(url, answer) and request.credential is not None:
        authorization = store.authorization(request.credential, url)
        if authorization is not None:
            answer = await web.ask(client, url, max_bytes=request.max_page_bytes, authorization=authorization)
        refused = request.credential
    if isinstance(answer, str):
        return Visit(url=str(url), outcome="failed", reason=answer)
    if _needs_login(url, answer):
        return Visit(
            url=str(url),
            outcome="login",
            credentials=store.names_for(url),
            refused=refused,
            challenged=_challenges(answer),
            entered_refused=entered_refused,
        )
    if 300 <= answer.status < 400:
        return _moved(url, answer)
    return await _page(url, answer)


def _challenges(answer: web.Answer) -> bool:
    """401, or 403 with a challenge: a credential in a header may help."""
    return answer.status == 401 or (answer.status == 403 and "WWW-Authenticate" in answer.headers)


def _needs_login(url: URL, answer: web.Answer) -> bool:
    """A challenge, or a redirect to what looks like a login page."""
    if _challenges(answer):
        return True
    target = web.location(url, answer)
    return target is not None and any(part.lower().partition(".")[0] in _LOGIN_WORDS for part in target.path.split("/"))


def _moved(url: URL, answer: web.Answer) -> Visit:
    target = web.location(url, answer)
    if target is None:
        return Visit(url=str(url), outcome="failed", reason=f"HTTP {answer.status} without a usable address")
    if origin(target) != origin(url):
        return Visit(url=str(url), outcome="skipped", reason=f"it leads to another site, {target.origin()}")
    links = [str(target)] if len(str(target)) <= MAX_URL else []
    return Visit(url=str(url), outcome="moved", links=links)


async def _page(url: URL, answer: web.Answer) -> Visit:
    media_type, _, parameters = answer.headers.get("Content-Type", "").partition(";")
    if answer.status != 200:
        return Visit(url=str(url), outcome="failed", reason=f"HTTP {answer.status}")
    if media_type.strip().lower() not in _PAGES:
        return Visit(url=str(url), outcome="skipped", reason="it is not an HTML page")
    if answer.body is None or not answer.whole:
        return Visit(url=str(url), outcome="skipped", reason="it is too large, or compressed")
    page = await asyncio.to_thread(read_page, decoded(answer.body, parameters), url)  # megabytes take a second
    return Visit(url=str(url), outcome="fetched", title=page.title, size=len(answer.body), links=page.links)
