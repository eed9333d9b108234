"""The keys of an issuer: found, kept, renewed, and what an outage of their server does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from bridge import jwks
from bridge.identity import Unavailable
from bridge.jwks import Issuer, IssuerKeys, metadata_urls
from bridge.urls import is_safe_url
from tests.auth.keys import P256, RSA, public
from tests.support import eventually

KEY = public(RSA, "one")


@dataclass
class Server:
    """Metadata and keys of an issuer, which can be made to fail."""

    documents: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    status: int = 200
    hold: asyncio.Event | None = None
    url: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        if self.hold is not None:
            await self.hold.wait()
        document = self.documents.get(request.path)
        if document is None or self.status != 200:
            return web.Response(status=404 if document is None else self.status, headers={"Location": "/keys"})
        if isinstance(document, bytes):
            return web.Response(body=document)
        return web.json_response(document)

    def publish(self, *keys: Mapping[str, Any]) -> None:
        self.documents["/keys"] = {"keys": list(keys)}


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    app = web.Application()
    app.router.add_get("/{path:.*}", server.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    server.documents["/.well-known/oauth-authorization-server"] = {
        "issuer": server.url,
        "jwks_uri": f"{server.url}/keys",
    }
    server.publish(KEY)
    try:
        yield server
    finally:
        await runner.cleanup()


@asynccontextmanager
async def keys_of(issuer: Issuer, refresh_seconds: float = 0.0) -> AsyncIterator[IssuerKeys]:
    async with aiohttp.ClientSession() as session:
        keys = IssuerKeys(issuer, session, refresh_seconds=refresh_seconds)
        try:
            yield keys
        finally:
            await keys.close()


async def test_keys_are_found_by_metadata_and_fetched_once(server: Server) -> None:
    async with keys_of(Issuer(server.url)) as keys:
        found = await asyncio.gather(*(keys.key("one", "RS256") for _ in range(20)))
        assert all(found) and await keys.key("one", "PS256")
    assert server.asked == ["/.well-known/oauth-authorization-server", "/keys"]


async def test_a_configured_url_needs_no_metadata(server: Server) -> None:
    async with keys_of(Issuer(server.url, f"{server.url}/keys")) as keys:
        assert await keys.key("one", "RS256")
    assert server.asked == ["/keys"]


def test_metadata_is_looked_for_where_both_standards_put_it() -> None:
    assert metadata_urls("https://as.example") == [
        "https://as.example/.well-known/oauth-authorization-server",
        "https://as.example/.well-known/openid-configuration",
    ]
    assert metadata_urls("https://as.example/tenant/") == [
        "https://as.example/.well-known/oauth-authorization-server/tenant",
        "https://as.example/.well-known/openid-configuration/tenant",
        "https://as.example/tenant/.well-known/openid-configuration",
    ]


async def test_openid_metadata_will_do(server: Server) -> None:
    documents = server.documents
    documents["/tenant/.well-known/openid-configuration"] = {
        "issuer": f"{server.url}/tenant",
        "jwks_uri": f"{server.url}/keys",
    }
    async with keys_of(Issuer(f"{server.url}/tenant")) as keys:
        assert await keys.key("one", "RS256")


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://evil.example", "jwks_uri": "{url}/keys"},
        {"issuer": "{url}"},
        {"issuer": "{url}", "jwks_uri": 5},
        {"issuer": "{url}", "jwks_uri": "http://as.example/keys"},
        {"issuer": "{url}", "jwks_uri": "file:///etc/passwd"},
        [],
        b"{",
        b"[" * 10_000,
        b" " * (jwks.MAX_DOCUMENT_BYTES + 1),
    ],
)
async def test_metadata_that_cannot_be_trusted_or_used_gives_no_keys(server: Server, metadata: Any) -> None:
    if isinstance(metadata, dict):
        metadata = {
            name: value.format(url=server.url) if isinstance(value, str) else value for name, value in metadata.items()
        }
    server.documents["/.well-known/oauth-authorization-server"] = metadata
    async with keys_of(Issuer(server.url)) as keys:
        with pytest.raises(Unavailable):
            await keys.key("one", "RS256")
    assert "/keys" not in server.asked


@pytest.mark.parametrize("document", [{"keys": 5}, {}, [], b"x"])
async def test_keys_that_are_none_are_an_outage(server: Server, document: Any) -> None:
    server.documents["/keys"] = document
    async with keys_of(Issuer(server.url)) as keys:
        with pytest.raises(Unavailable):
            await keys.key("one", "RS256")


async def test_a_key_that_cannot_be_used_is_none_and_spoils_no_other(server: Server) -> None:
    server.publish({"kty": "RSA", "kid": "broken", "n": "!", "e": 5}, {"kty": 5}, KEY)
    server.documents["/keys"]["keys"].append("text")
    async with keys_of(Issuer(server.url)) as keys:
        assert await keys.key("broken", "RS256") is None
        assert await keys.key("one", "RS256")


async def test_redirects_are_not_followed(server: Server) -> None:
    server.status = 302
    async with keys_of(Issuer(server.url, f"{server.url}/keys")) as keys:
        with pytest.raises(Unavailable):
            await keys.key("one", "RS256")
    assert server.asked == ["/keys"]


async def test_a_new_key_is_found_at_its_first_use_and_an_old_one_is_gone_with_it(server: Server) -> None:
    async with keys_of(Issuer(server.url)) as keys:
        assert await keys.key("one", "RS256")
        server.publish(public(P256, "two"))
        assert await keys.key("two", "ES256")
        assert await keys.key("one", "RS256") is None


async def test_unknown_key_ids_cost_one_fetch_in_a_while_and_a_new_key_is_found_all_the_same(server: Server) -> None:
    """Nobody is refused because somebody else invents key ids."""
    async with keys_of(Issuer(server.url), refresh_seconds=0.3) as keys:
        assert await keys.key("one", "RS256")
        server.publish(KEY, public(P256, "two"))
        invented = [keys.key(f"invented-{number}", "RS256") for number in range(50)]
        *unknown, found = await asyncio.gather(*invented, keys.key("two", "ES256"))
        assert found is not None and not any(unknown)
    assert server.asked.count("/keys") == 2


async def test_only_so_many_wait_for_an_unknown_key(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "MAX_WAITING", 2)
    async with keys_of(Issuer(server.url), refresh_seconds=60) as keys:
        assert await keys.key("one", "RS256")
        waiting = [asyncio.create_task(keys.key(f"invented-{number}", "RS256")) for number in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Unavailable):  # it might be a new one, and its holder must not throw the token away
            await keys.key("invented-too", "RS256")
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_in_an_outage_what_is_known_is_good_and_nothing_else(server: Server) -> None:
    async with keys_of(Issuer(server.url)) as keys:
        assert await keys.key("one", "RS256")
        server.status = 500
        with pytest.raises(Unavailable) as told:
            await keys.key("two", "RS256")
        assert told.value.retry_after >= 1
        assert await keys.key("one", "RS256")
        server.status = 200
        assert await keys.key("two", "RS256") is None


async def test_after_a_pause_a_key_that_was_withdrawn_is_good_for_nobody(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with keys_of(Issuer(server.url)) as keys:
        assert await keys.key("one", "RS256")
        server.publish(public(P256, "two"))
        monkeypatch.setattr(jwks, "MAX_AGE_SECONDS", -1.0)
        found = await asyncio.gather(*(keys.key("one", "RS256") for _ in range(3)))
        assert not any(found)


async def test_after_a_pause_an_outage_costs_one_fetch_and_what_is_known_is_good(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with keys_of(Issuer(server.url), refresh_seconds=60) as keys:
        assert await keys.key("one", "RS256")
        server.status = 500
        monkeypatch.setattr(jwks, "MAX_AGE_SECONDS", -1.0)
        for _ in range(3):
            assert await keys.key("one", "RS256")
    assert server.asked.count("/keys") == 1 and len(server.asked) == 4


async def test_a_server_that_does_not_answer_holds_nobody_for_long(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "FETCH_SECONDS", 0.2)
    server.hold = asyncio.Event()
    async with asyncio.timeout(5), keys_of(Issuer(server.url), refresh_seconds=0.1) as keys:
        with pytest.raises(Unavailable):
            await keys.key("one", "RS256")
        server.hold.set()
        await asyncio.sleep(0.1)
        assert await keys.key("one", "RS256"), "and it is asked again afterwards"


async def test_nobody_listens_at_all() -> None:
    async with keys_of(Issuer("http://127.0.0.1:9")) as keys:
        with pytest.raises(Unavailable):
            await keys.key("one", "RS256")


async def test_a_caller_who_leaves_does_not_take_the_fetch_along(server: Server) -> None:
    async def asked() -> bool:
        return bool(server.asked)

    server.hold = asyncio.Event()
    async with keys_of(Issuer(server.url)) as keys:
        leaving = asyncio.create_task(keys.key("one", "RS256"))
        staying = asyncio.create_task(keys.key("one", "RS256"))
        await eventually(asked, what="the fetch")
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        server.hold.set()
        assert await staying
    assert server.asked.count("/keys") == 1


async def test_old_keys_are_renewed_beside_the_requests(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "RENEW_SECONDS", 0.05)
    async with keys_of(Issuer(server.url)) as keys:
        assert await keys.key("one", "RS256")
        server.publish()
        await asyncio.sleep(0.1)
        assert await keys.key("one", "RS256"), "nobody waits for it"

        async def gone() -> bool:
            return await keys.key("one", "RS256") is None

        await eventually(gone, what="the new keys")


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("https://as.example", True),
        ("http://127.0.0.1:9/x", True),
        ("http://[::1]/x", True),
        ("http://localhost", True),
        ("http://as.example", False),
        ("http://localhost.evil.example", False),
        ("file:///etc/passwd", False),
        ("https://", False),
        ("https://as.example:bad", False),
        ("", False),
    ],
)
def test_keys_come_over_tls_or_from_this_machine(url: str, safe: bool) -> None:
    assert is_safe_url(url) is safe
