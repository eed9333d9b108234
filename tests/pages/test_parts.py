"""The parts of the pages that need no server: sealing, sessions, forms, fields."""

from __future__ import annotations

import base64
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from pydantic import Field, SecretStr
from temporalio.testing import ActivityEnvironment

from activities.sealed_answers import KEYS_VARIABLE, opened
from bridge.dev_keys import answer_public_key, database_keys, new_answer_key
from bridge.identity import LOCAL, Identity
from bridge.jwks import Issuer, IssuerKeys
from bridge.pages.forms import content, fields
from bridge.pages.oauth import Client, OAuthSignIn
from bridge.pages.sealing import Sealer
from bridge.pages.sessions import MAX_COOKIE_CHARS, Cookies, Forms, Visitor
from bridge.pages.sign_in import own_path
from bridge.settings import BridgeSettings, SettingsError, WorkerSettings
from workflows.kit import Form, SealedAnswer, SecretForm, ToolError
from workflows.kit.contract import PAGE_CHANNEL, Actor, PageForm, Principal, UpdateSignal
from workflows.kit.forms import content_problem
from workflows.kit.pages import page_form_problem, page_problem, page_url
from workflows.kit.sealed import BLOCK_BYTES, check_page_form

KEYS = ["k" * 32]
PRIVATE = new_answer_key()
ALICE = Identity(
    principal=Principal(issuer="https://login.example", subject="alice"),
    scopes=frozenset({"tasks:answer"}),
    groups=frozenset({"a", "b"}),
    expires_at=time.time() + 100,
)


ISSUER = "https://login.example"
RESOURCE = "https://mcp.example/mcp"
METADATA = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/auth",
    "token_endpoint": f"{ISSUER}/token",
    "authorization_response_iss_parameter_supported": True,
}


async def _never(_request: web.Request) -> Identity:
    raise AssertionError("no token is judged")


class Login(SecretForm):
    who: str = ""
    password: SecretStr = Field(min_length=1)


def sealed(
    content: dict[str, Any], *, task: str = "test", key: str = "k", private: SecretStr = PRIVATE
) -> SealedAnswer:
    told = Sealer(answer_public_key(private)).seal(content, task, key)
    return SealedAnswer(task=task, key=key, key_id=told["keyId"], data=told["data"])


@pytest.fixture
def env() -> ActivityEnvironment:
    environment = ActivityEnvironment()
    assert environment.info.workflow_id == "test"
    return environment


def test_what_was_sealed_is_opened_in_the_task_that_asked(
    env: ActivityEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, f"old:{base64.b64encode(b'o' * 32).decode()}, {PRIVATE.get_secret_value()}")
    login = env.run(opened, sealed({"who": "al", "password": "pä ss"}), Login)
    assert (login.who, login.password.get_secret_value()) == ("al", "pä ss")


@pytest.mark.parametrize(
    "answer",
    [
        sealed({"password": "x"}, task="another"),
        sealed({"password": "x"}, task="another").model_copy(update={"task": "test"}),
        sealed({"password": "x"}).model_copy(update={"key": "k2"}),
        sealed({"password": "x"}).model_copy(update={"key_id": "unknown"}),
        sealed({"password": "x"}).model_copy(update={"data": "!"}),
        sealed({"password": "x"}).model_copy(update={"data": "eHh4"}),
        sealed({"password": "x"}, private=SecretStr(f"dev:{base64.b64encode(b'p' * 32).decode()}")),
    ],
    ids=[
        "another task's",
        "moved to this task",
        "moved to another question",
        "no key",
        "no data",
        "short",
        "other key",
    ],
)
def test_what_was_sealed_for_something_else_opens_nowhere(
    env: ActivityEnvironment, monkeypatch: pytest.MonkeyPatch, answer: SealedAnswer
) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, PRIVATE.get_secret_value())
    with pytest.raises(ToolError, match="cannot open what was entered"):
        env.run(opened, answer, Login)


def test_what_does_not_fit_is_named_without_what_it_is(
    env: ActivityEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, PRIVATE.get_secret_value())
    with pytest.raises(ToolError) as caught:
        env.run(opened, sealed({"password": ["s3cret"]}), Login)
    assert "cannot be used: password." in str(caught.value) and "s3cret" not in repr(caught.value)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


def test_a_sealed_answer_tells_no_length_and_is_never_the_same() -> None:
    lengths = {len(sealed({"password": "x" * number}).data) for number in range(1, 200)}
    assert len(lengths) == 1
    assert len(sealed({"password": "x" * (BLOCK_BYTES + 1)}).data) > lengths.pop()
    assert sealed({"password": "x"}).data != sealed({"password": "x"}).data


