"""The deployment of the matrix, who comes to it, and how each of its doors is knocked at.

Everything is real: authorization server, Temporal with encrypted payloads, worker, bridge, codec server. A target is
what somebody's request is about: a task of alice's that asks, or a call of hers in an older revision that does.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

import aiohttp
from aiohttp import web
from google.protobuf import json_format
from temporalio.api.common.v1 import Payloads
from temporalio.client import Client

from bridge.identity import Identity
from bridge.pages.sessions import Cookies
from tests.authserver.browser import browser, sign_in
from tests.authserver.running import ALL, AuthServer
from tests.cases.client import TASKS, McpClient, accept
from tests.cases.older_client import OlderClient, first_request
from tests.cases.stack import SEALING_KEY
from workflows.kit.contract import UPDATE_SIGNAL, Principal

OPERATE: Final = f"{ALL} tasks:operate"
UNKNOWN: Final = f"task-{0:032x}"
MARK: Final = "the-marked-secret"
"""In the arguments and the question of every target."""

ASKABLE: Final[Mapping[str, Any]] = {"elicitation": {"form": {}, "url": {}}, "extensions": {TASKS: {}}}
YES: Final = accept(yes=True)


@dataclass(frozen=True)
class Answer:
    """What came back, less its date."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: str

    def header(self, name: str) -> str | None:
        """The value of a header."""
        return next((value for known, value in self.headers if known.lower() == name.lower()), None)

    def about(self, old: str, new: str) -> Answer:
        """The same with one id for another."""
        headers = tuple((name, value.replace(old, new)) for name, value in self.headers)
        return Answer(self.status, headers, self.body.replace(old, new))


@dataclass(frozen=True)
class Target:
    """What a request is about; `headers` are those of an older session, `request` and `question` ids in it."""

    task: str
    headers: Mapping[str, str] = field(default_factory=dict)
    request: Any = 1
    question: Any = "none"


@dataclass(frozen=True)
class Who:
    """Somebody's credentials: a bearer token, and the cookie of the pages."""

    token: str | None
    cookie: str = ""


@dataclass
class World:
    """The deployment. `started`, `answered` and `cancelled` count what somebody was allowed to do."""

    url: str
    pages: str
    codec: str
    issuer: str
    engine: Client
    queue: str
    alice: McpClient
    session: aiohttp.ClientSession
    people: Mapping[str, Who] = field(default_factory=dict)
    form: str = ""
    """The token in a form of alice's, whom somebody may have had it from."""
    started: int = 0
    answered: int = 0
    cancelled: int = 0

    async def start(self, tool: str) -> Target:
        """A task of alice's that asks."""
        task = await self.alice.start(tool, {"label": MARK})
        self.started += 1
        await self.alice.parked(task)
        return Target(task)

    @asynccontextmanager
    async def older(self) -> AsyncIterator[Target]:
        """A call of alice's in 2025-11-25 that asks."""
        client = OlderClient([self.url], capabilities={"elicitation": {}})
        client.headers["Authorization"] = f"Bearer {self.people['owner'].token}"
        async with client, client.calling("confide", {"label": MARK}) as call:
            self.started += 1
            question = await first_request(call)
            session = {"Mcp-Session-Id": client.headers["Mcp-Session-Id"]}
            yield Target(UNKNOWN, session, call.id, question["id"])

    async def history_length(self, task: str) -> int:
        """Events of the task so far."""
        return (await self.engine.get_workflow_handle(task).describe()).history_length

    async def done(self) -> tuple[int, int, int]:
        """How many runs there are, answers that they were sent, and cancels."""
        runs = [run.id async for run in self.engine.list_workflows(f"TaskQueue = '{self.queue}'")]
        answered = cancelled = 0
        for run in runs:
            async for event in self.engine.get_workflow_handle(run).fetch_history_events():
                answered += event.workflow_execution_signaled_event_attributes.signal_name == UPDATE_SIGNAL
                cancelled += event.HasField("workflow_execution_cancel_requested_event_attributes")
        return len(runs), answered, cancelled


Knock = Callable[[World, Who, Target], Awaitable[Answer]]
"""Sends one request."""


async def _answer(response: aiohttp.ClientResponse) -> Answer:
    kept = tuple((name, value) for name, value in response.headers.items() if name != "Date")
    return Answer(response.status, kept, await response.text())


def _authorization(who: Who) -> dict[str, str]:
    return {} if who.token is None else {"Authorization": f"Bearer {who.token}"}


