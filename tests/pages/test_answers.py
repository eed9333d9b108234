"""Answers out of band, by people who sign in at a real authorization server."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import pytest

from tests.auth.clients import as_
from tests.authserver.browser import browser
from tests.authserver.running import AuthServer
from tests.cases.client import McpClient
from tests.cases.stack import Process, Programs
from tests.pages.browsing import Page, send, signed_in, visit
from tests.pages.conftest import OPENS_PAGES, asked, oauth_bridge, origin_of
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

PASSWORD = "pässword of a person"
DIGEST = hashlib.sha256(PASSWORD.encode()).hexdigest()
LEAVE = {"f.yes": "true", "f.days": "3", "f.why": "a\r\nb"}


async def told_of(client: McpClient, task_id: str, url: str) -> dict[str, Any]:
    """The task as its owner sees it, once it says where somebody else is awaited."""

    async def seen() -> dict[str, Any] | None:
        task = (await client.get(task_id)).result
        return task if url in task.get("statusMessage", "") else None

    return await eventually(seen, what="word of who is awaited")


def look(page: Page) -> tuple[int, str]:
    """What a visitor can tell two pages apart by: all but what they themselves sent."""
    text = page.text.replace(page.url.removeprefix(page.origin), "")
    return page.status, text


async def test_a_secret_is_entered_on_the_page_and_used_by_the_worker(
    bridge: Process, authorization: AuthServer
) -> None:
    async with as_("alice", authorization, bridge, capabilities=OPENS_PAGES) as client, browser() as session:
        task_id, key, url = await asked(client, "ask_password")
        assert url == f"{origin_of(bridge)}/pages/{task_id}/{key}"
        page = await signed_in(session, url, "alice")
        assert page.status == 200 and page.url == url
        assert "Which password &lt;b&gt;opens&lt;/b&gt; it?" in page.text and 'type="password"' in page.text
        assert "alice" in page.text and task_id in page.text and "ask_password" in page.text
        done = await send(session, page, {"f.who": "al", "f.password": PASSWORD})
        assert done.status == 200 and "on its way" in done.text
        task = await client.finished(task_id)
    result = task["result"]["structuredContent"]
    assert result["used"] == f"al:{DIGEST}"
    assert result["by"] == {"issuer": authorization.issuer, "subject": "alice", "client": "pages", "channel": "page"}


async def test_a_page_is_kept_by_nobody_and_shown_in_no_frame(bridge: Process, authorization: AuthServer) -> None:
    async with as_("alice", authorization, bridge, capabilities=OPENS_PAGES) as client, browser() as session:
        _, _, url = await asked(client, "ask_leave")
        page = await signed_in(session, url, "alice")
        for shown in (page, await visit(session, url + "x")):
            policy = shown.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
            assert shown.headers["Cache-Control"] == "no-store"
            assert shown.headers["X-Frame-Options"] == "DENY"
            assert shown.headers["X-Content-Type-Options"] == "nosniff"
            assert "<script" not in shown.text and "http" not in shown.text.replace(authorization.issuer, "")


async def test_the_session_is_a_cookie_that_no_script_and_no_other_site_gets(
    bridge: Process, authorization: AuthServer
) -> None:
    async with as_("alice", authorization, bridge, capabilities=OPENS_PAGES) as client, browser() as session:
        _, _, url = await asked(client, "ask_leave")
        await signed_in(session, url, "alice")
        cookies = {cookie.key: cookie for cookie in session.cookie_jar if cookie.key.startswith("mcp-tasks")}
    cookie = cookies["mcp-tasks-session"]
    assert cookie["httponly"] and cookie["samesite"] == "Lax" and 0 < int(cookie["max-age"]) <= 600
    assert "alice" not in cookie.value and set(cookies) == {"mcp-tasks-session"}


@pytest.mark.parametrize("entered", [LEAVE, LEAVE | {"f.why": None}], ids=["all", "without the optional"])
async def test_a_form_of_every_kind_is_answered(
    bridge: Process, authorization: AuthServer, entered: dict[str, Any]
) -> None:
    async with as_("alice", authorization, bridge, capabilities=OPENS_PAGES) as client, browser() as session:
        task_id, key, url = await asked(client, "ask_leave")
        assert key == "leave/1" and url.endswith("leave%2F1")
        page = await signed_in(session, url, "alice")
        wrong = await send(session, page, entered | {"f.days": "31"})
        assert wrong.status == 422 and "Days: must be at most 30" in wrong.text
        assert (await send(session, wrong, entered)).status == 200
        result = (await client.finished(task_id))["result"]["structuredContent"]
    assert result == {"yes": True, "days": 3, "why": "a\nb" if entered["f.why"] else ""}


async def test_a_secret_is_not_shown_again_when_the_form_is(bridge: Process, authorization: AuthServer) -> None:
    async with as_("alice", authorization, bridge, capabilities=OPENS_PAGES) as client, browser() as session:
        _, _, url = await asked(client, "ask_password")
        page = await signed_in(session, url, "alice")
        again = await send(session, page, {"f.who": "kept", "f.password": "s3c"})
    assert again.status == 422 and "Password: must have at least 4 characters" in again.text
    assert "kept" in again.text and "s3c" not in again.text


async def test_a_person_may_decline_on_the_page(bridge: Process, authorization: AuthServer) -> None:
    async with as_("alice", authorization, bridge, capabilities=OPENS_PAGES) as client, browser() as session:
        task_id, _, url = await asked(client, "ask_leave")
        page = await signed_in(session, url, "alice")
        declined = await send(session, page, {"action": "decline"})
        assert "You declined" in declined.text
        assert (await client.finished(task_id))["result"]["structuredContent"] == {"declined": "decline"}


async def test_a_question_is_answered_once(bridge: Process, authorization: AuthServer) -> None:
    """Sent twice, replayed, and opened again: none of it does anything."""
    async with as_("alice", authorization, bridge, capabilities=OPENS_PAGES) as client, browser() as session:
        task_id, _, url = await asked(client, "ask_leave")
        page = await signed_in(session, url, "alice")
        assert (await send(session, page, LEAVE)).status == 200
        task = await client.finished(task_id)
        for late in (await send(session, page, LEAVE | {"f.days": "9"}), await visit(session, url)):
            assert late.status == 410 and "not any more" in late.text
        assert await client.finished(task_id) == task


async def test_of_forms_that_are_sent_at_once_one_counts(bridge: Process, authorization: AuthServer) -> None:
    async with as_("alice", authorization, bridge, capabilities=OPENS_PAGES) as client, browser() as session:
        task_id, _, url = await asked(client, "ask_leave")
        page = await signed_in(session, url, "alice")
        sent = [send(session, page, LEAVE | {"f.days": str(days)}) for days in range(1, 6)]
        statuses = [shown.status for shown in await asyncio.gather(*sent)]
        assert set(statuses) <= {200, 410} and 200 in statuses
        task = await client.finished(task_id)
        resource = await client.request(
            "resources/read", {"uri": (uri := f"mcp-task://{task_id}/history")}, headers={"Mcp-Name": uri}
        )
    assert task["result"]["structuredContent"]["days"] in range(1, 6)
    entries = json.loads(resource.result["contents"][0]["text"])["entries"]
    assert [entry["event"] for entry in entries].count("answered") == 1


async def test_whoever_has_no_right_is_told_the_same_whatever_there_is(
    bridge: Process, authorization: AuthServer
) -> None:
    async with (
        as_("alice", authorization, bridge, capabilities=OPENS_PAGES) as client,
        browser() as own,
        browser() as session,
    ):
        task_id, key, url = await asked(client, "ask_leave")
        page = await signed_in(own, url, "alice")
        unknown = await signed_in(session, url.replace(task_id, "task-of-nobody"), "bob")
        assert unknown.status == 404
        foreign = await visit(session, url)
        forged = await send(session, page, LEAVE)
        wrong_key = await visit(session, url.replace("leave%2F1", "no-such-key"))
        await client.update(task_id, {key: {"action": "decline"}})
        await client.finished(task_id)
        answered = await visit(session, url)
    for other in (foreign, forged, wrong_key, answered):
        assert look(other) == look(unknown)
    assert "May she go" not in foreign.text and "ask_leave" not in foreign.text


async def test_a_client_that_says_accept_has_only_opened_the_page(bridge: Process, authorization: AuthServer) -> None:
    async with as_("alice", authorization, bridge, capabilities=OPENS_PAGES) as client, browser() as session:
        task_id, key, url = await asked(client, "ask_leave")
        for content in ({}, {"content": {"yes": True, "days": 1}}, {"sealed": {"keyId": "x", "data": "eA=="}}):
            assert (await client.update(task_id, {key: {"action": "accept", **content}})).result == {
                "resultType": "complete"
            }
        assert list(await client.parked(task_id)) == [key]
        page = await signed_in(session, url, "alice")
        assert (await send(session, page, LEAVE)).status == 200
        assert (await client.finished(task_id))["result"]["structuredContent"]["days"] == 3
        resource = await client.request(
            "resources/read", {"uri": (uri := f"mcp-task://{task_id}/history")}, headers={"Mcp-Name": uri}
        )
    entries = json.loads(resource.result["contents"][0]["text"])["entries"]
    answers = [(entry["event"], entry["channel"]) for entry in entries if "channel" in entry]
    assert answers == [("answered", "page")], "what only opens the page is not even sent to the task"


async def test_a_client_may_cancel_what_is_asked_on_a_page(bridge: Process, authorization: AuthServer) -> None:
    async with as_("alice", authorization, bridge, capabilities=OPENS_PAGES) as client:
        task_id, key, _ = await asked(client, "ask_leave")
        await client.update(task_id, {key: {"action": "cancel"}})
        assert (await client.finished(task_id))["result"]["structuredContent"] == {"declined": "cancel"}


async def test_somebody_of_the_group_approves_on_the_page_that_the_owner_is_told_of(
    bridge: Process, authorization: AuthServer
) -> None:
    async with as_("alice", authorization, bridge) as client, browser() as own, browser() as managers:
        task_id = await client.start("ask_boss")
        url = f"{origin_of(bridge)}/pages/{task_id}/ship"
        task = await told_of(client, task_id, url)
        assert task["status"] == "working" and "inputRequests" not in task
        page = await signed_in(managers, url, "rita")
        assert page.status == 200 and "a member of the group release-managers" in page.text and "alice" in page.text
        assert (await signed_in(own, url, "alice")).status == 404
        assert (await send(managers, page, {"f.approve": "true", "f.note": "fine"})).status == 200
        result = (await client.finished(task_id))["result"]["structuredContent"]
    assert result["note"] == "fine"
    assert (result["by"]["subject"], result["by"]["groups"], result["by"]["channel"]) == (
        "rita", ["release-managers"], "page",
    )  # fmt: skip


async def test_the_owner_does_not_answer_what_anybody_else_has_to(bridge: Process, authorization: AuthServer) -> None:
    async with as_("rita", authorization, bridge) as client, browser() as own, browser() as other:
        task_id = await client.start("ask_other")
        url = f"{origin_of(bridge)}/pages/{task_id}/really"
        await told_of(client, task_id, url)
        page = await signed_in(other, url, "sam")
        owners = await signed_in(own, url, "rita")
        assert (page.status, owners.status) == (200, 404)
        assert (await send(own, page, LEAVE)).status == 404
        assert (await send(other, page, LEAVE)).status == 200
        assert (await client.finished(task_id))["status"] == "completed"


async def test_forms_of_other_sites_people_questions_and_sessions_are_refused(
    bridge: Process, authorization: AuthServer
) -> None:
    async with as_("alice", authorization, bridge, capabilities=OPENS_PAGES) as client, browser() as session:
        task_id, _, url = await asked(client, "ask_leave")
        _, _, another = await asked(client, "ask_leave")
        page = await signed_in(session, url, "alice")
        other_page = await visit(session, another)
        refused = [
            await send(session, page, LEAVE, Origin="https://evil.example"),
            await send(session, page, LEAVE, Origin="null"),
            await send(session, page, LEAVE, **{"Sec-Fetch-Site": "same-site"}),
            await send(session, page, LEAVE | {"form": ""}),
            await send(session, page, LEAVE | {"form": other_page.fields["form"]}),
        ]
        async with browser() as again:
            fresh = await signed_in(again, url, "alice")
            refused.append(await send(session, page, LEAVE | {"form": fresh.fields["form"]}))
        async with session.post(url, data={**LEAVE, "form": page.fields["form"]}) as response:
            assert response.status == 403, "without an Origin"
        assert [shown.status for shown in refused] == [403] * len(refused)
        assert (await client.get(task_id)).result["status"] == "input_required"


async def test_a_session_that_has_ended_sends_nothing(programs: Programs, authorization: AuthServer) -> None:
    """Nobody is signed in without the cookie, and a cookie of another deployment's key is none."""
    bridge = await oauth_bridge(programs, authorization, MCP_TASKS_SEALING_KEYS="o" * 32)
    async with as_("alice", authorization, bridge, capabilities=OPENS_PAGES) as client, browser() as session:
        task_id, _, url = await asked(client, "ask_leave")
        page = await signed_in(session, url, "alice")
        session.cookie_jar.clear(lambda cookie: cookie.key == "mcp-tasks-session")
        out = await send(session, page, LEAVE)
        assert out.status == 401 and "nothing was sent" in out.text
        back = await visit(session, url)
        assert back.status == 200 and back.url == url, "signed in again without a question"
        assert (await send(session, page, LEAVE)).status == 403, "the form was another session's"
        assert (await send(session, back, LEAVE)).status == 200
        assert (await client.finished(task_id))["status"] == "completed"


