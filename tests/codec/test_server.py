"""The codec server: Temporal's protocol, for operators and for the pages of the configured origins alone."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import os
import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from google.protobuf import json_format
from temporalio.api.common.v1 import Payload, Payloads

from bridge.codec_server import MAX_BODY_BYTES, CodecService, everybody, running_codec_server
from bridge.dev_server import DevServer, temporal_binary
from bridge.guesses import GUESSES_AT_ONCE
from bridge.identity import LOCAL, Authenticator, Identity, Scope, Unavailable
from bridge.settings import CodecServerSettings, SettingsError
from tests.cases.client import McpClient, accept
from tests.codec.conftest import Encrypted
from tests.codec.keys import FIRST, IMPOSTOR, SECOND, codec
from tests.support import mcp_tasks, plain_environment, run_to_end

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOKEN = "an-operators-token"
ORIGIN = "https://temporal.example.com"
PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'"mark-plain"')


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server() -> AsyncIterator[str]:
    """The program, with a token and one origin."""
    environment = plain_environment(
        MCP_TASKS_ENCRYPTION_KEYS=f"{SECOND},{FIRST}",
        MCP_TASKS_CODEC_TOKEN=TOKEN,
        MCP_TASKS_CODEC_ORIGINS=ORIGIN,
    )
    async with mcp_tasks("codec-server", "--port", "0", environment=environment) as program:
        yield str(program.ready["codec"])


@pytest_asyncio.fixture(loop_scope="session")
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """Sends a token, if a test does not say otherwise."""
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session:
        yield session


def body(*payloads: Payload) -> dict[str, Any]:
    """As Temporal's web page and CLI write it."""
    written: dict[str, Any] = json_format.MessageToDict(Payloads(payloads=payloads))
    return written


def payloads_in(answer: Any) -> list[Payload]:
    """The payloads of an answer."""
    return list(json_format.ParseDict(answer, Payloads()).payloads)


async def test_guesses_of_the_token_are_bounded(session: aiohttp.ClientSession) -> None:
    environment = plain_environment(MCP_TASKS_ENCRYPTION_KEYS=FIRST, MCP_TASKS_CODEC_TOKEN=TOKEN)
    async with mcp_tasks("codec-server", "--port", "0", environment=environment) as program:

        async def guess(number: int) -> tuple[int, str | None]:
            shown = {"Authorization": f"Bearer guess-{number}"}
            async with session.post(f"{program.ready['codec']}/decode", json=body(PLAIN), headers=shown) as answer:
                return answer.status, answer.headers.get("Retry-After")

        answers = await asyncio.gather(*map(guess, range(2 * GUESSES_AT_ONCE)))
        assert set(answers) == {(401, None), (429, "1")}


@pytest.mark.parametrize(
    "path", ["/decode", "/default/decode", "/codec/default/decode", "/decode?preserveStorageRefs=true"]
)
async def test_what_is_ours_is_decrypted_and_the_rest_passes(
    server: str, session: aiohttp.ClientSession, path: str
) -> None:
    (old,), (new,) = await codec(FIRST).encode([PLAIN]), await codec(SECOND).encode([PLAIN])
    foreign = Payload(metadata={"encoding": b"binary/zlib"}, data=b"\x00\xff")
    async with session.post(server + path, json=body(old, foreign, PLAIN, new)) as answer:
        assert (answer.status, answer.content_type) == (200, "application/json")
        assert answer.headers["Cache-Control"] == "no-store"
        assert payloads_in(await answer.json()) == [PLAIN, foreign, PLAIN, PLAIN]


async def test_what_is_sent_to_a_worker_is_encrypted_with_the_first_key(
    server: str, session: aiohttp.ClientSession
) -> None:
    async with session.post(f"{server}/default/encode", json=body(PLAIN)) as answer:
        (payload,) = payloads_in(await answer.json())
    assert payload.metadata["encryption-key-id"] == b"winter"
    assert await codec(SECOND).decode([payload]) == [PLAIN]


async def test_what_cannot_be_decrypted_is_an_error_that_names_the_key(
    server: str, session: aiohttp.ClientSession
) -> None:
    (payload,) = await codec(IMPOSTOR).encode([PLAIN])
    async with session.post(f"{server}/decode", json=body(payload)) as answer:
        assert answer.status == 400
        assert "the key 'autumn'" in await answer.text()


async def test_bytes_that_are_no_http_are_not_repeated(server: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.rpartition(":")[2]))
    writer.write(b"mark-no-http\r\n\r\n")
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.") and b" 400 " in answer and b"mark-" not in answer


# Who may


@pytest.mark.parametrize(
    "shown", [None, "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer "], ids=str
)
@pytest.mark.parametrize("operation", ["decode", "encode"])
async def test_without_the_token_nothing_is_done(server: str, operation: str, shown: str | None) -> None:
    headers = {} if shown is None else {"Authorization": shown}
    (payload,) = await codec(FIRST).encode([PLAIN])
    async with (
        aiohttp.ClientSession(headers=headers) as stranger,
        stranger.post(f"{server}/{operation}", json=body(payload)) as answer,
    ):
        assert answer.status == 401 and answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert "mark-plain" not in await answer.text()


