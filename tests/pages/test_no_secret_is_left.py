"""A crawl with a password that a person types into the page; and nowhere is a trace of it, or of any token."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer
from temporalio.api.common.v1 import Payload
from temporalio.client import Client

from bridge.codec import EncryptionCodec
from bridge.dev_server import DevServer
from tests.authserver.browser import browser
from tests.authserver.running import AuthServer
from tests.cases.client import McpClient, accept
from tests.cases.stack import SEALING_KEY, Process, Programs
from tests.encryption import CONVERTER
from tests.pages.browsing import Page, send, signed_in, visit
from tests.pages.conftest import MODULE, OPENS_PAGES, PRIVATE, link, oauth_bridge
from tests.support import unique

pytestmark = pytest.mark.asyncio(loop_scope="session")

USER = "crawler-of-the-wiki"
PASSWORD = "correct horse & bättery"
WRONG = "an-0ld-and-wrong-one"


@dataclass
class Stack:
    """A bridge and a worker that log everything they can."""

    bridge: Process
    logs: list[Path]
    client: Client


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Files for the logs of a bridge and a worker."""
    with (tmp_path / "bridge.log").open("wb") as bridge, (tmp_path / "worker.log").open("wb") as worker:
        yield bridge, worker


@pytest_asyncio.fixture(loop_scope="session")
async def stack(
    programs: Programs, temporal: DevServer, authorization: AuthServer, logs: tuple[IO[bytes], IO[bytes]]
) -> AsyncIterator[Stack]:
    queue: dict[str, Any] = {"MCP_TASKS_TASK_QUEUE": unique("traces"), "MCP_TASKS_LOG_LEVEL": "debug"}
    worker = await programs.worker(
        MODULE,
        log=logs[1],
        MCP_TASKS_ANSWER_PRIVATE_KEYS=PRIVATE.get_secret_value(),
        MCP_TASKS_CRAWL_ALLOW_PRIVATE="1",
        **queue,
    )
    bridge = await oauth_bridge(programs, authorization, log=logs[0], **queue)
    client = await Client.connect(temporal.address)
    yield Stack(bridge, [Path(log.name) for log in logs], client)
    await bridge.stop()
    await worker.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def wiki() -> AsyncIterator[str]:
    """A site with a part for whoever knows the password; it is never told it by a page that is open to all."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/robots.txt":
            return web.Response(status=404)
        shown = request.headers.get("Authorization")
        if request.path.startswith("/members"):
            if shown != f"Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}":
                return web.Response(status=401, headers={"WWW-Authenticate": "Basic realm=wiki"})
            return web.Response(text="<a href=/members/2>", content_type="text/html")
        assert shown is None
        return web.Response(text="<a href=/members/1><a href=/open>", content_type="text/html")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    server = TestServer(app)
    await server.start_server()
    yield str(server.make_url("/"))
    await server.close()


def spellings(secret: str) -> set[bytes]:
    """How it may be written down."""
    plain = secret.encode()
    return {
        plain,
        json.dumps(secret)[1:-1].encode(),
        quote(secret).encode(),
        base64.b64encode(plain),
        plain.hex().encode(),
    }


async def test_a_password_typed_into_the_page_is_used_and_leaves_no_trace(
    stack: Stack, wiki: str, authorization: AuthServer
) -> None:
    token = await authorization.token("alice", stack.bridge.url)
    told: list[str] = []
    async with McpClient(stack.bridge.url, OPENS_PAGES, token=token) as client, browser() as session:
        task_id = await client.start("crawl_site", {"url": wiki, "delay_ms": 0})
        page: Page | None = None
        asked: set[str] = set()
        for password in (WRONG, PASSWORD):
            requests = await client.parked(task_id, without=tuple(asked))
            ((key, request),) = requests.items()
            told.append(json.dumps(requests))
            assert ("What was entered was refused" in request["params"]["message"]) is (password == PASSWORD)
            await client.update(task_id, {key: accept(choice="enter")})
            key, url = link(requests := await client.parked(task_id, without=(*asked, key)))
            told.append(json.dumps(requests))
            asked |= {key, *json.loads(told[-2])}
            page = await (visit(session, url) if page else signed_in(session, url, "alice"))
            assert wiki.rstrip("/") in page.text and "this crawl and this site alone" in page.text
            done = await send(session, page, {"f.username": USER, "f.password": password})
            assert done.status == 200
            told.append(done.text)
        task = await client.finished(task_id)
        told.append(json.dumps(task))
        cookies = [cookie.value for cookie in session.cookie_jar if cookie.key.startswith("mcp-tasks")]
        form = page.fields["form"] if page else ""
        history_resource = await client.request(
            "resources/read", {"uri": (uri := f"mcp-task://{task_id}/history")}, headers={"Mcp-Name": uri}
        )
        told.append(json.dumps(history_resource.result))
    result = task["result"]["structuredContent"]
    assert (result["fetched"], result["skipped"], result["failed"]) == (4, 0, 0)

    handle = stack.client.get_workflow_handle(task_id)
    history = await handle.fetch_history()
    described = (await handle.describe()).raw_description
    await stack.bridge.stop()
    places = {
        "history": b"".join(event.SerializeToString() for event in history.events),
        "history as JSON": json.dumps(_decoded(json.loads(history.to_json())), ensure_ascii=False).encode(),
        "memo and search attributes": described.SerializeToString(),
        "what the client was told": "\n".join(told).encode(),
        **{log.name: log.read_bytes() for log in stack.logs},
    }
    site = wiki.rstrip("/").encode()
    seen = {
        "history": b"mcp_update",
        "history as JSON": site,
        "memo and search attributes": b"mcp_task",
        "what the client was told": site,
        "bridge.log": task_id.encode(),
        "worker.log": b"worker.started",
    }
    secrets = [
        PASSWORD,
        WRONG,
        f"{USER}:{PASSWORD}",
        f"{USER}:{WRONG}",
        USER,
        token,
        token.rpartition(".")[2],
        *cookies,
        form,
        "pages-secret",
        SEALING_KEY,
        PRIVATE.get_secret_value().partition(":")[2],
    ]
    assert len(cookies) == 1 and all(secrets)
    for place, text in places.items():
        assert seen[place] in text, f"{place} was really looked at"
        found = [secret for secret in secrets if any(spelling in text for spelling in spellings(secret))]
        assert not found, f"{place} has {found}"


def _decoded(value: Any) -> Any:
    """A history as JSON with its payloads in clear, also where they are encrypted."""
    if isinstance(value, dict) and isinstance(value.get("data"), str) and isinstance(value.get("metadata"), dict):
        metadata = {name: base64.b64decode(item) for name, item in value["metadata"].items()}
        payload = Payload(metadata=metadata, data=base64.b64decode(value["data"]))
        codec = CONVERTER.payload_codec
        plain = codec.decrypted(payload) if isinstance(codec, EncryptionCodec) else payload
        return plain.data.decode("utf-8", "replace")
    if isinstance(value, dict):
        return {name: _decoded(item) for name, item in value.items()}
    return [_decoded(item) for item in value] if isinstance(value, list) else value
