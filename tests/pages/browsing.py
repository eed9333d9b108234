"""A person with a browser, as far as our pages need one: links, cookies, forms."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
from multidict import CIMultiDictProxy

from tests.authserver.browser import sign_in


@dataclass(frozen=True)
class Page:
    """What came back: without cookies, which are the session's."""

    url: str
    status: int
    headers: CIMultiDictProxy[str]
    text: str

    @property
    def origin(self) -> str:
        """Of its address."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def fields(self) -> dict[str, str]:
        """The names and values of its inputs."""
        parser = _Inputs()
        parser.feed(self.text)
        return parser.found


class _Inputs(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        if tag in {"input", "textarea", "select"} and (name := told.get("name")):
            self.found.setdefault(name, told.get("value") or "")


async def visit(session: aiohttp.ClientSession, url: str, *, follow: bool = True) -> Page:
    """GET."""
    async with session.get(url, allow_redirects=follow) as response:
        return await _page(response)


async def signed_in(session: aiohttp.ClientSession, url: str, who: str) -> Page:
    """Open `url`, which leads to the authorization server, and sign in there as `who`."""
    return await _page(await sign_in(session, url, who))


async def send(
    session: aiohttp.ClientSession, page: Page, entered: dict[str, Any], *, to: str = "", **headers: str
) -> Page:
    """POST the page's form with what was entered, as a browser does it."""
    form = {"form": page.fields.get("form", ""), "action": "accept", **entered}
    sent = {"Origin": page.origin, **headers}
    data = aiohttp.FormData([(name, value) for name, value in form.items() if value is not None])
    async with session.post(urljoin(page.url, to), data=data, headers=sent, allow_redirects=False) as response:
        return await _page(response)


async def _page(response: aiohttp.ClientResponse) -> Page:
    return Page(str(response.url), response.status, response.headers, await response.text())
