"""Every way in which a crawl ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from activities.sealed_answers import KEYS_VARIABLE
from activities.secret_store import FILE_VARIABLE
from activities.web import ALLOW_PRIVATE_VARIABLE
from bridge.dev_keys import answer_public_key, new_answer_key
from bridge.pages.sealing import Sealer
from tests.activities.test_crawl_site import write_secrets
from tests.workflows_shipped.conftest import Handler, Serve
from tests.workflows_shipped.driver import TESTER, Driver, Run
from workflows.crawl_site import CrawlArgs
from workflows.kit.contract import TOOL_ERROR, Pages

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(autouse=True)
def _loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOW_PRIVATE_VARIABLE, "1")
    monkeypatch.delenv(FILE_VARIABLE, raising=False)


def site(links: dict[str, list[str]]) -> Handler:
    """Pages that link; those below `/members` need the token of `wiki`."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path not in links:
            return web.Response(status=404)
        token = request.headers.get("Authorization")
        if request.path.startswith("/members") and token != "Bearer s3cret-wiki":
            return web.Response(status=401)
        anchors = "".join(f"<a href='{link}'>" for link in links[request.path])
        return web.Response(text=f"<title>Page {request.path}</title>{anchors}", content_type="text/html")

    return answer


async def crawl(driver: Driver, base: str, **changes: Any) -> Run:
    return await driver.start("crawl_site", CrawlArgs(**{"url": base, "delay_ms": 0, **changes}))


MEMBERS = {"/": ["/members/1", "/open"], "/members/1": ["/members/2"], "/members/2": [], "/open": []}