def _sending(world: World, who: Who, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """What a POST of 2026-07-28 is made of, with the same id whoever sends it."""
    headers = {name: value for name, value in world.alice.headers(method, params).items() if name != "Authorization"}
    named = {"Mcp-Name": params["uri"]} if "uri" in params else {}
    body = json.dumps(world.alice.body(method, params, id=1)).encode()
    return {"data": io.BytesIO(body), "headers": headers | named | _authorization(who)}


def modern(method: str, params: Callable[[Target], Mapping[str, Any]] = lambda _target: {}) -> Knock:
    """A request of 2026-07-28."""

    async def knock(world: World, who: Who, target: Target) -> Answer:
        async with world.session.post(world.url, **_sending(world, who, method, params(target))) as response:
            return await _answer(response)

    return knock


async def listen(world: World, who: Who, target: Target) -> Answer:
    """subscriptions/listen to the target: the acknowledgement, and what is told first if anything is honoured."""
    params = {"notifications": {"taskIds": [target.task]}}
    async with world.session.post(world.url, **_sending(world, who, "subscriptions/listen", params)) as response:
        if response.content_type != "text/event-stream":
            return await _answer(response)
        kept = tuple((name, value) for name, value in response.headers.items() if name != "Date")
        text = ""
        async with asyncio.timeout(30):
            while text.count("\n\n") < (2 if '"taskIds"' in text else 1):
                text += (await response.content.readany()).decode()
        return Answer(response.status, kept, text)


def older(message: Callable[[Target], Mapping[str, Any]], *, in_session: bool = True) -> Knock:
    """A message of 2025-11-25; the session is alice's, whom somebody may have had it from."""

    async def knock(world: World, who: Who, target: Target) -> Answer:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2025-11-25",
            **_authorization(who),
            **(target.headers if in_session else {}),
        }
        data = io.BytesIO(json.dumps({"jsonrpc": "2.0", **message(target)}).encode())
        async with world.session.post(world.url, data=data, headers=headers) as response:
            return await _answer(response)

    return knock


def page(method: str) -> Knock:
    """The page of the target's question, looked at or sent in, with all that a browser of ours would send."""

    async def knock(world: World, who: Who, target: Target) -> Answer:
        origin = world.pages.removesuffix("/pages")
        headers = {**_authorization(who), **({"Cookie": who.cookie} if who.cookie else {})}
        url, sent = f"{world.pages}/{target.task}/known", None
        if method == "POST":
            headers |= {"Origin": origin, "Content-Type": "application/x-www-form-urlencoded"}
            form = world.form
            if who == world.people["owner"]:
                form = form_token((await page("GET")(world, who, target)).body)
            sent = urlencode({"form": form, "action": "accept", "f.yes": "true"})
        async with world.session.request(method, url, data=sent, headers=headers, allow_redirects=False) as response:
            return await _answer(response)

    return knock


def codec(operation: str) -> Knock:
    """The codec server, with what Temporal has of the target's arguments."""

    async def knock(world: World, who: Who, target: Target) -> Answer:
        history = await world.engine.get_workflow_handle(target.task).fetch_history()
        stored = history.events[0].workflow_execution_started_event_attributes.input
        body = json_format.MessageToDict(Payloads(payloads=stored.payloads))
        async with world.session.post(f"{world.codec}/{operation}", json=body, headers=_authorization(who)) as response:
            return await _answer(response)

    return knock


def form_token(html: str) -> str:
    found = re.search(r'name="form" value="([^"]+)"', html)
    assert found, html
    return found[1]


async def signed_in(world: World, who: str, task: str) -> str:
    """The cookie of somebody who has signed in at the authorization server, having opened the page of `task`."""
    async with browser() as session:
        await sign_in(session, f"{world.pages}/{task}/known", who)
        (cookie,) = (cookie for cookie in session.cookie_jar if cookie.key == "mcp-tasks-session")
        return f"{cookie.key}={cookie.value}"


def sealed_cookie(identity: Identity, key: str = SEALING_KEY) -> str:
    """The cookie of a session that the authorization server would not give."""
    response = web.Response()
    Cookies([key], secure=False).sign_in(response, identity)
    (morsel,) = response.cookies.values()
    return f"{morsel.key}={morsel.value}"


async def expired_token(authorization: AuthServer, resource: str) -> str:
    """A token of alice's that was good a moment ago."""
    token = await authorization.token("alice", resource, OPERATE, ttl=1)
    await asyncio.sleep(2)
    return token


async def people(world: World, authorization: AuthServer) -> dict[str, Who]:
    """Everybody; credentials that are not valid have all scopes in them."""
    issuer, url = authorization.issuer, world.url
    alices = await signed_in(world, "alice", UNKNOWN)

    def known(subject: str, scopes: str, *, ended: bool = False) -> Identity:
        principal = Principal(issuer=issuer, subject=subject)
        return Identity(principal=principal, scopes=frozenset(scopes.split()), expires_at=1.0 if ended else None)

    good = await authorization.token("alice", url, OPERATE)
    elsewhere = await authorization.token("alice", "https://other.example/mcp", OPERATE)
    return {
        "nobody": Who(None),
        "bad": Who(good[:-8] + "AAAAAAAA", alices[:-8] + "AAAAAAAA"),
        "expired": Who(await expired_token(authorization, url), sealed_cookie(known("alice", OPERATE, ended=True))),
        "elsewhere": Who(elsewhere, sealed_cookie(known("alice", OPERATE), key="e" * 32)),
        "unscoped": Who(
            await authorization.token("alice", url, "deploy:production"),
            sealed_cookie(known("alice", "deploy:production")),
        ),
        "stranger": Who(await authorization.token("bob", url), await signed_in(world, "bob", UNKNOWN)),
        "owner": Who(await authorization.token("alice", url), alices),
        "operator": Who(await authorization.token("olga", url, OPERATE), sealed_cookie(known("olga", OPERATE))),
    }
