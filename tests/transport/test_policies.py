"""The pure policies: hosts, origins, media types."""

from __future__ import annotations

import pytest

from bridge.headers import Accepts, accepted, is_json, is_plain
from bridge.origin import host_allowed, origin_allowed


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:65535"])
def test_loopback_hosts_are_always_served(host: str) -> None:
    assert host_allowed(host, (), loopback=True)
    assert host_allowed(host, ("mcp.example.com",), loopback=False)


FOREIGN_HOSTS = [
    "evil.example",
    "evil.example:8080",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "localhost@evil.example",
    "evil.example#localhost",
    "localhost:80:80",
    "localhost:x",
    "[::1",
    "::1",
    "[::2]",
    "192.168.0.1",
    "",
    "localhost\n",
]


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_a_loopback_listener_serves_no_foreign_host(host: str) -> None:
    assert not host_allowed(host, (), loopback=True)


def test_a_public_listener_serves_any_host_until_hosts_are_listed() -> None:
    assert host_allowed("mcp.example.com", (), loopback=False)
    assert not host_allowed("other.example.com", ("mcp.example.com",), loopback=False)


def test_a_listed_host_is_served_on_any_port_and_a_listed_authority_on_its_own() -> None:
    assert host_allowed("MCP.example.com:9", ("mcp.Example.com",), loopback=True)
    assert host_allowed("mcp.example.com:8443", ("mcp.example.com:8443",), loopback=True)
    assert not host_allowed("mcp.example.com:9", ("mcp.example.com:8443",), loopback=True)


@pytest.mark.parametrize(
    "origin", ["http://localhost", "https://localhost:3000", "http://127.0.0.1:9", "http://[::1]:9", "HTTP://LocalHost"]
)
def test_pages_on_loopback_names_may_call(origin: str) -> None:
    assert origin_allowed(origin, ())


FOREIGN_ORIGINS = [
    "null",
    "",
    "http://evil.example",
    "http://localhost.evil.example",
    "http://127.0.0.1.evil.example",
    "http://localhost@evil.example",
    "http://localhost:80@evil.example",
    "http://evil.example/http://localhost",
    "http://localhost/",
    "file://",
    "ftp://localhost",
    "localhost",
    "http://",
    "http://localhost http://evil.example",
    "http://localhost, http://evil.example",
    "http://localhost:x",
]


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
def test_other_pages_may_not_call(origin: str) -> None:
    assert not origin_allowed(origin, ())


def test_a_listed_origin_may_call_and_its_neighbours_may_not() -> None:
    allowed = ("https://App.example.com", "vscode-webview://abc")
    assert origin_allowed("https://app.example.com", allowed)
    assert origin_allowed("vscode-webview://abc", allowed)
    assert not origin_allowed("http://app.example.com", allowed)
    assert not origin_allowed("https://app.example.com:8443", allowed)


def test_null_and_nothing_cannot_be_listed() -> None:
    assert not origin_allowed("null", ("null",))
    assert not origin_allowed("", ("",))


BOTH = Accepts(json=True, sse=True)
JSON = Accepts(json=True, sse=False)
SSE = Accepts(json=False, sse=True)
NEITHER = Accepts(json=False, sse=False)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], BOTH),
        ([""], BOTH),
        (["application/json, text/event-stream"], BOTH),
        (["text/event-stream,application/json"], BOTH),
        (["text/event-stream", "application/json"], BOTH),
        (["*/*"], BOTH),
        (["text/html, */*;q=0.1"], BOTH),
        (["application/json"], JSON),
        (["application/*"], JSON),
        (["APPLICATION/JSON; charset=utf-8"], JSON),
        (["application/json;q=0.001"], JSON),
        (["text/event-stream"], SSE),
        (["text/*"], SSE),
        (["application/json;q=0, text/event-stream"], SSE),
        (["application/json; q=0.000, */*"], SSE),
        (["text/html"], NEITHER),
        (["application/json;q=0"], NEITHER),
        (["*/*;q=0"], NEITHER),
        (["application/jsonx"], NEITHER),
    ],
)
def test_accept_is_read_leniently(values: list[str], expected: Accepts) -> None:
    assert accepted(values) == expected


@pytest.mark.parametrize(
    "value",
    [
        "application/json",
        "APPLICATION/JSON",
        "application/json; charset=utf-8",
        'application/json;charset="UTF-8"',
        "application/json ; charset=utf-8; profile=x",
        "application/json;",
    ],
)
def test_json_in_utf_8_is_read(value: str) -> None:
    assert is_json([value])


@pytest.mark.parametrize(
    "values",
    [
        [],
        [""],
        ["text/plain"],
        ["text/plain;charset=utf-8"],
        ["application/x-www-form-urlencoded"],
        ["multipart/form-data; boundary=x"],
        ["text/json"],
        ["application/json-patch+json"],
        ["application/json, text/plain"],
        ["application/json; charset=latin-1"],
        ["application/json; charset=utf-16"],
        ["application/json", "text/plain"],
    ],
)
def test_other_content_types_are_not(values: list[str]) -> None:
    assert not is_json(values)


def test_only_plain_bodies_are_read() -> None:
    assert is_plain([])
    assert is_plain(["identity"])
    assert is_plain(["Identity, identity"])
    assert not any(is_plain([coding]) for coding in ("gzip", "deflate", "br", "zstd", "gzip, gzip", "identity, gzip"))
    assert not is_plain(["identity", "gzip"])
