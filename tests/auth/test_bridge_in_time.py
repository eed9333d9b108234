"""Streams that end with their tokens, keys that change, and an authorization server that is away."""

from __future__ import annotations

import asyncio

import pytest

from tests.auth.clients import as_, discover
from tests.auth.conftest import bridge_for
from tests.authserver.running import AuthServer
from tests.cases.client import FORMS, accept
from tests.cases.stack import Process, Programs
from tests.support import unique

pytestmark = pytest.mark.asyncio(loop_scope="session")

# Until the credential ends (AU-06)


async def test_a_subscription_ends_with_its_token(bridge: Process, authorization: AuthServer) -> None:
    """With a result, so that the client opens another one; and that needs a new token."""
    async with as_("alice", authorization, bridge) as alice:
        task_id = await alice.start("ask", {"n": 1})
        (key,) = await alice.parked(task_id)
        async with as_("alice", authorization, bridge, ttl=3) as listener:
            async with asyncio.timeout(20):
                reply = await listener.request("subscriptions/listen", {"notifications": {"taskIds": [task_id]}})
            assert reply.result["resultType"] == "complete"
            assert [note["method"] for note in reply.notifications] == [
                "notifications/subscriptions/acknowledged",
                "notifications/tasks",
            ]
            assert (await listener.get(task_id)).status == 401
        await alice.update(task_id, {key: accept(text="yes")})
        assert (await alice.finished(task_id))["status"] == "completed"


async def test_a_call_that_waits_beyond_its_token_goes_on_with_a_new_one(
    bridge: Process, programs: Programs, authorization: AuthServer
) -> None:
    label = unique("waits")
    arguments = {"seconds": 6, "label": label}
    async with as_("alice", authorization, bridge, ttl=3, capabilities=FORMS) as client:
        async with asyncio.timeout(20):
            first = (await client.call("slow", arguments)).result
    assert first["resultType"] == "input_required" and "inputRequests" not in first
    async with as_("alice", authorization, bridge, capabilities=FORMS) as again:
        result = (await again.call("slow", arguments, state=first["requestState"])).result
    assert result["resultType"] == "complete"
    assert programs.side_effects(label) == 1, "one run"


# Keys and outages


async def test_keys_rotate_without_a_refused_token(programs: Programs, fragile: AuthServer) -> None:
    bridge = await bridge_for(programs, fragile.issuer)
    first = await fragile.token("alice", bridge.url)
    assert (await discover(bridge, first))[0] == 200
    await fragile.rotate(keep=True)
    second = await fragile.token("alice", bridge.url)
    assert [(await discover(bridge, token))[0] for token in (second, first)] == [200, 200]
    await fragile.rotate()
    third = await fragile.token("alice", bridge.url)
    assert [(await discover(bridge, token))[0] for token in (third, second)] == [200, 401]


async def test_an_outage_of_the_authorization_server_is_none_of_ours(programs: Programs, fragile: AuthServer) -> None:
    """With the keys that are known; a bridge that knows none says that it cannot tell."""
    knows, new = await bridge_for(programs, fragile.issuer), await bridge_for(programs, fragile.issuer)
    token = await fragile.token("alice", knows.url)
    other = await fragile.token("alice", new.url)
    assert (await discover(knows, token))[0] == 200
    fragile.pause()
    async with asyncio.timeout(15):
        status, headers = await discover(new, other)
    assert status == 503 and int(headers["Retry-After"]) > 0
    assert (await discover(knows, token))[0] == 200
    fragile.resume()
    await fragile.kill()
    assert (await discover(knows, token))[0] == 200
    assert (await discover(new, other))[0] == 503
    assert (await discover(new, None))[0] == 401
