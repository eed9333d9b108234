"""Requests beyond an owner's rate, and guesses of a token, over HTTP."""

from __future__ import annotations

from typing import Any, Final

import pytest
from aiohttp import web
from pydantic import SecretStr

from bridge.access import access
from bridge.auth import static_bearer
from bridge.guesses import GUESSES_AT_ONCE, GUESSES_PER_SECOND, _address, bounded_guesses
from bridge.http import HttpSettings
from bridge.identity import Identity
from bridge.settings import BridgeSettings
from tests.limits.clock import Clock
from tests.transport.toy import Response, call, get_task, rpc, serving
from workflows.kit.contract import Principal

SLOW: Final = HttpSettings(requests_per_second=0.01, request_burst=3)
ALICE: Final = {"X-User": "alice"}
BOB: Final = {"X-User": "bob"}
TOKEN: Final = "the-only-right-token"


async def named(request: web.Request) -> Identity:
    """Whoever the request says."""
    return Identity(principal=Principal(issuer="i", subject=request.headers["X-User"]))


def refused(response: Response) -> dict[str, Any]:
    """The error of a 429 that says when to come again."""
    assert (response.status, response.headers["retry-after"]) == (429, "1"), response
    error = response.json["error"]
    assert (error["code"], error["data"]) == (429, {"retryAfterMs": 1000})
    return dict(error)


async def test_an_owner_beyond_its_rate_is_refused_nothing_is_run_and_others_go_on() -> None:
    async with serving(SLOW, named) as served:
        for _ in range(3):
            assert (await served.post(call("echo"), ALICE)).status == 200
        response = await served.post(call("echo"), ALICE)
        assert refused(response)["message"] == "Too many requests; send them more slowly"
        assert len(served.toy.started) == 3
        assert (await served.post(call("echo"), BOB)).status == 200


async def test_the_body_of_a_refused_request_is_not_even_read() -> None:
    async with serving(SLOW, named) as served:
        for _ in range(3):
            await served.post(get_task("T"), ALICE)
        async with served.connect() as wire:
            headers = {**ALICE, "Mcp-Method": "tools/call", "Content-Length": "1000000"}
            await wire.send(wire.head(headers))
            refused(await wire.response())


async def test_an_owners_flood_of_reads_leaves_its_answers_and_cancels_alone() -> None:
    async with serving(SLOW, named) as served:
        flood = [await served.post(get_task("T"), ALICE) for _ in range(10)]
        refused(flood[-1])
        for method in ("tasks/update", "tasks/cancel", "tasks/update"):
            answered = await served.post(rpc(method, {"taskId": "T"}), ALICE)
            assert answered.status == 404, "the toy has no such method, which it was asked for"
        refused(await served.post(rpc("tasks/cancel", {"taskId": "T"}), ALICE))
        assert (await served.post(rpc("tasks/cancel", {"taskId": "T"}), BOB)).status == 404


async def test_a_header_that_claims_an_answer_gets_nothing_else_through() -> None:
    async with serving(SLOW, named) as served:
        for _ in range(3):
            await served.post(get_task("T"), ALICE)
        response = await served.post(call("echo"), {**ALICE, "Mcp-Method": "tasks/update"})
        assert (response.status, served.toy.started) == (400, [])


async def test_older_clients_whose_headers_do_not_tell_are_counted_by_what_they_send() -> None:
    older = {"Mcp-Method": None, "Mcp-Name": None, "MCP-Protocol-Version": "2025-11-25", **ALICE}
    ping = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    async with serving(SLOW, named) as served:
        for _ in range(3):
            assert (await served.post(ping, older)).status == 200
        response = await served.post(ping, older)
        assert refused(response) and response.json["id"] == 7
        for _ in range(3):
            assert (await served.post(cancelled, older)).status == 202
        refused(await served.post(cancelled, older))


async def test_without_a_rate_nobody_is_refused() -> None:
    async with serving(HttpSettings(requests_per_second=0), named) as served:
        responses = [await served.post(get_task("T"), ALICE) for _ in range(50)]
        assert {response.status for response in responses} == {200}


async def test_an_address_that_guesses_is_refused_before_it_can_be_right() -> None:
    clock = Clock()
    right, wrong = {"Authorization": f"Bearer {TOKEN}"}, {"Authorization": f"Bearer {TOKEN}x"}
    async with serving(authenticate=bounded_guesses(static_bearer(TOKEN), clock)) as served:
        for _ in range(GUESSES_AT_ONCE):
            assert (await served.post(call("echo"), wrong)).status == 401
        for headers in (wrong, right):
            response = await served.post(call("echo"), headers)
            assert refused(response)["message"] == "Too many wrong credentials came from this address; try again later"
        assert (await served.post(call("echo"))).status == 401, "no guess, and no harm"
        assert served.toy.started == []
        clock.now += 1 / GUESSES_PER_SECOND
        assert (await served.post(call("echo"), right)).status == 200


async def test_a_bridge_with_a_token_bounds_guesses() -> None:
    settings = BridgeSettings(bearer_token=SecretStr(TOKEN), single_replica=True)
    async with access(settings) as known, serving(authenticate=known.authenticate) as served:
        wrong = {"Authorization": "Bearer wrong"}
        responses = [await served.post(get_task("T"), wrong) for _ in range(2 * GUESSES_AT_ONCE)]
        assert [response.status for response in responses[:GUESSES_AT_ONCE]] == [401] * GUESSES_AT_ONCE
        assert 429 in {response.status for response in responses}


async def test_who_has_the_token_or_shows_none_never_counts_as_guessing() -> None:
    right = {"Authorization": f"Bearer {TOKEN}"}
    async with serving(authenticate=bounded_guesses(static_bearer(TOKEN), Clock())) as served:
        for headers, status in ((None, 401), (right, 200)):
            responses = [await served.post(get_task("T"), headers) for _ in range(GUESSES_AT_ONCE + 1)]
            assert {response.status for response in responses} == {status}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("fd00::1", "fd00::2", True),
        ("fd00::1", "fd00:0:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        (None, "", True),
    ],
)
def test_an_ipv6_network_guesses_as_one(one: str | None, other: str | None, same: bool) -> None:
    assert (_address(one) == _address(other)) is same
