"""A bridge and a real authorization server: who gets in, whose tasks are whose, and when it ends."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from mcp import Client
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from tests.auth.clients import as_, discover, with_token
from tests.auth.conftest import bridge_for
from tests.authserver.running import ALL, AuthServer
from tests.cases.client import McpClient, accept
from tests.cases.stack import Process, Programs
from tests.support import unique

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_official_client_finds_its_way_from_the_challenge_to_a_result(
    bridge: Process, authorization: AuthServer
) -> None:
    """Challenge, protected resource metadata, authorization server metadata, token, call."""

    class Storage:
        tokens: Any = None
        client: Any = None

        async def get_tokens(self) -> Any:
            return self.tokens

        async def set_tokens(self, tokens: Any) -> None:
            self.tokens = tokens

        async def get_client_info(self) -> Any:
            return self.client

        async def set_client_info(self, client_info: Any) -> None:
            self.client = client_info

    storage = Storage()
    provider = ClientCredentialsOAuthProvider(
        bridge.url,
        storage,
        "alice",
        "alice-secret",
        token_endpoint_auth_method="client_secret_post",
        issuer=authorization.issuer,
    )
    async with (
        create_mcp_http_client(auth=provider) as http,
        Client(streamable_http_client(bridge.url, http_client=http)) as client,
    ):
        assert "slow" in {tool.name for tool in (await client.list_tools()).tools}
        result = await client.call_tool("echo", {"x": 1})
    assert result.structured_content == {"x": 1}
    assert set(storage.tokens.scope.split()) == set(ALL.split()), "what the challenge named"


async def test_the_challenge_leads_to_the_metadata(bridge: Process, authorization: AuthServer) -> None:
    status, headers = await discover(bridge, None)
    found = re.fullmatch(r'Bearer resource_metadata="([^"]+)", scope="([^"]+)"', headers["WWW-Authenticate"])
    assert status == 401 and found and found[2] == ALL
    async with aiohttp.ClientSession() as session, session.get(found[1]) as response:
        metadata = await response.json()
    assert metadata["resource"] == bridge.url
    assert authorization.issuer in metadata["authorization_servers"]


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
async def test_a_token_of_each_algorithm_is_served(bridge: Process, authorization: AuthServer, algorithm: str) -> None:
    token = await authorization.token("alice", bridge.url, algorithm=algorithm)
    assert (await discover(bridge, token))[0] == 200


@pytest.mark.parametrize("method", ["server/discover", "tools/call", "tasks/get", "subscriptions/listen"])
async def test_no_token_is_never_better_than_a_bad_one(
    bridge: Process, programs: Programs, authorization: AuthServer, method: str
) -> None:
    """AU-02."""
    label = unique("refused")
    good = await authorization.token("alice", bridge.url)
    elsewhere = await authorization.token("alice", "https://other.example/mcp")
    header, payload, signature = good.split(".")
    bad = [
        None,
        "",
        "Bearer",
        "Bearer wrong",
        "Basic YWxpY2U6c2VjcmV0",
        good,
        f"Bearer {elsewhere}",
        f"Bearer {header}.{payload}.{signature[:-4]}AAAA",
        f"Bearer {header}.{payload}.",
    ]
    all_params: dict[str, dict[str, Any]] = {
        "tools/call": {"name": "slow", "arguments": {"seconds": 0, "label": label}},
        "tasks/get": {"taskId": "t"},
        "subscriptions/listen": {"notifications": {"taskIds": []}},
    }
    params = all_params.get(method, {})
    async with McpClient(bridge.url) as client, aiohttp.ClientSession() as session:
        for authorization_header in bad:
            headers = client.headers(method, params)
            if authorization_header is not None:
                headers["Authorization"] = authorization_header
            for url in (bridge.url, f"{bridge.url}?access_token={good}"):
                async with session.post(url, json=client.body(method, params), headers=headers) as response:
                    assert response.status == 401, authorization_header
                    assert response.headers["WWW-Authenticate"].startswith("Bearer ")
                    assert await response.text() == "A valid bearer token is required.\n"
    assert programs.side_effects(label) == 0


async def test_a_task_belongs_to_the_principal_and_not_to_the_token_or_the_bridge(
    bridge: Process, programs: Programs, authorization: AuthServer, other_authorization: AuthServer
) -> None:
    """AU-03."""
    async with as_("alice", authorization, bridge) as alice:
        task_id = await alice.start("ask", {"n": 1})
        (key,) = await alice.parked(task_id)
    replica = await bridge_for(
        programs, authorization.issuer, other_authorization.issuer, MCP_TASKS_RESOURCE_URL=bridge.url
    )
    token = await authorization.token("alice", bridge.url)
    stranger = await authorization.token("bob", bridge.url)
    namesake = await other_authorization.token("alice", bridge.url)
    for other in (stranger, namesake):
        async with with_token(bridge, other) as client:
            unknown = await client.get("no-such-task")
            for reply in (
                await client.get(task_id),
                await client.update(task_id, {key: accept(text="x")}),
                await client.cancel(task_id),
            ):
                assert (reply.status, reply.message["error"]) == (unknown.status, unknown.message["error"])
    async with with_token(replica, token) as again:
        assert (await again.get(task_id)).result["status"] == "input_required"
        await again.update(task_id, {key: accept(text="yes")})
        assert (await again.finished(task_id))["status"] == "completed"


async def test_a_tool_with_a_scope_of_its_own_is_for_those_who_have_it(
    bridge: Process, authorization: AuthServer
) -> None:
    call = {"name": "guarded", "arguments": {"seconds": 0}}
    async with (
        as_("alice", authorization, bridge) as without,
        as_("rita", authorization, bridge, f"{ALL} deploy:production") as able,
    ):
        for client, sees in ((without, False), (able, True)):
            listed = (await client.request("tools/list")).result
            assert ("guarded" in {tool["name"] for tool in listed["tools"]}) is sees
            assert listed["cacheScope"] == "private"
        refused = await without.request("tools/call", call)
        assert refused.status == 403 and "tasks:call deploy:production" in refused.message["error"]["message"]
        task = (await able.request("tools/call", call)).result
        assert (await able.finished(task["taskId"]))["status"] == "completed"


async def test_reading_is_not_calling(bridge: Process, authorization: AuthServer) -> None:
    async with as_("alice", authorization, bridge, "tasks:read") as reader:
        assert (await reader.request("tools/list")).status == 200
        assert (await reader.call("echo", {"x": 1})).status == 403
        assert (await reader.update("t", {})).status == 403
        assert (await reader.cancel("t")).status == 403
        assert (await reader.get("t")).status == 400


async def test_health_needs_no_token(bridge: Process) -> None:
    address = urlsplit(bridge.url)
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://{address.netloc}/healthz") as response:
            assert response.status == 200
