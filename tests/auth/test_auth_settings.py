"""Callers are known in one way, and what contradicts itself is refused in one line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from bridge.settings import BridgeSettings, SettingsError

ISSUER = "https://as.example"
RESOURCE = "https://mcp.example.com/mcp"
TOKEN = "a-token-of-some-length"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in list(os.environ):
        if name.startswith("MCP_TASKS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("MCP_TASKS_SINGLE_REPLICA", "true")
    yield


def refusal(monkeypatch: pytest.MonkeyPatch, **variables: str) -> str:
    for name, value in variables.items():
        monkeypatch.setenv(f"MCP_TASKS_{name}", value)
    with pytest.raises(SettingsError) as caught:
        BridgeSettings.load()
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_oauth_needs_the_public_url_in_its_canonical_form(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "MCP_TASKS_RESOURCE_URL is not set" in refusal(monkeypatch, OAUTH_ISSUERS=ISSUER)
    monkeypatch.setenv("MCP_TASKS_RESOURCE_URL", "HTTPS://MCP.example.com:443/mcp/")
    settings = BridgeSettings.load()
    assert (settings.resource_url, settings.oauth_issuers) == (RESOURCE, (ISSUER,))
    assert settings.authentication == ["MCP_TASKS_OAUTH_ISSUERS"]


def test_an_issuer_may_be_followed_by_the_url_of_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_TASKS_RESOURCE_URL", RESOURCE)
    monkeypatch.setenv("MCP_TASKS_OAUTH_ISSUERS", f"{ISSUER}, https://b.example https://b.example/keys?v=1")
    assert BridgeSettings.load().oauth_issuers == (ISSUER, "https://b.example https://b.example/keys?v=1")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("RESOURCE_URL", "http://mcp.example.com/mcp"),
        ("RESOURCE_URL", "https://mcp.example.com/mcp?x=1"),
        ("RESOURCE_URL", "https://mcp.example.com/mcp#x"),
        ("RESOURCE_URL", "https://user@mcp.example.com/mcp"),
        ("RESOURCE_URL", "mcp.example.com"),
        ("RESOURCE_URL", 'https://mcp.example.com/m"cp'),
        ("RESOURCE_URL", "https://mcp.example.com/m cp"),
        ("RESOURCE_URL", "https://mcp.example.com/m\u00fccp"),
        ("OAUTH_ISSUERS", "http://as.example"),
        ("OAUTH_ISSUERS", "as.example"),
        ("OAUTH_ISSUERS", f"{ISSUER} http://as.example/keys"),
        ("OAUTH_ISSUERS", f"{ISSUER} {ISSUER}/keys {ISSUER}/more"),
        ("OAUTH_ISSUERS", f"{ISSUER},{ISSUER}"),
        ("OAUTH_ISSUERS", f"{ISSUER}?tenant=1"),
        ("OAUTH_ISSUERS", f"{ISSUER}#tenant"),
        ("OAUTH_ISSUERS", "https://user@as.example"),
        ("OAUTH_CLOCK_SKEW_SECONDS", "301"),
        ("OAUTH_GROUPS_CLAIM", ""),
        ("TRUSTED_PROXIES", "proxy.example"),
        ("TRUSTED_PROXIES", "10.0.0.1/8"),
        ("PROXY_USER_HEADER", "X User"),
        ("PROXY_SCOPES_HEADER", "X:Scopes"),
    ],
)
def test_a_bad_value_is_refused_by_name(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(monkeypatch, **{variable: value}).startswith(f"MCP_TASKS_{variable} must be ")


@pytest.mark.parametrize("value", ["", " , "])
@pytest.mark.parametrize("variable", ["BEARER_TOKEN", "OAUTH_ISSUERS", "TRUSTED_PROXIES"])
def test_what_is_set_but_empty_is_no_way_in(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `$TOKEN` is when a deployment forgot to set it: behind a proxy, loopback is no protection."""
    assert refusal(monkeypatch, **{variable: value}).startswith(f"MCP_TASKS_{variable} ")


@pytest.mark.parametrize(
    "variables",
    [
        {"BEARER_TOKEN": TOKEN, "OAUTH_ISSUERS": ISSUER, "RESOURCE_URL": RESOURCE},
        {"BEARER_TOKEN": TOKEN, "TRUSTED_PROXIES": "10.0.0.0/8"},
        {"TRUSTED_PROXIES": "10.0.0.0/8", "CLIENT_CA_FILE": "ca", "TLS_CERT_FILE": "c", "TLS_KEY_FILE": "k"},
    ],
)
def test_two_ways_to_know_callers_are_one_too_many(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    line = refusal(monkeypatch, **variables)
    assert line.endswith("are set: callers are known in one way, so keep one") and TOKEN not in line


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"TLS_CERT_FILE": "c"}, "MCP_TASKS_TLS_KEY_FILE belong together"),
        ({"TLS_KEY_FILE": "k"}, "MCP_TASKS_TLS_KEY_FILE belong together"),
        ({"CLIENT_CA_FILE": "ca"}, "MCP_TASKS_CLIENT_CA_FILE needs MCP_TASKS_TLS_CERT_FILE"),
    ],
)
def test_tls_is_set_up_as_a_whole(variables: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told in refusal(monkeypatch, **variables)


@pytest.mark.parametrize(
    "ways",
    [
        {"bearer_token": TOKEN},
        {"oauth_issuers": (ISSUER,), "resource_url": RESOURCE},
        {"trusted_proxies": ("10.0.0.0/8",)},
        {"client_ca_file": "ca", "tls_cert_file": "c", "tls_key_file": "k"},
    ],
)
def test_an_address_that_others_can_reach_needs_one_of_them(ways: Any) -> None:
    with pytest.raises(SettingsError, match="MCP_TASKS_OAUTH_ISSUERS"):
        BridgeSettings.load(host="10.1.2.3", sealing_keys=("k" * 32,))
    assert BridgeSettings.load(host="10.1.2.3", sealing_keys=("k" * 32,), **ways).authentication
