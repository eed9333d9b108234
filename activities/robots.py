"""A site's robots.txt (RFC 9309), and when it cannot be known: then nothing of the site may be visited."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final
from urllib.robotparser import RobotFileParser

import aiohttp
from yarl import URL

from . import web
from .secret_store import origin

MAX_BYTES: Final = 512 * 1024
"""What is read of a larger one; RFC 9309 asks for at least 500 KiB."""

MAX_REDIRECTS: Final = 5
MAX_SECONDS: Final = 60.0
"""For all its redirects and tries; longer would take a batch's time from its pages."""

MAX_CRAWL_DELAY: Final = 30.0
"""A robots.txt that asks for longer pauses than this, in seconds, gets this."""

UNREADABLE: Final = "the site's robots.txt cannot be read"


@dataclass(frozen=True)
class Robots:
    """What a site's robots.txt says to us, or the `problem` for which it cannot be known."""

    rules: RobotFileParser
    problem: str | None = None

    def allows(self, url: URL) -> bool:
        """Whether `url` may be visited."""
        return self.problem is None and self.rules.can_fetch(web.AGENT, str(url))

    def pause(self, asked: float) -> float:
        """Seconds to wait before each page: what was `asked`, or what the site wants if that is longer."""
        wanted = self.rules.crawl_delay(web.AGENT) if self.problem is None else None
        return max(asked, min(int(wanted or 0), MAX_CRAWL_DELAY))


async def read_robots(client: aiohttp.ClientSession, site: URL) -> Robots:
    """The rules of `site`: none there means everything is allowed, not to be had means nothing is."""
    try:
        async with asyncio.timeout(MAX_SECONDS):
            return await _follow(client, site.with_path("/robots.txt"))
    except TimeoutError:
        return _unknown()


async def _follow(client: aiohttp.ClientSession, url: URL) -> Robots:
    for _ in range(MAX_REDIRECTS + 1):
        answer = await web.ask(client, url, max_bytes=MAX_BYTES)
        if isinstance(answer, str):
            return _unknown()
        if not 300 <= answer.status < 400:
            return await asyncio.to_thread(_read, answer)  # half a megabyte of rules takes a second
        target = web.location(url, answer)
        if target is None:
            return _unknown()
        if origin(target) != origin(url):
            return _unknown(f"the site's robots.txt is at another site, {target.origin()}")
        url = target
    return _unknown()


def _read(answer: web.Answer) -> Robots:
    """What an answer that is no redirect says. 4xx means that there are no rules, except "too many requests"."""
    if 400 <= answer.status < 500 and answer.status != 429:
        return _parsed("")
    if not 200 <= answer.status < 300 or answer.body is None:
        return _unknown()
    text = answer.body.decode("utf-8-sig", "replace")
    return _parsed(text if answer.whole else text.rpartition("\n")[0])  # half a path would be another rule


def _parsed(text: str) -> Robots:
    rules = RobotFileParser()
    try:
        rules.parse(text.splitlines())
    except ValueError:  # of an address or a number that is none
        return _unknown()
    return Robots(rules)


def _unknown(problem: str = UNREADABLE) -> Robots:
    return Robots(RobotFileParser(), problem)