async def test_the_way_back_works_only_for_the_browser_that_began(bridge: Process, authorization: AuthServer) -> None:
    async with as_("alice", authorization, bridge, capabilities=OPENS_PAGES) as client:
        _, _, url = await asked(client, "ask_leave")
    async with browser() as session, browser() as victim:
        begun = await visit(session, url, follow=False)
        assert begun.status == 303 and begun.headers["Location"].startswith(f"{authorization.issuer}/auth?")
        for way_back in ("?code=x&state=y", "?error=access_denied", ""):
            for who in (session, victim):
                page = await visit(who, f"{origin_of(bridge)}/pages/callback{way_back}")
                assert page.status == 403 and "could not be signed in" in page.text
        assert not [cookie for cookie in victim.cookie_jar if cookie.key == "mcp-tasks-session"]


async def test_somebody_else_may_sign_in_instead(bridge: Process, authorization: AuthServer) -> None:
    async with as_("alice", authorization, bridge, capabilities=OPENS_PAGES) as client, browser() as session:
        _, _, url = await asked(client, "ask_leave")
        assert (await signed_in(session, url, "bob")).status == 404
        assert (await signed_in(session, f"{url}?another-account", "alice")).status == 200


async def test_a_caller_that_waits_goes_on_when_the_page_is_answered(
    bridge: Process, authorization: AuthServer
) -> None:
    """Core MRTR: a retry that says accept waits; a client that asks again and again never uses up the key."""
    capabilities: dict[str, Any] = {"elicitation": {"url": {}}}
    async with as_("alice", authorization, bridge, capabilities=capabilities) as client, browser() as session:
        first = (await client.call("ask_leave")).result
        assert first["resultType"] == "input_required"
        ((key, request),) = first["inputRequests"].items()
        retry = {"state": first["requestState"], "responses": {key: {"action": "accept"}}}
        again = (await client.call("ask_leave", state=first["requestState"])).result
        assert list(again["inputRequests"]) == [key]
        page = await signed_in(session, request["params"]["url"], "alice")

        waiting = asyncio.create_task(client.call("ask_leave", **retry))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        assert (await send(session, page, LEAVE)).status == 200
        assert (await waiting).result["structuredContent"]["days"] == 3


async def test_a_client_that_cannot_open_pages_gets_a_tool_error(bridge: Process, authorization: AuthServer) -> None:
    async with as_("alice", authorization, bridge) as client:
        result = (await client.finished(await client.start("ask_password")))["result"]
        assert result["isError"] and "did not declare" in result["content"][0]["text"]


async def test_a_bridge_without_pages_says_so(programs: Programs, authorization: AuthServer) -> None:
    bridge = await oauth_bridge(programs, authorization, pages=False)
    async with as_("alice", authorization, bridge, capabilities=OPENS_PAGES) as client:
        result = (await client.finished(await client.start("ask_password")))["result"]
        assert result["isError"] and "this server has no pages" in result["content"][0]["text"]


async def test_nobody_without_the_scope_answers(bridge: Process, authorization: AuthServer) -> None:
    """The page asks for the scope for itself; the client's token has it or not."""
    async with as_("alice", authorization, bridge, "tasks:call tasks:read", capabilities=OPENS_PAGES) as client:
        task_id, key, _ = await asked(client, "ask_leave")
        assert (await client.update(task_id, {key: {"action": "decline"}})).status == 403
