"""A person with a browser, as far as signing in needs one: redirects, cookies, a form with a name and a password."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Final
from urllib.parse import urljoin

import aiohttp

PASSWORD: Final = "any will do"


class _Forms(HTMLParser):
    """The action and the fields of the first form of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.action: str | None = None
        self.fields: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        if tag == "form" and self.action is None:
            self.action = told.get("action") or ""
        elif tag == "input" and (name := told.get("name")):
            self.fields[name] = told.get("value") or ""


def browser() -> aiohttp.ClientSession:
    """A new one, without cookies; it takes those of 127.0.0.1, which are the same for all ports."""
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))


async def sign_in(session: aiohttp.ClientSession, url: str, who: str) -> aiohttp.ClientResponse:
    """Open `url`, sign in as `who` at the authorization server that it leads to, and follow where that leads.

    The answer is the last page; whose cookies the session has from then on is signed in.
    """
    async with session.get(url) as page:
        form = _Forms()
        form.feed(await page.text())
        assert form.action is not None and "password" in form.fields, f"{page.url} is no page to sign in"
        target = urljoin(str(page.url), form.action)
    response = await session.post(target, data={**form.fields, "login": who, "password": PASSWORD})
    await response.read()
    return response