async def serving(authenticate: Authenticator, *, any_host: bool = True) -> CodecService:
    return CodecService(codec=codec(FIRST), authenticate=authenticate, origins={ORIGIN}, any_host=any_host)


@pytest.mark.parametrize(
    ("scopes", "status"),
    [
        (None, 403),
        (frozenset[str](), 403),
        (frozenset({Scope.CALL, Scope.READ, Scope.ANSWER}), 403),
        (frozenset({Scope.OPERATE}), 200),
    ],
)
async def test_whoever_is_known_must_be_an_operator(scopes: frozenset[str] | None, status: int) -> None:
    async def authenticate(_request: web.Request) -> Identity:
        return Identity(principal=LOCAL.principal, scopes=scopes)

    async with running_codec_server(await serving(authenticate), "127.0.0.1", 0) as url, aiohttp.ClientSession() as one:
        async with one.post(f"{url}/decode", json=body(PLAIN)) as answer:
            assert answer.status == status
            assert ("tasks:operate" in answer.headers.get("WWW-Authenticate", "")) == (status == 403)


async def test_while_nobody_can_tell_who_asks_nothing_is_done() -> None:
    async def authenticate(_request: web.Request) -> Identity:
        raise Unavailable(7)

    async with running_codec_server(await serving(authenticate), "127.0.0.1", 0) as url, aiohttp.ClientSession() as one:
        async with one.post(f"{url}/decode", json=body(PLAIN)) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "7")


@pytest.mark.parametrize(("host", "status"), [("evil.example:8081", 421), ("localhost", 200), ("127.0.0.1:1", 200)])
async def test_an_open_server_answers_under_names_of_loopback_alone(host: str, status: int) -> None:
    """A page that points its own name at this machine sends that name."""
    async with (
        running_codec_server(await serving(everybody, any_host=False), "127.0.0.1", 0) as url,
        aiohttp.ClientSession() as page,
        page.post(f"{url}/decode", json=body(PLAIN), headers={"Host": host}) as answer,
    ):
        assert answer.status == status


# Pages


async def test_the_web_page_of_the_configured_origin_may_ask(server: str, session: aiohttp.ClientSession) -> None:
    asked = {
        "Origin": ORIGIN,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-namespace",
    }
    async with aiohttp.ClientSession() as browser, browser.options(f"{server}/decode", headers=asked) as preflight:
        assert preflight.status == 204
        assert preflight.headers["Access-Control-Allow-Origin"] == ORIGIN
        assert preflight.headers["Access-Control-Allow-Methods"] == "POST"
        allowed = preflight.headers["Access-Control-Allow-Headers"].split(",")
        assert {"authorization", "content-type", "x-namespace"} <= set(allowed)
    async with session.post(f"{server}/decode", json=body(PLAIN), headers={"Origin": ORIGIN}) as answer:
        assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (200, ORIGIN)
        assert answer.headers["Vary"] == "Origin"
    headers = {"Origin": ORIGIN, "Authorization": "Bearer wrong"}
    async with session.post(f"{server}/decode", json=body(PLAIN), headers=headers) as refused:
        assert (refused.status, refused.headers["Access-Control-Allow-Origin"]) == (401, ORIGIN)


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", f"{ORIGIN}.evil.example", ORIGIN.replace("https", "http"), "null", f"{ORIGIN}:8443"],
)
@pytest.mark.parametrize("method", ["OPTIONS", "POST"])
async def test_no_other_page_may(server: str, session: aiohttp.ClientSession, method: str, origin: str) -> None:
    (payload,) = await codec(FIRST).encode([PLAIN])
    headers = {"Origin": origin}
    async with session.request(method, f"{server}/decode", json=body(payload), headers=headers) as answer:
        assert answer.status == 403
        assert "Access-Control-Allow-Origin" not in answer.headers
        assert "mark-plain" not in await answer.text()


# What is sent


