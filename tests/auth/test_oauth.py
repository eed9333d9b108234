"""The resource server at the endpoint: challenges, metadata, and what is refused before anything is done."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from bridge.auth import static_bearer
from bridge.identity import Identity, Unavailable
from bridge.jwks import Issuer, IssuerKeys
from bridge.oauth import OAuth
from bridge.protected_resource import ProtectedResource
from bridge.tokens import TokenRules
from tests.auth.keys import ISSUER, PUBLISHED, RESOURCE, claims, signed
from tests.transport.toy import Response, Served, call, discover, get_task, rpc, serving
from workflows.kit.contract import Principal

RESOURCE_SERVER = ProtectedResource(RESOURCE, (ISSUER,))
METADATA_URL = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"
SCOPES = "tasks:call tasks:read tasks:answer"
CHALLENGE = f'Bearer resource_metadata="{METADATA_URL}", scope="{SCOPES}"'


class Keys(IssuerKeys):
    """Keys that need no fetching, or that cannot be had."""

    away = False

    async def key(self, key_id: str | None, algorithm: str) -> Any:
        if self.away:
            raise Unavailable(5)
        return self._known(key_id, algorithm)


@asynccontextmanager
async def protected(**options: Any) -> AsyncIterator[tuple[Served, Keys]]:
    async with aiohttp.ClientSession() as session:
        keys = Keys(Issuer(ISSUER), session)
        keys._keys = PUBLISHED
        oauth = OAuth(RESOURCE_SERVER, {ISSUER: keys}, TokenRules(resource=RESOURCE))
        async with serving(authenticate=oauth, resource_metadata=METADATA_URL, **options) as served:
            yield served, keys


async def post(served: Served, message: Any, token: str | None, **headers: str | None) -> Response:
    return await served.post(message, {"Authorization": None if token is None else f"Bearer {token}", **headers})


@pytest.mark.parametrize("authorization", [None, "", "Basic dTpw", "Digest x", "Token t", "Bearerx y"])
async def test_without_a_token_the_challenge_tells_where_to_begin(authorization: str | None) -> None:
    async with protected() as (served, _):
        for message in (discover(), call("echo"), get_task("T"), rpc("subscriptions/listen"), b"no json"):
            response = await served.post(message, {"Authorization": authorization})
            assert (response.status, response.headers["www-authenticate"]) == (401, CHALLENGE)
        assert served.toy.started == []


@pytest.mark.parametrize("credentials", ["Bearer", "Bearer ", "bearer wrong", "Bearer a.b.c"])
async def test_a_bad_token_is_told_apart_from_none(credentials: str) -> None:
    async with protected() as (served, _):
        response = await served.post(call("echo"), {"Authorization": credentials})
        challenge = response.headers["www-authenticate"]
        assert response.status == 401 and challenge.startswith('Bearer error="invalid_token", error_description="')
        assert challenge.endswith(f'resource_metadata="{METADATA_URL}", scope="{SCOPES}"')
        assert served.toy.started == []


@pytest.mark.parametrize("credentials", ["Bearer a b", "Bearer t\u00e9", 'Bearer "x"', "Bearer a,b"])
async def test_a_malformed_header_is_a_bad_request(credentials: str) -> None:
    async with protected() as (served, _):
        response = await served.post(call("echo"), {"Authorization": credentials})
        assert response.status == 400
        assert response.headers["www-authenticate"].startswith('Bearer error="invalid_request"')


async def test_a_good_token_is_served_in_any_case_of_the_scheme_and_is_nowhere_else_read() -> None:
    token = signed()
    async with protected() as (served, _), served.connect() as wire:
        for scheme in ("Bearer", "bearer", "BEARER"):
            assert (await served.post(call("echo"), {"Authorization": f"{scheme} {token}"})).status == 200
        await wire.send(wire.request(discover(), line=f"POST /mcp?access_token={token} HTTP/1.1"))
        assert (await wire.response()).status == 401
        twice = await served.post(call("echo"), {"Authorization": f"Bearer {token}\r\nAuthorization: Bearer {token}"})
        assert twice.status == 401 and 'error="invalid_token"' in twice.headers["www-authenticate"]


async def test_the_owner_is_who_the_token_names() -> None:
    async with protected() as (served, _):
        result = (await post(served, get_task("T"), signed())).json["result"]
        assert result["owner"] == "alice"


async def test_a_refused_token_is_not_repeated_to_anybody(caplog: pytest.LogCaptureFixture) -> None:
    token = signed(claims(aud="https://other.example"))
    caplog.set_level("DEBUG")
    async with protected() as (served, _):
        response = await post(served, call("echo"), token)
    assert token not in caplog.text and token.split(".")[2] not in caplog.text
    assert token.encode() not in response.body and token not in str(response.headers)


async def test_when_nobody_can_check_a_token_it_is_not_refused() -> None:
    async with protected() as (served, keys):
        keys.away = True
        response = await post(served, call("echo"), signed())
        assert (response.status, response.headers["retry-after"]) == (503, "5")
        assert "www-authenticate" not in response.headers and served.toy.started == []


# Scopes


@pytest.mark.parametrize(
    ("message", "scope", "needed"),
    [
        (call("echo"), "tasks:read tasks:answer", "tasks:call"),
        (get_task("T"), "tasks:call", "tasks:read"),
        (rpc("tools/list"), "", "tasks:read"),
        (call("route"), "tasks:call", "tasks:call route:use"),
    ],
)
async def test_what_the_token_is_not_good_for_is_refused_with_all_that_is_needed(
    message: Any, scope: str, needed: str
) -> None:
    async with protected(tool_scopes=lambda name: ("route:use",) if name == "route" else ()) as (served, _):
        response = await post(served, message, signed(claims(scope=scope)))
        assert response.error == (403, -32600, 1)
        assert response.headers["www-authenticate"] == (
            f'Bearer error="insufficient_scope", scope="{needed}", resource_metadata="{METADATA_URL}"'
        )
        assert served.toy.started == []
        assert (await post(served, discover(), signed(claims(scope=None)))).status != 403


async def test_older_revisions_are_judged_alike() -> None:
    bare: dict[str, str | None] = {"Mcp-Method": None, "Mcp-Name": None, "MCP-Protocol-Version": "2025-11-25"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {}}}
    async with protected() as (served, _):
        refused = await post(served, message, signed(claims(scope="tasks:read")), **bare)
        assert (refused.status, served.toy.started) == (403, [])
        assert (await post(served, message, signed(), **bare)).status == 200
        answer = {"jsonrpc": "2.0", "id": "q", "result": {}}
        assert (await post(served, answer, signed(), **bare)).status == 403
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        assert (await post(served, cancelled, signed(claims(scope="tasks:read")), **bare)).status == 403


async def test_a_refused_scope_does_not_open_a_stream() -> None:
    async with protected() as (served, _):
        message = call("progress", {"steps": 3}, progress="p")
        response = await post(served, message, signed(claims(scope="")), Accept="text/event-stream")
        assert (response.status, response.headers["content-type"]) == (403, "application/json")


# Streams end when the credential does (AU-06)


async def ending(seconds: float) -> Any:
    async def authenticate(_request: web.Request) -> Identity:
        return Identity(principal=Principal(issuer="i", subject="s"), expires_at=time.time() + seconds)

    return authenticate


async def test_a_waiting_request_is_told_and_then_cut_when_its_token_ends() -> None:
    async with serving(authenticate=await ending(0.2)) as served:
        response = await served.post(call("wait"))
        assert response.json["error"]["message"] == "The request was interrupted. Send it again."
        assert served.toy.exchanges[0].stopping.is_set()
        assert served.toy.undone == ["wait"]


async def test_a_stream_ends_with_its_token() -> None:
    async with serving(authenticate=await ending(0.2)) as served:
        message = call("progress", {"steps": 2, "wait": True}, progress="p")
        events = (await served.post(message)).events
        assert [event.get("method") for event in events] == ["notifications/progress"] * 2 + [None]
        assert events[-1]["error"]["code"] == -32603


async def test_a_token_that_ends_later_or_never_ends_nothing() -> None:
    far = 1e12
    async with serving(authenticate=await ending(far)) as served:
        assert (await served.post(call("echo"))).status == 200


# Metadata (RFC 9728)


@asynccontextmanager
async def metadata_served(url: str, *issuers: str) -> AsyncIterator[str]:
    app = web.Application()
    ProtectedResource(url, issuers).mount(app)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/.well-known/oauth-protected-resource"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("path", ["", "/mcp"])
async def test_the_metadata_is_at_both_places_for_everybody(path: str) -> None:
    async with metadata_served(RESOURCE, ISSUER, "https://two.example") as url, aiohttp.ClientSession() as session:
        async with session.get(url + path, headers={"Origin": "https://any.example"}) as response:
            assert (response.status, response.content_type) == (200, "application/json")
            assert response.headers["Access-Control-Allow-Origin"] == "*"
            assert await response.json() == {
                "resource": RESOURCE,
                "authorization_servers": [ISSUER, "https://two.example"],
                "scopes_supported": ["tasks:call", "tasks:read", "tasks:answer"],
                "bearer_methods_supported": ["header"],
            }
        headers = {"Origin": "https://any.example", "Access-Control-Request-Method": "GET"}
        async with session.options(url + path, headers=headers) as response:
            assert (response.status, response.headers["Access-Control-Allow-Origin"]) == (204, "*")
            assert "MCP-Protocol-Version" in response.headers["Access-Control-Allow-Headers"]


async def test_a_resource_without_a_path_has_one_place() -> None:
    resource = ProtectedResource("https://mcp.example.com", (ISSUER,))
    assert resource.metadata_url == "https://mcp.example.com/.well-known/oauth-protected-resource"
    async with metadata_served(resource.url, ISSUER) as url, aiohttp.ClientSession() as session:
        async with session.get(url) as response:
            assert (await response.json())["resource"] == "https://mcp.example.com"


async def test_one_static_token_needs_no_metadata() -> None:
    async with serving(authenticate=static_bearer("s3cret")) as served:
        assert (await served.post(discover())).headers["www-authenticate"] == "Bearer"
