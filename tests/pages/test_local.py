"""Pages where no authorization server signs people in: this machine, a lab's token, a proxy."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from bridge.dev_server import free_port
from bridge.guesses import GUESSES_AT_ONCE
from bridge.pages.answer import MOST_VISITS_AT_ONCE
from tests.authserver.browser import browser
from tests.cases.client import McpClient
from tests.cases.older_client import OlderClient, first_request
from tests.cases.stack import Process, Programs
from tests.pages.browsing import send, visit
from tests.pages.conftest import MODULE, OPENS_PAGES, asked, origin_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOKEN = "a-token-of-the-lab-0123"
LEAVE = {"f.yes": "false", "f.days": "2"}


async def test_on_this_machine_everybody_is_the_local_user(local: Process) -> None:
    async with McpClient(local.url, OPENS_PAGES) as client, browser() as session:
        task_id, _, url = await asked(client, "ask_leave")
        assert url.startswith(f"{origin_of(local)}/pages/")
        page = await visit(session, url)
        assert page.status == 200 and "Called by</dt><dd>you" in page.text and "another account" not in page.text
        assert (await send(session, page, LEAVE)).status == 200
        assert (await client.finished(task_id))["result"]["structuredContent"]["yes"] is False


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:80"])
async def test_a_rebound_name_gets_no_page(local: Process, host: str, method: str) -> None:
    async with McpClient(local.url, OPENS_PAGES) as client, browser() as session:
        _, _, url = await asked(client, "ask_leave")
        async with session.request(method, url, headers={"Host": host, "Origin": f"http://{host}"}) as response:
            assert response.status == 403 and "May she go" not in await response.text()


async def test_odd_addresses_and_forms_are_no_matter(local: Process) -> None:
    async with McpClient(local.url, OPENS_PAGES) as client, browser() as session:
        task_id, _, url = await asked(client, "ask_leave")
        page = await visit(session, url)
        for odd in ("%00/x", "a%2Fb/c", f"{'x' * 2000}/k", f"{task_id}/%F0%9F%98%80", f"{task_id}/..%2F", "%FF/%FE"):
            assert (await visit(session, f"{origin_of(local)}/pages/{odd}")).status in {404, 410}, odd
        headers = {"Origin": page.origin}
        for data, kind, status in (
            (b"x" * 70_000, "application/x-www-form-urlencoded", 413),
            (b"&".join(b"a=1" for _ in range(400)), "application/x-www-form-urlencoded", 400),
            (b"\xff\xfe", "application/x-www-form-urlencoded", 400),
            (b"f.why=%ff", "application/x-www-form-urlencoded", 400),
            (b"{}", "application/json", 415),
        ):
            sent = headers | {"Content-Type": kind}
            async with session.post(url, data=data, headers=sent) as response:
                assert response.status == status, data[:10]
        token = page.fields["form"]
        for entered, status in (
            ({"action": "maybe", "form": token}, 400),
            ({"action": "accept", "form": token, "f.days": "1e999", "f.yes": "true"}, 422),
            ({"action": "accept", "form": token, "f.days": "9" * 5000, "f.yes": "true"}, 422),
            ({"action": "accept", "form": token, "f.days": "1", "f.yes": "perhaps"}, 422),
        ):
            assert (await send(session, page, entered)).status == status, entered
        assert (await client.get(task_id)).result["status"] == "input_required"


async def test_a_labs_token_is_typed(programs: Programs) -> None:
    bridge = await programs.bridge(MODULE, port=free_port(), MCP_TASKS_BEARER_TOKEN=TOKEN)
    async with McpClient(bridge.url, OPENS_PAGES, token=TOKEN) as client, browser() as session:
        task_id, _, url = await asked(client, "ask_leave")
        form = await visit(session, url)
        assert form.status == 200 and 'name="token"' in form.text and "May she go" not in form.text
        assert (await send(session, form, LEAVE)).status == 401
        path, to = "/pages/sign-in", form.fields["to"]
        for wrong in ("", "another-token-0123456", "é", f"{TOKEN}\n{TOKEN}"):
            refused = await send(session, form, {"token": wrong, "to": to}, to=path)
            assert refused.status == 401 and (not wrong or wrong not in refused.text)
        assert (await send(session, form, {"token": TOKEN, "to": to}, to=path, Origin="http://x.example")).status == 403
        for elsewhere in ("https://evil.example/pages/x", "//evil.example", "/pages\\@evil.example", ""):
            led = await send(session, form, {"token": TOKEN, "to": elsewhere}, to=path)
            assert led.status == 303 and led.headers["Location"] == "/pages/"
        assert (await send(session, form, {"token": TOKEN, "to": to}, to=path)).headers["Location"] == to
        page = await visit(session, url)
        assert (await send(session, page, LEAVE)).status == 200
        assert (await client.finished(task_id))["status"] == "completed"


async def test_wrong_tokens_are_counted_like_those_of_callers(programs: Programs) -> None:
    bridge = await programs.bridge(MODULE, port=free_port(), MCP_TASKS_BEARER_TOKEN=TOKEN)
    async with browser() as session:
        form = await visit(session, f"{origin_of(bridge)}/pages/task-x/key")
        guesses = [{"token": f"guess-{number:020}"} for number in range(2 * GUESSES_AT_ONCE)]
        sent = [send(session, form, guess, to="/pages/sign-in") for guess in guesses]
        statuses = [page.status for page in await asyncio.gather(*sent)]
    assert set(statuses) == {401, 429}


async def test_a_proxy_says_who_it_is_and_nobody_may_come_too_often(programs: Programs) -> None:
    port = free_port()
    bridge = await programs.bridge(
        MODULE,
        port=port,
        MCP_TASKS_TRUSTED_PROXIES="127.0.0.1",
        MCP_TASKS_PAGES_URL=f"http://127.0.0.1:{port}/ask/people",
    )
    alice, bob = ({"X-Forwarded-User": name} for name in ("alice", "bob"))
    async with McpClient(bridge.url, OPENS_PAGES) as client, browser() as session:
        client._headers.update(alice)
        task_id, _, url = await asked(client, "ask_leave")
        assert url.startswith(f"{origin_of(bridge)}/ask/people/")

        async def seen_by(headers: dict[str, str]) -> int:
            async with session.get(url, headers=headers) as response:
                return response.status

        assert [await seen_by(who) for who in (alice, bob, {})] == [200, 404, 401]
        async with aiohttp.ClientSession(headers=alice) as own:
            assert (await send(own, await visit(own, url), LEAVE)).status == 200
        assert (await client.finished(task_id))["status"] == "completed"
        nothing = f"{origin_of(bridge)}/ask/people/no-task/no-key"

        async def status(name: str) -> int:
            async with session.get(nothing, headers={"X-Forwarded-User": name}) as response:
                return response.status

        flood = await asyncio.gather(*(status("alice") for _ in range(3 * MOST_VISITS_AT_ONCE)))
        assert set(flood) == {404, 429}
        assert await status("bob") == 404


async def test_an_older_client_waits_for_the_page_after_its_accept(local: Process) -> None:
    """It is told when the page was answered (2025-11-25, "Completion Notifications for URL Mode Elicitation")."""
    capabilities: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}}
    async with (
        OlderClient([local.url], capabilities=capabilities) as client,
        browser() as session,
        client.calling("ask_leave", {}) as call,
    ):
        question = await first_request(call)
        params = question["params"]
        assert params["mode"] == "url" and params["elicitationId"] == question["id"]
        assert await client.respond(question, {"result": {"action": "accept"}}) == 202
        assert (await send(session, await visit(session, params["url"]), LEAVE)).status == 200
        async with asyncio.timeout(20):
            told = [message async for message in call.messages()]
    assert told[-1]["result"]["structuredContent"]["days"] == 2
    completed = [message["params"] for message in told if message.get("method") == "notifications/elicitation/complete"]
    assert completed == [{"elicitationId": question["id"]}]