def test_a_session_is_who_signed_in_until_its_end() -> None:
    cookies = Cookies(KEYS, secure=True)
    response = web.Response()
    assert cookies.sign_in(response, ALICE)
    cookie = response.cookies["__Host-mcp-tasks-session"]
    assert cookie["secure"] and cookie["httponly"] and cookie["path"] == "/" and not cookie["domain"]
    request = make_mocked_request("GET", "/", headers={"Cookie": f"{cookie.key}={cookie.value}"})
    visitor = cookies.visitor(request)
    assert visitor is not None and visitor.identity == ALICE and visitor.session
    assert Cookies(["o" * 32], secure=True).visitor(request) is None
    assert Cookies(KEYS, secure=False).visitor(request) is None, "another name"
    assert (
        cookies.flow(make_mocked_request("GET", "/", headers={"Cookie": f"__Host-mcp-tasks-sign-in={cookie.value}"}))
        is None
    )


def test_a_session_ends_with_the_credentials() -> None:
    cookies, response = Cookies(KEYS, secure=False), web.Response()
    cookies.sign_in(response, Identity(principal=ALICE.principal, expires_at=time.time() - 1))
    cookie = response.cookies["mcp-tasks-session"]
    assert cookie["max-age"] == "0"
    request = make_mocked_request("GET", "/", headers={"Cookie": f"{cookie.key}={cookie.value}"})
    assert cookies.visitor(request) is None