@pytest_asyncio.fixture(loop_scope="session")
async def members(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A site with a part for members, and a store that has credentials for it."""
    base = await serve(site(MEMBERS))
    write_secrets(tmp_path, monkeypatch, base)
    return base


async def test_a_crawl_finds_the_pages_of_a_site(driver: Driver, serve: Serve) -> None:
    base = await serve(site({"/": ["/a", "/gone"], "/a": ["/", "/b"], "/b": []}))
    result = await (await crawl(driver, base)).result(record="crawl_site.completed")
    assert [(page["url"], page["title"]) for page in result["pages"]] == [
        (base, "Page /"),
        (f"{base}a", "Page /a"),
        (f"{base}b", "Page /b"),
    ]
    assert result["problems"] == [{"url": f"{base}gone", "reason": "HTTP 404"}]
    assert (result["fetched"], result["failed"], result["not_visited"], result["stopped"]) == (3, 1, 0, False)


async def test_limits_end_a_crawl(driver: Driver, serve: Serve) -> None:
    base = await serve(site({"/": ["/a"], "/a": ["/b"], "/b": ["/c"], "/c": []}))
    deep = await (await crawl(driver, base, max_depth=1)).result()
    assert [page["title"] for page in deep["pages"]] == ["Page /", "Page /a"]
    many = await (await crawl(driver, base, max_pages=2)).result()
    assert (many["fetched"], many["not_visited"]) == (2, 1)


async def test_a_login_is_asked_about_by_the_names_of_credentials(driver: Driver, members: str) -> None:
    run = await crawl(driver, members)
    key, params = await run.question()
    assert params["message"] == f"{members}members/1 needs a login. How should the crawl go on?"
    options = params["requestedSchema"]["properties"]["choice"]["oneOf"]
    assert [option["title"] for option in options] == [
        "Use the credential wiki",
        "Use the credential api",
        "Skip this page",
        "Skip every page that needs a login",
        "Stop here",
    ]
    await run.respond({key: {"action": "decline"}})
    await run.result()


async def test_a_chosen_credential_opens_the_members_pages_and_stays_a_name(driver: Driver, members: str) -> None:
    run = await crawl(driver, members)
    await run.choose("Use the credential wiki")
    result = await run.result(record="crawl_site.signed_in")
    assert (result["fetched"], result["skipped"]) == (4, 0)
    assert "s3cret" not in await run.history()


async def test_a_credential_that_is_refused_is_asked_about_again_without_it(driver: Driver, members: str) -> None:
    run = await crawl(driver, members)
    first = await run.choose("Use the credential api")
    _, params = await run.question(other_than=first)
    assert "The credential api was refused." in params["message"]
    assert "use:api" not in str(params["requestedSchema"])
    await run.choose("Use the credential wiki", other_than=first)
    assert (await run.result(record="crawl_site.refused"))["fetched"] == 4


@pytest.mark.parametrize("label", ["Skip this page", "Skip every page"])
async def test_a_skipped_login_page_is_told(driver: Driver, members: str, label: str) -> None:
    run = await crawl(driver, members)
    await run.choose(label)
    result = await run.result(record=f"crawl_site.skipped_{label.split()[1]}")
    assert (result["fetched"], result["skipped"]) == (2, 1)
    assert result["problems"] == [{"url": f"{members}members/1", "reason": "needs a login"}]


PRIVATE = new_answer_key()
OPENS_PAGES: dict[str, Any] = {
    "pages": Pages(url="https://mcp.example/pages", seals=True),
    "client_capabilities": {"elicitation": {"form": {}, "url": {}}},
}


async def entered(run: Run, password: str, *, other_than: str = "") -> str:
    """Choose to enter something, and enter it as the page would; returns the last key."""
    asked = await run.choose("Enter a user name", other_than=other_than)
    key, params = await run.question(other_than=asked)
    assert params["mode"] == "url" and params["url"] == f"https://mcp.example/pages/{run.handle.id}/{key}"
    await run.respond({key: {"action": "accept"}})
    content = {"username": "", "password": password}
    sealed = Sealer(answer_public_key(PRIVATE)).seal(content, run.handle.id, key)
    await run.respond({key: {"action": "accept", "sealed": sealed}}, TESTER.model_copy(update={"channel": "page"}))
    return key


async def test_what_was_entered_opens_the_members_pages_and_is_nowhere(
    driver: Driver, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused at first, and asked for again."""
    monkeypatch.setenv(KEYS_VARIABLE, PRIVATE.get_secret_value())
    arguments = CrawlArgs(url=await serve(site(MEMBERS)), delay_ms=0)
    run = await driver.start("crawl_site", arguments, **OPENS_PAGES)
    first = await entered(run, "wr0ng-s3cret")
    _, params = await run.question(other_than=first)
    assert "What was entered was refused." in params["message"]
    await entered(run, "s3cret-wiki", other_than=first)
    assert (await run.result(record="crawl_site.entered"))["fetched"] == 4
    assert "s3cret" not in await run.history()


async def test_entering_may_be_declined(driver: Driver, serve: Serve) -> None:
    arguments = CrawlArgs(url=await serve(site(MEMBERS)), delay_ms=0)
    run = await driver.start("crawl_site", arguments, **OPENS_PAGES)
    asked = await run.choose("Enter a user name")
    key, _ = await run.question(other_than=asked)
    await run.respond({key: {"action": "decline"}})
    assert (await run.result(record="crawl_site.not_entered"))["skipped"] == 1


@pytest.mark.parametrize(
    "memo",
    [
        {"client_capabilities": OPENS_PAGES["client_capabilities"]},
        {"pages": OPENS_PAGES["pages"]},
        OPENS_PAGES | {"pages": Pages(url="https://mcp.example/pages")},
    ],
    ids=["no pages", "a client without URLs", "no key to seal with"],
)
async def test_entering_is_offered_only_where_it_can_be_done(
    driver: Driver, serve: Serve, memo: dict[str, Any]
) -> None:
    run = await driver.start("crawl_site", CrawlArgs(url=await serve(site(MEMBERS)), delay_ms=0), **memo)
    _, params = await run.question()
    assert "Enter" not in str(params["requestedSchema"])
    await run.choose("Stop here")
    await run.result()


async def test_a_stopped_crawl_tells_what_it_found(driver: Driver, members: str) -> None:
    run = await crawl(driver, members)
    await run.choose("Stop here")
    result = await run.result(record="crawl_site.stopped")
    assert (result["stopped"], result["fetched"], result["not_visited"]) == (True, 2, 1)


async def test_a_start_page_that_cannot_be_had_is_a_tool_error(driver: Driver, serve: Serve) -> None:
    base = await serve(site({}))
    failure = await (await crawl(driver, base)).failure(record="crawl_site.tool_error")
    assert (failure.type, failure.message) == (TOOL_ERROR, f"{base} could not be crawled: HTTP 404.")


async def test_a_crawl_can_be_cancelled_while_it_visits(driver: Driver, serve: Serve) -> None:
    asked, never = asyncio.Event(), asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/robots.txt":
            return web.Response(status=404)
        asked.set()
        await never.wait()
        return web.Response()

    run = await crawl(driver, await serve(answer))
    await asked.wait()
    await run.handle.cancel()
    await run.cancelled(record="crawl_site.cancelled")
    never.set()


async def test_a_long_crawl_continues_as_new_and_visits_each_page_once(driver: Driver, serve: Serve) -> None:
    seen: list[str] = []
    pages = site({"/": [f"/{number}" for number in range(119)], **{f"/{number}": ["/"] for number in range(119)}})

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(request.path)
        return await pages(request)

    run = await crawl(driver, await serve(answer), max_pages=500)
    result = await run.result(record="crawl_site.continued")
    assert result["fetched"] == 120
    visited = [path for path in seen if path != "/robots.txt"]
    assert len(visited) == len(set(visited)) == 120
    described = await run.handle.describe()
    assert described.run_id != run.handle.first_execution_run_id
