"""The page in a real browser: sign-in, form, policy, phone."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.auth.clients import as_
from tests.authserver.running import AuthServer
from tests.cases.stack import Process
from tests.installs import Uninstallable
from tests.pages.chromium import installed, tab
from tests.pages.conftest import OPENS_PAGES, asked, origin_of

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(400)]


async def test_a_person_signs_in_and_types_a_password(
    bridge: Process, authorization: AuthServer, tmp_path: Path
) -> None:
    try:
        await installed()
    except Uninstallable as reason:
        pytest.skip(f"there is no browser: {reason}")
    async with as_("alice", authorization, bridge, capabilities=OPENS_PAGES) as client, tab(tmp_path) as page:
        task_id, _, url = await asked(client, "ask_password")
        await page.phone()
        await page.open(url)
        assert str(await page.run("location.href")).startswith(authorization.issuer)
        await page.type("input[name=login]", "alice")
        await page.type("input[name=password]", "any will do")
        await page.click("button[type=submit]")
        assert await page.run("location.href") == url
        assert "Which password <b>opens</b> it?" in await page.text()
        assert await page.run("getComputedStyle(document.querySelector('article')).borderRadius") == "8px", "its style"
        assert await page.run("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out on a phone"
        assert await page.run("[...document.querySelectorAll('input:not([type=hidden])')].every(i => i.labels.length)")
        assert await page.run("document.cookie") == "", "no script gets the session"
        await page.type("input[type=password]", "typed by hand")
        await page.click("button.main")
        assert "on its way" in await page.text()
        assert [said for said in page.complaints if origin_of(bridge) in said and "/favicon.ico" not in said] == []
        used = (await client.finished(task_id))["result"]["structuredContent"]["used"]
    assert used == f":{hashlib.sha256(b'typed by hand').hexdigest()}"
