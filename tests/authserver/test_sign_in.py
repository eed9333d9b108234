"""The authorization server signs people in, as pages of ours will need it."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncIterator
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from aiohttp import web

from tests.authserver.browser import browser, sign_in
from tests.authserver.running import AuthServer, authorization_server
from tests.installs import Uninstallable

pytestmark = pytest.mark.asyncio(loop_scope="session")

RESOURCE = "http://127.0.0.1:8000/mcp"
VERIFIER = "v" * 64


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server() -> AsyncIterator[AuthServer]:
    try:
        async with authorization_server() as running:
            yield running
    except Uninstallable as reason:
        pytest.skip(f"oidc-provider cannot be installed: {reason}")


async def test_a_person_signs_in_and_the_page_gets_tokens_for_them(server: AuthServer) -> None:
    """Authorization code with PKCE: an ID token for the page, an access token for the endpoint, the same subject."""
    app = web.Application()
    app.router.add_get("/callback", _shown)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    redirect = f"http://127.0.0.1:{runner.addresses[0][1]}/callback"
    challenge = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
    asked = {
        "client_id": "pages",
        "response_type": "code",
        "redirect_uri": redirect,
        "scope": "openid groups tasks:answer",
        "resource": RESOURCE,
        "state": "s",
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    try:
        async with browser() as session:
            page = await sign_in(session, f"{server.issuer}/auth?{urlencode(asked)}", "rita")
            returned = json.loads(await page.text())
            assert returned["state"] == "s" and returned["iss"] == server.issuer
            form = {
                "grant_type": "authorization_code",
                "code": returned["code"],
                "redirect_uri": redirect,
                "client_id": "pages",
                "client_secret": "pages-secret",
                "code_verifier": VERIFIER,
            }
            async with session.post(f"{server.issuer}/token", data=form) as response:
                tokens = await response.json()
    finally:
        await runner.cleanup()
    identity, access = claims(tokens["id_token"]), claims(tokens["access_token"])
    assert (identity["sub"], identity["aud"], identity["groups"]) == ("rita", "pages", ["release-managers"])
    assert (access["sub"], access["aud"], access["groups"]) == ("rita", RESOURCE, ["release-managers"])
    assert access["scope"] == "tasks:answer"


async def _shown(request: web.Request) -> web.Response:
    return web.json_response(dict(request.query))


def claims(token: str) -> dict[str, object]:
    payload = token.split(".")[1]
    return dict(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))))
