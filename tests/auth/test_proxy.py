"""Identity headers count from a trusted proxy and from nobody else."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from bridge.proxy_identity import TrustedProxy, is_within
from tests.transport.toy import call, get_task, rpc, serving

HERE = "127.0.0.0/8"


def proxy(*networks: str, **options: Any) -> TrustedProxy:
    trusted = [ipaddress.ip_network(network) for network in networks]
    return TrustedProxy(networks=trusted, user_header="X-User", groups_header="X-Groups", **options)


async def test_a_trusted_proxy_names_the_caller() -> None:
    async with serving(authenticate=proxy("10.0.0.0/8", HERE)) as served:
        response = await served.post(get_task("T"), {"X-User": "alice"})
        assert response.json["result"]["owner"] == "alice"
        await served.post(call("echo"), {"X-User": "alice", "X-Groups": "staff, release-managers"})
        identity = served.toy.exchanges[0].caller.identity
        assert identity.groups == {"staff", "release-managers"}
        assert (identity.principal.issuer, identity.scopes) == ("proxy", None)


@pytest.mark.parametrize("forwarded", [None, "127.0.0.1", "10.1.2.3"])
async def test_the_headers_of_anybody_else_are_ignored(forwarded: str | None) -> None:
    """Whatever address a header claims."""
    async with serving(authenticate=proxy("10.0.0.0/8")) as served:
        headers = {"X-User": "alice", "X-Forwarded-For": forwarded, "Forwarded": forwarded and f"for={forwarded}"}
        response = await served.post(call("echo"), headers)
        assert (response.status, response.headers["www-authenticate"]) == (401, "Trusted-Proxy")
        assert served.toy.started == []


@pytest.mark.parametrize("user", [None, "", "alice\r\nX-User: bob", "x" * 256, "a\u007fb"])
async def test_a_proxy_that_names_nobody_or_two_is_refused(user: str | None) -> None:
    async with serving(authenticate=proxy(HERE)) as served:
        response = await served.post(call("echo"), {"X-User": user})
        assert response.status in {400, 401} and served.toy.started == []


async def test_a_proxy_may_bring_scopes() -> None:
    async with serving(authenticate=proxy(HERE, scopes_header="X-Scopes")) as served:
        reading: dict[str, str | None] = {"X-User": "alice", "X-Scopes": "tasks:read other"}
        assert (await served.post(rpc("tools/list"), reading)).status == 200
        refused = await served.post(call("echo"), reading)
        assert refused.status == 403
        assert refused.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="tasks:call"'
        assert (await served.post(rpc("tools/list"), {"X-User": "alice"})).status == 403, "no header, no scope"


@pytest.mark.parametrize(
    ("address", "within"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("fd00::1", True),
        ("11.1.2.3", False),
        ("fe80::1", False),
        ("", False),
        ("unix", False),
    ],
)
def test_addresses_are_compared_as_numbers(address: str, within: bool) -> None:
    networks = [ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::/8")]
    assert is_within(address, networks) is within
