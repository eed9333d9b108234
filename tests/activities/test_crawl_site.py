"""The steps of `crawl_site` against a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from temporalio.testing import ActivityEnvironment
from yarl import URL

from activities.crawl_site import open_crawl, visit_pages
from activities.secret_store import FILE_VARIABLE
from activities.web import ALLOW_PRIVATE_VARIABLE, parse_url, public
from tests.activities.conftest import Handler, Serve
from tests.activities.crawled import batch, page, site, visit
from workflows.crawl_site import CrawlArgs
from workflows.kit.errors import ToolError

pytestmark = pytest.mark.usefixtures("loopback")


async def test_a_page_gives_its_title_and_the_links_of_its_site(env: ActivityEnvironment, serve: Serve) -> None:
    base = await serve(
        site(
            {
                "/": "<title> The\n start </title><a href=/a>1</a><a href='b?q=1#part'>2</a>"
                "<a href='https://other.example/'>3</a><a href='mailto:x@y.example'>4</a><a href='/a#x'>5</a>"
            }
        )
    )
    found = await visit(env, batch(base))
    assert (found.outcome, found.title) == ("fetched", "The start")
    assert found.links == [f"{base}a", f"{base}b?q=1"]


@pytest.mark.parametrize("charset", ["idna", "punycode", "undefined", "hex", "no-such", "utf-8; x=y", "a\tb"])
async def test_a_page_in_no_known_charset_is_read_all_the_same(
    env: ActivityEnvironment, serve: Serve, charset: str
) -> None:
    answer = web.Response(body=b"<title>t</title>\xff", headers={"Content-Type": f"text/html; charset={charset}"})
    found = await visit(env, batch(await serve(site({"/": answer}))))
    assert (found.outcome, found.title) == ("fetched", "t")


async def test_a_hostile_page_does_not_keep_others_from_being_read(env: ActivityEnvironment, serve: Serve) -> None:
    base = await serve(site({"/1": "<![1]>" + "<a =" * 2000, "/2": "<title>well</title>"}))
    found = (await env.run(visit_pages, batch(base, "/1", "/2"))).visits
    assert [(v.outcome, v.title) for v in found] == [("fetched", None), ("fetched", "well")]


@pytest.mark.parametrize(
    ("answer", "outcome", "reason"),
    [
        (web.Response(status=404), "failed", "HTTP 404"),
        (web.Response(status=403), "failed", "HTTP 403"),
        (web.Response(body=b"%PDF", content_type="application/pdf"), "skipped", "it is not an HTML page"),
        (page("x" * 10_001), "skipped", "it is too large, or compressed"),
        (page("x", headers={"Content-Encoding": "gzip"}), "skipped", "it is too large, or compressed"),
        (web.Response(status=302, headers={"Location": "https://other.example/x"}), "skipped",
         "it leads to another site, https://other.example"),
        (web.Response(status=302), "failed", "HTTP 302 without a usable address"),
        (web.Response(status=302, headers={"Location": "ftp://other.example/"}), "failed",
         "HTTP 302 without a usable address"),
        (web.Response(status=302, headers={"Location": "//[]@"}), "failed", "HTTP 302 without a usable address"),
        (web.Response(status=302, headers={"Location": "http://xn--base/"}), "failed",
         "HTTP 302 without a usable address"),
    ],
)  # fmt: skip
async def test_what_is_no_page_is_skipped_or_failed_with_a_reason(
    env: ActivityEnvironment, serve: Serve, answer: web.Response, outcome: str, reason: str
) -> None:
    found = await visit(env, batch(await serve(site({"/": answer}))))
    assert (found.outcome, found.reason) == (outcome, reason)


async def test_a_redirect_on_the_site_is_reported_not_followed(env: ActivityEnvironment, serve: Serve) -> None:
    base = await serve(site({"/": web.Response(status=301, headers={"Location": "/new"}), "/new": "hello"}))
    found = await visit(env, batch(base))
    assert (found.outcome, found.links) == ("moved", [f"{base}new"])


async def test_an_unreachable_site_fails_page_by_page(env: ActivityEnvironment) -> None:
    found = await visit(env, batch("http://127.0.0.1:1/"))
    assert (found.outcome, found.reason) == ("skipped", "the site's robots.txt cannot be read")


async def test_a_busy_server_is_asked_once_more(env: ActivityEnvironment, serve: Serve) -> None:
    statuses = iter([503, 200])

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=404) if request.path == "/robots.txt" else page("x", status=next(statuses))

    assert (await visit(env, batch(await serve(answer)))).outcome == "fetched"


LOGINS = [
    web.Response(status=401, headers={"WWW-Authenticate": "Basic"}),
    web.Response(status=401),
    web.Response(status=403, headers={"WWW-Authenticate": "Bearer"}),
    web.Response(status=302, headers={"Location": "/login?next=/"}),
    web.Response(status=303, headers={"Location": "https://sso.example/oauth2/authorize"}),
    web.Response(status=302, headers={"Location": "/users/sign_in.html"}),
]


def write_secrets(folder: Path, monkeypatch: pytest.MonkeyPatch, base: str) -> None:
    """A store with `wiki` and `api` for the site at `base`, and `other` for another."""
    path = folder / "secrets.toml"
    entries = [("wiki", base), ("api", base), ("other", "https://other.example")]
    path.write_text(
        "".join(
            f'[[credentials]]\nname = "{name}"\nkind = "bearer"\ntoken = "s3cret-{name}"\nhosts = ["{host}"]\n'
            for name, host in entries
        )
    )
    path.chmod(0o600)
    monkeypatch.setenv(FILE_VARIABLE, str(path))


@pytest.mark.parametrize("answer", LOGINS, ids=range(len(LOGINS)))
async def test_a_page_that_needs_a_login_offers_the_names_of_its_site(
    env: ActivityEnvironment, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: web.Response
) -> None:
    base = await serve(site({"/": answer}))
    write_secrets(tmp_path, monkeypatch, base)
    found = await visit(env, batch(base))
    assert (found.outcome, found.credentials, found.refused) == ("login", ["wiki", "api"], None)


def guarded(seen: list[tuple[str, str | None]]) -> Handler:
    """`/in` needs the token of `wiki`; `/out` redirects to another site; the rest is open."""

    async def answer(request: web.Request) -> web.StreamResponse:
        token = request.headers.get("Authorization")
        seen.append((request.path, token))
        if request.path == "/robots.txt":
            return web.Response(status=404)
        if request.path == "/in" and token != "Bearer s3cret-wiki":
            return web.Response(status=401)
        return page("<title>inside</title>")

    return answer


async def test_a_chosen_credential_is_sent_only_where_a_login_is_asked_for(
    env: ActivityEnvironment, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str | None]] = []
    base = await serve(guarded(seen))
    write_secrets(tmp_path, monkeypatch, base)
    found = (await env.run(visit_pages, batch(base, "/open", "/in", credential="wiki"))).visits
    assert [v.outcome for v in found] == ["fetched", "fetched"]
    assert seen == [("/robots.txt", None), ("/open", None), ("/in", None), ("/in", "Bearer s3cret-wiki")]


@pytest.mark.parametrize("name", ["api", "other"])
async def test_a_credential_that_is_refused_or_not_for_the_site_is_named(
    env: ActivityEnvironment, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    seen: list[tuple[str, str | None]] = []
    base = await serve(guarded(seen))
    write_secrets(tmp_path, monkeypatch, base)
    found = await visit(env, batch(base, "/in", credential=name))
    assert (found.outcome, found.refused) == ("login", name)
    assert "Bearer s3cret-other" not in [token for _, token in seen]


async def test_no_secret_is_in_what_an_activity_reports(
    env: ActivityEnvironment,
    heartbeats: list[dict[str, Any]],
    serve: Serve,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base = await serve(guarded([]))
    write_secrets(tmp_path, monkeypatch, base)
    found = await visit(env, batch(base, "/in", credential="wiki"))
    assert "s3cret" not in found.model_dump_json() + str(heartbeats)


async def test_a_crawl_that_is_cancelled_stops_between_pages(env: ActivityEnvironment, serve: Serve) -> None:
    asked = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/robots.txt":
            return web.Response(status=404)
        asked.set()
        return page("x")

    base = await serve(answer)
    crawl = asyncio.ensure_future(env.run(visit_pages, batch(base, "/1", "/2", delay_ms=300)))
    await asked.wait()
    env.cancel()
    with pytest.raises(asyncio.CancelledError):
        await crawl


@pytest.mark.parametrize("url", ["http://127.0.0.1/", "http://[::1]/", "http://localhost:8080/", "http://2130706433/"])
async def test_a_private_address_is_refused_unless_the_operator_opens_it(
    env: ActivityEnvironment, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    assert (await env.run(open_crawl, CrawlArgs(url=url))).url.startswith("http://")
    monkeypatch.delenv(ALLOW_PRIVATE_VARIABLE)
    with pytest.raises(ToolError, match="not on the public internet"):
        await env.run(open_crawl, CrawlArgs(url=url))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_private_address_is_not_connected_to_even_if_a_batch_names_it(
    env: ActivityEnvironment, serve: Serve, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    seen: list[web.Request] = []
    base = URL(await serve(site({"/": "internal"}, seen))).with_host(host)
    monkeypatch.delenv(ALLOW_PRIVATE_VARIABLE)
    assert (await visit(env, batch(str(base)))).outcome == "skipped"
    assert seen == []


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("10.0.0.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("0.0.0.0", False),  # noqa: S104 - refused
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b:1::a00:1", False),
        ("::7f00:1", False),
        ("::ffff:0:7f00:1", False),
        ("fec0::1", False),
        ("2002:7f00:1::", False),
        ("fe80::1%eth0", False),
    ],
)
def test_only_public_addresses_are_public(address: str, expected: bool) -> None:
    assert public(address) is expected


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a.example/",
        "file:///etc/passwd",
        "a.example",
        "http://u:p@a.example/",
        "http://",
        "http://a b/",
        "http://xn--base/",
    ],
)
async def test_an_address_that_is_no_plain_web_address_is_refused(env: ActivityEnvironment, url: str) -> None:
    with pytest.raises(ToolError, match="http or https"):
        await env.run(open_crawl, CrawlArgs(url=url))


def test_addresses_get_one_canonical_form() -> None:
    same = {"HTTP://A.example:80", "http://a.example/#top", " http://a.example/"}
    assert {str(parse_url(url)) for url in same} == {"http://a.example/"}