def test_a_session_fits_into_a_cookie_whatever_the_groups() -> None:
    groups = frozenset(f"group-{number}-{hash(str(number))}" for number in range(500))
    cookies, response = Cookies(KEYS, secure=False), web.Response()
    assert not cookies.sign_in(response, Identity(principal=ALICE.principal, groups=groups))
    cookie = response.cookies["mcp-tasks-session"]
    assert len(cookie.value) <= MAX_COOKIE_CHARS
    visitor = cookies.visitor(make_mocked_request("GET", "/", headers={"Cookie": f"{cookie.key}={cookie.value}"}))
    assert visitor is not None and visitor.identity.groups < groups and len(visitor.identity.groups) > 50


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ({"state": "s2", "code": "c", "iss": ISSUER}, "not this browser"),
        ({"code": "c", "iss": ISSUER}, "not this browser"),
        ({"state": "s", "code": "c", "iss": "https://other.example"}, "another issuer"),
        ({"state": "s", "code": "c"}, "another issuer"),
        ({"state": "s", "error": "access_denied", "iss": ISSUER}, "access_denied"),
    ],
)
async def test_a_code_of_another_sign_in_is_never_redeemed(
    query: dict[str, str], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What comes back must belong to what this browser began, by `state` and by issuer (RFC 9207)."""
    caplog.set_level("INFO")
    async with aiohttp.ClientSession() as session:
        client = Client(id="c", secret=None, callback="https://x.example/cb", resource=RESOURCE, clock_skew_seconds=0)
        cookies = Cookies(KEYS, secure=False)
        sign_in = OAuthSignIn(_never, IssuerKeys(Issuer(ISSUER), session), session, client, cookies, "/pages")
        sign_in._metadata, sign_in._ask_again_at = METADATA, time.monotonic() + 60
        kept = web.Response()
        cookies.begin_flow(kept, {"state": "s", "nonce": "n", "verifier": "v", "to": "/pages/t/k"})
        cookie = kept.cookies["mcp-tasks-sign-in"]
        request = make_mocked_request(
            "GET", f"/pages/callback?{urlencode(query)}", headers={"Cookie": f"{cookie.key}={cookie.value}"}
        )
        response = await sign_in._callback(request)
    assert response.status == 403 and "mcp-tasks-session" not in response.cookies
    assert response.cookies["mcp-tasks-sign-in"]["max-age"] == "0" and why in caplog.text


def test_a_form_is_for_one_question_one_person_one_session() -> None:
    forms, alice = Forms(KEYS), Visitor(ALICE, "s")
    token = forms.token(alice, "task", "key")
    assert forms.accepts(token, alice, "task", "key")
    assert not forms.accepts(token, alice, "task", "other")
    assert not forms.accepts(token, alice, "taskkey", "")
    assert not forms.accepts(token, Visitor(ALICE, "t"), "task", "key")
    assert not forms.accepts(token, Visitor(LOCAL, "s"), "task", "key")
    assert not forms.accepts("", alice, "task", "key")


@pytest.mark.parametrize(
    ("to", "led"),
    [
        ("/pages/t/k", "/pages/t/k"), ("/pages/t/k?x", "/pages/t/k?x"), ("/pagesevil", "/pages/"), ("", "/pages/"),
        ("//evil.example/pages/", "/pages/"), ("https://evil.example/pages/x", "/pages/"), ("/pages/\\x", "/pages/"),
        ("/pages/\nx", "/pages/"),
    ],
)  # fmt: skip
def test_signing_in_leads_to_a_page_of_ours(to: str, led: str) -> None:
    assert own_path(to, "/pages") == led


class Everything(SecretForm):
    text: str
    long: str = Field(default="", max_length=1000)
    count: int = Field(ge=0, le=5)
    share: float | None = None
    sure: bool
    maybe: bool = True
    secret: SecretStr = Field(max_length=9)


SCHEMA = Everything.requested_schema() | {
    "properties": {
        **Everything.requested_schema()["properties"],
        "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l"}]},
        "tags": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}, "default": ["y"]},
        "on": {"type": "string", "format": "date"},
    }
}


def test_each_kind_of_field_has_its_input() -> None:
    shown = {field.name.removeprefix("f."): field for field in fields(SCHEMA)}
    kinds = {name: (field.kind, field.type, field.required) for name, field in shown.items()}
    assert kinds == {
        "text": ("line", "text", True),
        "long": ("text", "text", False),
        "count": ("line", "number", True),
        "share": ("line", "number", False),
        "sure": ("one", "text", True),
        "maybe": ("one", "text", False),
        "secret": ("secret", "text", True),
        "size": ("one", "text", False),
        "tags": ("many", "text", False),
        "on": ("line", "date", False),
    }
    assert [option.value for option in shown["maybe"].options if option.chosen] == ["true"]
    assert [option.value for option in shown["tags"].options if option.chosen] == ["y"]
    assert shown["secret"].attributes == {"maxlength": 9} and shown["count"].attributes["max"] == 5


def test_what_was_entered_becomes_the_content_of_an_answer() -> None:
    posted = {
        "f.text": [" a "], "f.long": [""], "f.count": ["3"], "f.share": ["0.5"], "f.sure": ["false"], "f.maybe": [""],
        "f.secret": [" s "], "f.size": ["l"], "f.tags": ["x", "y"], "f.on": ["2026-07-28"],
        "f.other": ["x"], "x": ["y"],
    }  # fmt: skip
    entered = content(SCHEMA, posted)
    assert entered == {
        "text": " a ", "count": 3, "share": 0.5, "sure": False, "secret": " s ", "size": "l", "tags": ["x", "y"],
        "on": "2026-07-28",
    }  # fmt: skip
    assert content_problem(SCHEMA, entered) is None
    again = {field.name: field for field in fields(SCHEMA, posted)}
    assert again["f.secret"].value == "" and again["f.text"].value == " a "


@pytest.mark.parametrize(
    ("name", "text"), [("count", "x"), ("count", "1.5"), ("share", "nan"), ("sure", "on"), ("size", "m")]
)
def test_what_cannot_be_read_is_refused_by_name(name: str, text: str) -> None:
    posted = {"f.text": ["a"], "f.count": ["1"], "f.sure": ["true"], "f.secret": ["s"], f"f.{name}": [text]}
    problem = content_problem(SCHEMA, content(SCHEMA, posted))
    assert problem is not None and problem.startswith(f"{name}: ")


def test_two_answers_to_one_field_are_none() -> None:
    posted = {"f.text": ["a"], "f.count": ["1"], "f.sure": ["true", "false"], "f.secret": ["s"]}
    problem = content_problem(SCHEMA, content(SCHEMA, posted))
    assert problem is not None and problem.startswith("sure: ")


def test_a_secret_form_is_for_no_client() -> None:
    schema = Login.requested_schema()
    assert schema["properties"]["password"]["writeOnly"] is True and "format" not in schema["properties"]["password"]
    check_page_form("x", schema)
    with pytest.raises(TypeError):

        class Plain(Form):
            password: SecretStr


@pytest.mark.parametrize(
    "form", [{}, {"properties": 1}, {"type": "object", "properties": {"a": 1}}, {"type": "object"}]
)
def test_a_form_of_others_that_no_page_can_show_is_known(form: dict[str, Any]) -> None:
    assert page_form_problem(PageForm(form=form)) is not None


PAGE = Actor(issuer="i", subject="s", channel=PAGE_CHANNEL)
CLIENT = Actor(issuer="i", subject="s", channel="http")
OPEN = PageForm(form={"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]})
SEALED = PageForm(form=OPEN.form, sealed=True)
GOOD = {"keyId": "k", "data": "eA=="}


@pytest.mark.parametrize(
    ("page", "response", "actor", "answers"),
    [
        (OPEN, {"action": "accept", "content": {"a": True}}, PAGE, True),
        (OPEN, {"action": "accept", "content": {"a": True}}, CLIENT, False),
        (OPEN, {"action": "accept", "content": {"a": True}}, None, False),
        (OPEN, {"action": "accept"}, PAGE, False),
        (OPEN, {"action": "accept", "content": {"a": 1}}, PAGE, False),
        (SEALED, {"action": "accept", "sealed": GOOD}, PAGE, True),
        (SEALED, {"action": "accept", "sealed": GOOD}, CLIENT, False),
        (SEALED, {"action": "accept", "content": {"a": True}}, PAGE, False),
        (SEALED, {"action": "accept", "sealed": GOOD, "content": {"a": True}}, PAGE, False),
        (SEALED, {"action": "accept", "sealed": {"keyId": "", "data": "x"}}, PAGE, False),
        (SEALED, {"action": "accept", "sealed": {"keyId": "k", "data": "x" * 70_000}}, PAGE, False),
        (SEALED, {"action": "decline"}, CLIENT, True),
        (OPEN, {"action": "cancel"}, None, True),
    ],
)
def test_only_the_page_accepts(page: PageForm, response: dict[str, Any], actor: Actor | None, answers: bool) -> None:
    assert (page_problem(page, response, actor) is None) is answers


def test_the_address_of_a_page_keeps_odd_names_apart() -> None:
    assert page_url("https://x.example/p", "a/b", "c?d é") == "https://x.example/p/a%2Fb/c%3Fd%20%C3%A9"


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"PAGES_URL": "http://mcp.example/pages"}, "PAGES_URL"),
        ({"PAGES_URL": "https://mcp.example"}, "PAGES_URL"),
        ({"PAGES_URL": "https://mcp.example/mcp"}, "PATH"),
        ({"ANSWER_PUBLIC_KEY": "x"}, "ANSWER_PUBLIC_KEY"),
        ({"ANSWER_PUBLIC_KEY": "x:c2hvcnQ="}, "ANSWER_PUBLIC_KEY"),
        ({"PAGES_CLIENT_ID": "x"}, "PAGES_CLIENT_ID"),
        ({"PAGES_URL": "https://mcp.example/p", "OAUTH_ISSUERS": "https://login.example",
          "RESOURCE_URL": "https://mcp.example/mcp"}, "PAGES_CLIENT_ID"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_used_are_named(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], named: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"MCP_TASKS_{name}", value)
    with pytest.raises(SettingsError, match=f"MCP_TASKS_{named}"):
        BridgeSettings.load(single_replica=True)


@pytest.mark.parametrize(
    "keys",
    ["x", "a:eA==", f"{PRIVATE.get_secret_value()},{PRIVATE.get_secret_value()}"],
    ids=["no key", "too short", "twice"],
)
def test_a_workers_keys_that_cannot_be_used_are_named_and_not_shown(monkeypatch: pytest.MonkeyPatch, keys: str) -> None:
    monkeypatch.setenv("MCP_TASKS_ANSWER_PRIVATE_KEYS", keys)
    with pytest.raises(SettingsError) as caught:
        WorkerSettings.load()
    assert "MCP_TASKS_ANSWER_PRIVATE_KEYS" in str(caught.value) and keys not in str(caught.value)


def test_a_database_keeps_its_pair(tmp_path: Path) -> None:
    pairs = []
    for _ in range(2):
        with database_keys(tmp_path / "tasks.db") as keys:
            pairs.append((keys.answers.get_secret_value(), answer_public_key(keys.answers)))
    assert pairs[0] == pairs[1]
    file = tmp_path / "tasks.db.answer-key"
    assert file.stat().st_mode & 0o077 == 0
    raw = base64.b64decode(pairs[0][0].partition(":")[2])
    public = X25519PrivateKey.from_private_bytes(raw).public_key().public_bytes_raw()
    assert pairs[0][1] == f"dev:{base64.b64encode(public).decode()}"


def test_a_signal_with_a_sealed_answer_is_plain_json() -> None:
    update = UpdateSignal(responses={"k": {"action": "accept", "sealed": GOOD}}, actor=PAGE, at=datetime.now(UTC))
    assert json.loads(json.dumps(update.to_json()))["responses"]["k"]["sealed"] == GOOD
