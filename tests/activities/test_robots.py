"""robots.txt, asked of a real server."""

from __future__ import annotations

import asyncio
import gzip
from itertools import pairwise

import pytest
from aiohttp import web
from temporalio.testing import ActivityEnvironment

from activities import robots as module
from activities.crawl_site import visit_pages
from tests.activities.conftest import Serve
from tests.activities.crawled import batch, site, visit

pytestmark = pytest.mark.usefixtures("loopback")


async def test_robots_txt_is_respected(env: ActivityEnvironment, serve: Serve) -> None:
    seen: list[web.Request] = []
    robots = web.Response(text="User-agent: *\nDisallow: /private")
    base = await serve(site({"/robots.txt": robots, "/private/a": "secret", "/open": "hello"}, seen))
    found = (await env.run(visit_pages, batch(base, "/private/a", "/open"))).visits
    assert [(v.outcome, v.reason) for v in found] == [
        ("skipped", "robots.txt does not allow it"),
        ("fetched", None),
    ]
    assert [request.path for request in seen] == ["/robots.txt", "/open"]


@pytest.mark.parametrize(
    "robots",
    [
        web.Response(status=503),
        web.Response(status=429),
        web.Response(status=302),
        web.Response(status=302, headers={"Location": "/robots.txt"}),
        web.Response(body=gzip.compress(b"User-agent: *"), headers={"Content-Encoding": "gzip"}),
        web.Response(text="User-agent: *\nDisallow: //[x"),
        web.Response(text="User-agent: *\nCrawl-delay: \N{SUPERSCRIPT TWO}"),
    ],
    ids=["503", "429", "redirect to nowhere", "endless redirect", "compressed", "no address", "no number"],
)
async def test_nothing_is_visited_when_robots_txt_cannot_be_had(
    env: ActivityEnvironment, serve: Serve, robots: web.Response
) -> None:
    seen: list[web.Request] = []
    base = await serve(site({"/robots.txt": robots, "/": "hello"}, seen))
    found = await visit(env, batch(base))
    assert (found.outcome, found.reason) == ("skipped", "the site's robots.txt cannot be read")
    assert {request.path for request in seen} == {"/robots.txt"}


async def test_a_robots_txt_that_takes_too_long_counts_as_none_to_be_had(
    env: ActivityEnvironment, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SECONDS", 0.05)

    async def answer(_: web.Request) -> web.Response:
        await asyncio.sleep(5)
        return web.Response(status=404)

    assert (await visit(env, batch(await serve(answer)))).outcome == "skipped"


@pytest.mark.parametrize("status", [401, 403, 404, 410])
async def test_a_site_without_robots_txt_allows_everything(env: ActivityEnvironment, serve: Serve, status: int) -> None:
    base = await serve(site({"/robots.txt": web.Response(status=status), "/": "hello"}))
    assert (await visit(env, batch(base))).outcome == "fetched"


async def test_the_start_of_a_large_robots_txt_counts_up_to_its_last_whole_line(
    env: ActivityEnvironment, serve: Serve
) -> None:
    start = b"User-agent: *\nDisallow: /private\n"
    filling = b"#" * (module.MAX_BYTES - len(start) - len(b"\nDisallow: /")) + b"\nDisallow: /other\n"
    base = await serve(site({"/robots.txt": web.Response(body=start + filling), "/private": "x", "/open": "x"}))
    found = (await env.run(visit_pages, batch(base, "/private", "/open"))).visits
    assert [v.outcome for v in found] == ["skipped", "fetched"]


async def test_a_robots_txt_with_a_byte_order_mark_is_read(env: ActivityEnvironment, serve: Serve) -> None:
    robots = web.Response(body="\ufeffUser-agent: *\nDisallow: /".encode())
    assert (await visit(env, batch(await serve(site({"/robots.txt": robots, "/": "x"}))))).outcome == "skipped"


@pytest.mark.parametrize(("redirects", "outcome"), [(5, "fetched"), (6, "skipped")])
async def test_five_redirects_of_robots_txt_are_followed(
    env: ActivityEnvironment, serve: Serve, redirects: int, outcome: str
) -> None:
    hops = ["/robots.txt", *(f"/hop{n}" for n in range(1, redirects)), "/rules"]
    pages: dict[str, web.Response | str] = {
        here: web.Response(status=301, headers={"Location": there}) for here, there in pairwise(hops)
    }
    pages |= {"/rules": web.Response(text="User-agent: *\nDisallow: /private"), "/private": "x", "/open": "x"}
    found = (await env.run(visit_pages, batch(await serve(site(pages)), "/private", "/open"))).visits
    assert [v.outcome for v in found] == ["skipped", outcome]


async def test_a_robots_txt_at_another_site_is_not_asked_for_but_named(env: ActivityEnvironment, serve: Serve) -> None:
    robots = web.Response(status=301, headers={"Location": "https://other.example/robots.txt"})
    found = await visit(env, batch(await serve(site({"/robots.txt": robots, "/": "x"}))))
    assert found.reason == "the site's robots.txt is at another site, https://other.example"


@pytest.mark.parametrize("delay", ["30000", "9" * 4000])
async def test_an_endless_pause_that_a_site_asks_for_is_cut(
    env: ActivityEnvironment, serve: Serve, monkeypatch: pytest.MonkeyPatch, delay: str
) -> None:
    monkeypatch.setattr(module, "MAX_CRAWL_DELAY", 0.01)
    robots = web.Response(text=f"User-agent: *\nCrawl-delay: {delay}")
    assert (await visit(env, batch(await serve(site({"/robots.txt": robots, "/": "x"}))))).outcome == "fetched"
