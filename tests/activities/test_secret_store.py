"""The worker's secret store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from yarl import URL

from activities.secret_store import FILE_VARIABLE, open_store
from workflows.kit.errors import ToolError

STORE = """
[[credentials]]
name = "wiki"
kind = "basic"
username = "crawler"
password = "open sesame"
hosts = ["Wiki.example", "http://127.0.0.1:8080"]

[[credentials]]
name = "api"
kind = "bearer"
token = "t0ken"
hosts = ["wiki.example"]
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "secrets.toml"
    path.write_text(STORE)
    path.chmod(0o600)
    monkeypatch.setenv(FILE_VARIABLE, str(path))
    return path


def test_a_credential_is_known_at_its_own_sites_only(file: Path) -> None:
    store = open_store()
    assert store.names_for(URL("https://wiki.example/page")) == ["wiki", "api"]
    assert store.names_for(URL("http://127.0.0.1:8080/")) == ["wiki"]
    for other in (
        "http://wiki.example/",
        "https://wiki.example:8443/",
        "https://evil.wiki.example/",
        "http://127.0.0.1/",
    ):
        assert store.names_for(URL(other)) == []
        assert store.authorization("wiki", URL(other)) is None


def test_headers_are_made_as_their_schemes_say(file: Path) -> None:
    store = open_store()
    url = URL("https://wiki.example/")
    assert store.authorization("wiki", url) == "Basic Y3Jhd2xlcjpvcGVuIHNlc2FtZQ=="
    assert store.authorization("api", url) == "Bearer t0ken"
    assert store.authorization("other", url) is None


def test_a_store_may_be_json(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file.with_suffix(".json")
    entry = {"name": "api", "kind": "bearer", "token": "t", "hosts": ["a.example"]}
    path.write_text(json.dumps({"credentials": [entry]}))
    path.chmod(0o600)
    monkeypatch.setenv(FILE_VARIABLE, str(path))
    assert open_store().names_for(URL("https://a.example/")) == ["api"]


def test_without_a_file_there_are_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FILE_VARIABLE, raising=False)
    assert open_store().names_for(URL("https://wiki.example/")) == []


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_that_others_may_read_or_write_is_not_used(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(ToolError, match="others than its owner"):
        open_store()


@pytest.mark.parametrize(
    "text",
    [
        "not toml at all: hunter2",
        '[[credentials]]\nname = "a"\nkind = "basic"\npassword = "hunter2"\nhosts = ["a.example"]',
        STORE + STORE.replace("open sesame", "hunter2"),
        '[[credentials]]\nname = "a"\nkind = "bearer"\ntoken = "hunter2"\nhosts = []',
    ],
)
def test_a_broken_store_is_a_tool_error_that_tells_no_secret(
    file: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text(text)
    with pytest.raises(ToolError, match="cannot be used") as caught:
        open_store()
    assert "hunter2" not in str(caught.value)
    assert all("hunter2" not in str(record.__dict__) for record in caplog.records)
