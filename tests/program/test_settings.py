"""Settings are read once, and what cannot be used is one line that names the variable."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.service import GrpcCompression

from bridge.settings import BridgeSettings, SettingsError, WorkerSettings, is_loopback, temporal_connect_config

KEY = "k" * 32
OTHER_KEY = "o" * 40
TOKEN = "a-token-of-some-length"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No variable of the machine that runs the tests has a say."""
    for name in list(os.environ):
        if name.startswith(("MCP_TASKS_", "TEMPORAL_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", os.devnull)
    yield


def refusal(**settings: object) -> str:
    """The line with which a bridge refuses these settings."""
    with pytest.raises(SettingsError) as caught:
        BridgeSettings.load(**settings)
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_a_single_replica_on_loopback_needs_nothing_else() -> None:
    """What `mcp-tasks dev` relies on."""
    settings = BridgeSettings.load(single_replica=True)
    assert (settings.host, settings.port, settings.path) == ("127.0.0.1", 8000, "/mcp")
    assert settings.tasks == "bridge.shipped"
    assert settings.answer_window == timedelta(minutes=15)
    assert settings.sealing_keys == ()


def test_without_sealing_keys_a_bridge_must_say_that_it_is_alone() -> None:
    """A second replica could not read what the first one sealed."""
    assert "MCP_TASKS_SEALING_KEYS is not set" in refusal()
    assert "MCP_TASKS_SINGLE_REPLICA=true" in refusal()


def test_without_sealing_keys_a_bridge_that_others_can_reach_is_refused_even_alone() -> None:
    """It would lose what it sealed at every restart."""
    assert "MCP_TASKS_SEALING_KEYS" in refusal(host="0.0.0.0", bearer_token=TOKEN, single_replica=True)  # noqa: S104


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "example.com"])  # noqa: S104
def test_an_address_that_others_can_reach_needs_a_bearer_token(host: str) -> None:
    """Nothing is open by accident."""
    assert "MCP_TASKS_BEARER_TOKEN" in refusal(host=host, sealing_keys=(KEY,))
    assert BridgeSettings.load(host=host, sealing_keys=(KEY,), bearer_token=TOKEN).host == host


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("[::1]", True),
        ("LOCALHOST", True),
        ("localhost.example.com", False),
        ("0.0.0.0", False),  # noqa: S104
        ("::", False),
    ],
)
def test_loopback_is_known_by_address_and_by_the_one_name(host: str, loopback: bool) -> None:
    """Anything else is taken for reachable."""
    assert is_loopback(host) is loopback


def test_lists_come_from_one_comma_separated_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first sealing key seals; blanks around commas do not matter."""
    monkeypatch.setenv("MCP_TASKS_SEALING_KEYS", f"{KEY}, {OTHER_KEY}")
    monkeypatch.setenv("MCP_TASKS_ALLOWED_HOSTS", "mcp.example.com,mcp.example.com:8443")
    settings = BridgeSettings.load()
    assert [key.get_secret_value() for key in settings.sealing_keys] == [KEY, OTHER_KEY]
    assert settings.allowed_hosts == ("mcp.example.com", "mcp.example.com:8443")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("MCP_TASKS_PORT", "http"),
        ("MCP_TASKS_PORT", "70000"),
        ("MCP_TASKS_PATH", "mcp"),
        ("MCP_TASKS_TASKS", "acme tasks"),
        ("MCP_TASKS_TASK_QUEUE", ""),
        ("MCP_TASKS_LOG_LEVEL", "loud"),
        ("MCP_TASKS_SINGLE_REPLICA", "perhaps"),
        ("MCP_TASKS_MAX_BODY_BYTES", "10"),
        ("MCP_TASKS_ANSWER_WINDOW_SECONDS", "0"),
        ("MCP_TASKS_SEALING_KEYS", "too-short-a-secret"),
        ("MCP_TASKS_SEALING_KEYS", f"{KEY},{KEY}"),
        ("MCP_TASKS_BEARER_TOKEN", "short"),
        ("MCP_TASKS_BEARER_TOKEN", "a token with spaces in it"),
    ],
)
def test_a_bad_value_is_refused_by_name(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line says what is accepted."""
    monkeypatch.setenv("MCP_TASKS_SINGLE_REPLICA", "true")
    monkeypatch.setenv(variable, value)
    assert refusal().startswith(f"{variable} must be ")


@pytest.mark.parametrize("variable", ["MCP_TASKS_SEALING_KEYS", "MCP_TASKS_BEARER_TOKEN"])
def test_a_bad_secret_is_never_repeated(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Error lines are kept in places where secrets must not be."""
    monkeypatch.setenv("MCP_TASKS_SINGLE_REPLICA", "true")
    monkeypatch.setenv(variable, "se cret")
    assert "se cret" not in refusal()


def test_a_misspelt_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token under a wrong name would protect nothing."""
    monkeypatch.setenv("MCP_TASKS_BEARER_TOKN", TOKEN)
    assert refusal(single_replica=True) == "MCP_TASKS_BEARER_TOKN is no setting; is MCP_TASKS_BEARER_TOKEN meant?"


def test_variables_of_tools_and_of_the_other_program_are_none_of_our_business(monkeypatch: pytest.MonkeyPatch) -> None:
    """One environment may serve both programs and the tools."""
    monkeypatch.setenv("MCP_TASKS_MIGRATE_ROOT", "/data")
    monkeypatch.setenv("MCP_TASKS_PORT", "1")
    assert WorkerSettings.load().task_queue == "mcp-tasks"


def test_secrets_do_not_show_in_a_repr() -> None:
    """Settings may end up in a log or a traceback."""
    shown = repr(BridgeSettings.load(sealing_keys=(KEY,), bearer_token=TOKEN))
    assert KEY not in shown
    assert TOKEN not in shown


def test_temporal_is_local_unless_the_standard_variables_say_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables are Temporal's own."""
    assert "namespace" not in temporal_connect_config()
    assert temporal_connect_config()["target_host"] == "localhost:7233"
    monkeypatch.setenv("TEMPORAL_ADDRESS", "temporal.example.com:7233")
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "tasks")
    assert temporal_connect_config()["target_host"] == "temporal.example.com:7233"
    assert temporal_connect_config()["namespace"] == "tasks"


def test_calls_to_temporal_are_not_compressed() -> None:
    """The SDK compresses all of them by default, which costs both sides more than it saves; some proxies refuse it."""
    assert temporal_connect_config()["grpc_compression"] is GrpcCompression.NONE


def test_a_profile_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the SDK's own words, on one line."""
    monkeypatch.setenv("TEMPORAL_PROFILE", "production")
    with pytest.raises(SettingsError, match="production"):
        temporal_connect_config()


def test_a_misspelt_key_of_the_profile_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default the SDK would ignore it."""
    file = tmp_path / "temporal.toml"
    file.write_text('[profile.default]\nadress = "temporal.example.com:7233"\n')
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(file))
    with pytest.raises(SettingsError, match="adress"):
        temporal_connect_config()
