"""Pages of allowed origins can call and read; others are told nothing (TR-07, AU-07)."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.auth import static_bearer
from bridge.http import HttpSettings
from tests.transport.toy import Response, Served, call, discover, serving

ORIGIN = "https://app.example"
SETTINGS = HttpSettings(allowed_origins=(ORIGIN,))
ASKED = "content-type,authorization,mcp-protocol-version,mcp-method,mcp-name,mcp-param-region"


async def preflight(served: Served, origin: str | None, asked: str = ASKED, method: str | None = "POST") -> Response:
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": asked,
    }
    async with served.connect() as wire:
        await wire.send(wire.head(headers, "OPTIONS /mcp HTTP/1.1"))
        return await wire.response(no_body=True)


def allowed(response: Response) -> set[str]:
    return {name.strip().lower() for name in response.headers["access-control-allow-headers"].split(",")}


async def test_a_preflight_is_answered_without_credentials() -> None:
    async with serving(SETTINGS, static_bearer("s3cret")) as served:
        response = await preflight(served, ORIGIN)
        assert response.status == 204
        assert response.headers["access-control-allow-origin"] == ORIGIN
        assert response.headers["access-control-allow-methods"] == "POST"
        assert response.headers["vary"] == "Origin"
        assert "access-control-allow-credentials" not in response.headers
        assert set(ASKED.split(",")) | {"mcp-session-id", "last-event-id", "accept"} <= allowed(response)
        assert served.toy.started == []


async def test_only_parameter_headers_are_allowed_on_demand() -> None:
    async with serving(SETTINGS) as served:
        names = allowed(await preflight(served, ORIGIN, "mcp-param-a, MCP-Param-B-2, x-evil, mcp-param-, cookie"))
        assert {"mcp-param-a", "mcp-param-b-2"} <= names
        assert not {"x-evil", "mcp-param-", "cookie", "*"} & names


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "https://app.example.evil.example", "http://app.example"]
)
async def test_a_preflight_of_another_origin_is_refused_and_told_nothing(origin: str) -> None:
    async with serving(SETTINGS) as served:
        response = await preflight(served, origin)
        assert response.status == 403
        assert not any(name.startswith("access-control") for name in response.headers)


@pytest.mark.parametrize(("origin", "method"), [(None, "POST"), (ORIGIN, None)])
async def test_an_options_that_asks_nothing_is_a_method_like_any_other(origin: str | None, method: str | None) -> None:
    async with serving(SETTINGS) as served:
        response = await preflight(served, origin, method=method)
        assert (response.status, response.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("message", "headers", "status"),
    [
        (call("echo"), {}, 200),
        (call("progress", {"steps": 2}, progress="p"), {}, 200),
        (call("echo"), {"Authorization": None}, 401),
        (call("echo"), {"Content-Type": "text/plain"}, 415),
        (b"{", {}, 400),
        (call("crash"), {}, 200),
    ],
)
async def test_every_answer_can_be_read_by_the_page_that_asked(
    message: Any, headers: dict[str, str | None], status: int
) -> None:
    async with serving(SETTINGS, static_bearer("s3cret")) as served:
        response = await served.post(message, {"Origin": ORIGIN, "Authorization": "Bearer s3cret"} | headers)
        assert response.status == status
        assert response.headers["access-control-allow-origin"] == ORIGIN
        assert "WWW-Authenticate" in response.headers["access-control-expose-headers"]
        assert response.headers["vary"] == "Origin"


async def test_who_is_no_page_is_told_nothing_about_pages() -> None:
    async with serving(SETTINGS) as served:
        response = await served.post(discover())
        assert not any(name.startswith("access-control") for name in response.headers)
