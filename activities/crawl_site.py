"""The steps of `crawl_site`: polite visits of one site's pages.

Redirects are not followed but reported, so that every address passes the same checks (same site, robots.txt,
limits), and a credential goes to no address but the one that asked for it. Visits only read, so a batch may be
repeated.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final
from urllib.robotparser import RobotFileParser

import aiohttp
from yarl import URL

from workflows import crawl_site as signatures
from workflows.crawl_site import MAX_URL, Batch, CrawlArgs, Start, Visit, Visits
from workflows.kit.errors import ToolError

from . import web
from .html_page import read_page
from .secret_store import SecretStore, open_store, origin
from .signature import implements
from .steps import Step, beating

MAX_ROBOTS_BYTES: Final = 512 * 1024
"""RFC 9309 asks for at least 500 KiB."""

MAX_CRAWL_DELAY: Final = 30.0
"""A robots.txt that asks for longer pauses than this, in seconds, gets this."""

TRIES: Final = 2
RETRY_SECONDS: Final = 1.0

_TRY_AGAIN: Final = frozenset({429, 502, 503, 504})
_PAGES: Final = frozenset({"text/html", "application/xhtml+xml"})
_LOGIN_WORDS: Final = frozenset({"login", "log-in", "log_in", "signin", "sign-in", "sign_in", "sso", "auth", "oauth2"})


@dataclass(frozen=True)
class Robots:
    """What a site's robots.txt says to us; `reachable` is false if it cannot be known, and then nothing is allowed."""

    rules: RobotFileParser
    reachable: bool

    def allows(self, url: URL) -> bool:
        """Whether `url` may be visited."""
        return self.reachable and self.rules.can_fetch(web.AGENT, str(url))

    def pause(self, asked: float) -> float:
        """Seconds to wait before each page: what was `asked`, or what the site wants if that is longer."""
        wanted = self.rules.crawl_delay(web.AGENT) if self.reachable else None
        return max(asked, min(float(wanted or 0), MAX_CRAWL_DELAY))


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
        ToolError: The worker's secret store cannot be used.
    """
    step = Step(done=request.done, total=request.total, message="Visiting pages")
    store = await asyncio.to_thread(open_store)
    async with beating(step), web.session() as client:
        robots = await read_robots(client, URL(request.urls[0]))
        visits: list[Visit] = []
        for url in map(URL, request.urls):
            step.message = f"Visiting {url}"
            if robots.allows(url):
                await asyncio.sleep(robots.pause(request.delay_ms / 1000))
                visits.append(await _visit(client, url, request, store))
            else:
                reason = "robots.txt does not allow it" if robots.reachable else "the site's robots.txt cannot be read"
                visits.append(Visit(url=str(url), outcome="skipped", reason=reason))
            step.done += 1
    return Visits(visits=visits)


async def read_robots(client: aiohttp.ClientSession, site: URL) -> Robots:
    """The rules of `site` (RFC 9309): none there means everything is allowed, not to be had means nothing is."""
    rules = RobotFileParser()
    answer = await _answer(client, site.with_path("/robots.txt"), max_bytes=MAX_ROBOTS_BYTES, authorization=None)
    if isinstance(answer, str) or answer.status >= 500:
        return Robots(rules, reachable=False)
    text = answer.body.decode("utf-8", "replace") if answer.status == 200 and answer.body else ""
    rules.parse(text.splitlines())
    return Robots(rules, reachable=True)


async def _visit(client: aiohttp.ClientSession, url: URL, request: Batch, store: SecretStore) -> Visit:
    """Visit one page, with the credential if it needs a login and one was chosen."""
    answer = await _answer(client, url, max_bytes=request.max_page_bytes, authorization=None)
    refused = None
    if not isinstance(answer, str) and _needs_login(url, answer) and request.credential is not None:
        authorization = store.authorization(request.credential, url)
        if authorization is not None:
            answer = await _answer(client, url, max_bytes=request.max_page_bytes, authorization=authorization)
        refused = request.credential
    if isinstance(answer, str):
        return Visit(url=str(url), outcome="failed", reason=answer)
    if _needs_login(url, answer):
        return Visit(url=str(url), outcome="login", credentials=store.names_for(url), refused=refused)
    if 300 <= answer.status < 400:
        return _moved(url, answer)
    return await _page(url, answer)


async def _answer(
    client: aiohttp.ClientSession, url: URL, *, max_bytes: int, authorization: str | None
) -> web.Answer | str:
    """The server's answer, or in words why there is none; tried again once if that may help."""
    for attempt in range(1, TRIES + 1):
        try:
            answer: web.Answer | str = await web.get(client, url, max_bytes=max_bytes, authorization=authorization)
        except TimeoutError:
            answer = "no answer in time"
        except (aiohttp.ClientError, ValueError):
            answer = "no connection"
        if attempt < TRIES and (isinstance(answer, str) or answer.status in _TRY_AGAIN):
            await asyncio.sleep(RETRY_SECONDS)
        else:
            return answer
    raise AssertionError  # the last attempt returns


def _needs_login(url: URL, answer: web.Answer) -> bool:
    """401, or 403 with a challenge, or a redirect to what looks like a login page."""
    if answer.status == 401 or (answer.status == 403 and "WWW-Authenticate" in answer.headers):
        return True
    target = _location(url, answer)
    return target is not None and any(part.lower().partition(".")[0] in _LOGIN_WORDS for part in target.path.split("/"))


def _moved(url: URL, answer: web.Answer) -> Visit:
    target = _location(url, answer)
    if target is None:
        return Visit(url=str(url), outcome="failed", reason=f"HTTP {answer.status} without a usable address")
    if origin(target) != origin(url):
        return Visit(url=str(url), outcome="skipped", reason=f"it leads to another site, {target.origin()}")
    links = [str(target)] if len(str(target)) <= MAX_URL else []
    return Visit(url=str(url), outcome="moved", links=links)


def _location(url: URL, answer: web.Answer) -> URL | None:
    if not 300 <= answer.status < 400 or "Location" not in answer.headers:
        return None
    try:
        return web.parse_url(str(url.join(URL(answer.headers["Location"]))))
    except ValueError:
        return None


async def _page(url: URL, answer: web.Answer) -> Visit:
    media_type, _, parameters = answer.headers.get("Content-Type", "").partition(";")
    if answer.status != 200:
        return Visit(url=str(url), outcome="failed", reason=f"HTTP {answer.status}")
    if media_type.strip().lower() not in _PAGES:
        return Visit(url=str(url), outcome="skipped", reason="it is not an HTML page")
    if answer.body is None:
        return Visit(url=str(url), outcome="skipped", reason="it is too large, or compressed")
    text = _decoded(answer.body, parameters)
    page = await asyncio.to_thread(read_page, text, url)  # parsing megabytes takes seconds
    return Visit(url=str(url), outcome="fetched", title=page.title, size=len(answer.body), links=page.links)


def _decoded(body: bytes, parameters: str) -> str:
    _, _, charset = parameters.partition("charset=")
    try:
        return body.decode(charset.strip().strip("\"'") or "utf-8", "replace")
    except LookupError:
        return body.decode("utf-8", "replace")