@pytest.mark.parametrize(
    ("sent", "content_type", "status"),
    [
        (b"{}", "application/json", 200),
        (b"{}", "text/plain", 415),
        (b"", "application/json", 400),
        (b'{"payloads": [{"data": 5}]}', "application/json", 400),
        (b'{"payloads": 5}', "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"payloads":' + b"[" * 100_000, "application/json", 400),
        (b'{"payloads": [], "more": 1}', "application/json", 200),
        (b" " * (MAX_BODY_BYTES + 1), "application/json", 413),
    ],
    ids=lambda value: value[:20] if isinstance(value, bytes) else value,
)
async def test_what_cannot_be_read_is_refused(
    server: str, session: aiohttp.ClientSession, sent: bytes, content_type: str, status: int
) -> None:
    async with session.post(
        f"{server}/decode", data=io.BytesIO(sent), headers={"Content-Type": content_type}
    ) as answer:
        assert answer.status == status


async def test_the_largest_payloads_that_temporal_stores_fit(server: str, session: aiohttp.ClientSession) -> None:
    large = Payload(metadata={"encoding": b"json/plain"}, data=json.dumps("x" * 1_900_000).encode())
    payloads = await codec(FIRST).encode([large] * 4)
    sent = io.BytesIO(json.dumps(body(*payloads)).encode())
    async with session.post(f"{server}/decode", data=sent, headers={"Content-Type": "application/json"}) as answer:
        assert payloads_in(await answer.json()) == [large] * 4


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/decode", 405), ("POST", "/", 404), ("POST", "/x", 404)]
)
async def test_there_is_nothing_else(
    server: str, session: aiohttp.ClientSession, method: str, path: str, status: int
) -> None:
    async with session.request(method, server + path, json={}) as answer:
        assert answer.status == status


async def test_the_log_says_who_had_how_many_opened_and_nothing_of_them(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    (payload,) = await codec(FIRST).encode([PLAIN])
    (unknown,) = await codec(SECOND).encode([PLAIN])
    async with running_codec_server(await serving(everybody), "127.0.0.1", 0) as url, aiohttp.ClientSession() as one:
        headers = {"X-Namespace": "default"}
        for sent in (payload, unknown):
            async with one.post(f"{url}/decode", json=body(sent), headers=headers) as answer:
                await answer.read()
    (record,) = [record for record in caplog.records if record.message == "codec.decode"]
    assert (vars(record)["payloads"], vars(record)["subject"], vars(record)["namespace"]) == (1, "local", "default")
    said = repr([vars(record) for record in caplog.records])
    for hidden in ("mark-plain", base64.b64encode(PLAIN.data).decode(), base64.b64encode(payload.data).decode()[:24]):
        assert hidden not in said


# Never open by accident


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({}, "MCP_TASKS_ENCRYPTION_KEYS is not set"),
        ({"MCP_TASKS_ENCRYPTION_KEYS": FIRST}, "MCP_TASKS_CODEC_TOKEN is not set"),
        ({"MCP_TASKS_ENCRYPTION_KEYS": FIRST, "MCP_TASKS_CODEC_TOKEN": "short"}, "MCP_TASKS_CODEC_TOKEN must be"),
        ({"MCP_TASKS_ENCRYPTION_KEYS": FIRST, "MCP_TASKS_CODEC_TOKEN": "§" * 16}, "MCP_TASKS_CODEC_TOKEN must be"),
        (
            {"MCP_TASKS_ENCRYPTION_KEYS": FIRST, "MCP_TASKS_CODEC_OPEN": "true", "MCP_TASKS_CODEC_HOST": "0.0.0.0"},  # noqa: S104
            "MCP_TASKS_CODEC_HOST is '0.0.0.0', which others can reach",
        ),
        (
            {"MCP_TASKS_ENCRYPTION_KEYS": FIRST, "MCP_TASKS_CODEC_OPEN": "true", "MCP_TASKS_CODEC_ORIGINS": "*"},
            "MCP_TASKS_CODEC_ORIGINS must be",
        ),
        (
            {
                "MCP_TASKS_ENCRYPTION_KEYS": FIRST,
                "MCP_TASKS_CODEC_OPEN": "true",
                "MCP_TASKS_CODEC_ORIGINS": f"{ORIGIN}/",
            },
            "MCP_TASKS_CODEC_ORIGINS must be",
        ),
    ],
)
async def test_it_refuses_to_start_open(variables: dict[str, str], named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MCP_TASKS_")]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=named):
        CodecServerSettings.load()


async def test_a_refused_start_is_one_line_and_status_2() -> None:
    environment = plain_environment(MCP_TASKS_ENCRYPTION_KEYS=FIRST)
    status, output, errors = await run_to_end("codec-server", environment=environment)
    assert (status, output) == (2, "")
    assert errors.startswith("mcp-tasks: MCP_TASKS_CODEC_TOKEN is not set: ") and len(errors.splitlines()) == 1


# The CLI


async def test_temporals_cli_shows_a_history_through_it(temporal: DevServer, encrypted: Encrypted, server: str) -> None:
    await encrypted.worker()
    bridge = await encrypted.bridge()
    async with McpClient(bridge.url) as client:
        task_id = await client.start("confide", {"secret": "mark-argument"})
        await client.parked(task_id)
        await client.update(task_id, {"answer": accept(text="mark-answer")})
        await client.finished(task_id)
    plain = await shown(temporal, task_id)
    decoded = await shown(
        temporal, task_id, "--codec-endpoint", f"{server}/{{namespace}}", "--codec-auth", f"Bearer {TOKEN}"
    )
    for said in ("mark-argument", "mark-answer", "whispered mark-argument"):
        assert said in decoded and said not in plain


async def shown(temporal: DevServer, task_id: str, *options: str) -> str:
    """What the payloads hold that `temporal workflow show` prints."""
    process = await asyncio.create_subprocess_exec(
        *(temporal_binary(), "workflow", "show", "--workflow-id", task_id, "--address", temporal.address),
        *("--output", "json", *options),
        env=plain_environment(),
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(30):
        output, _ = await process.communicate()
    assert process.returncode == 0
    data = re.findall(r'"data": "([^"]*)"', output.decode())
    assert data
    return "\n".join(base64.b64decode(one).decode("utf-8", "replace") for one in data)
