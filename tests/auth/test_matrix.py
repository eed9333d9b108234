"""Who gets what at every door: one real deployment, the tokens of a real authorization server, one cell a test.

A cell says in one word what comes back (`CHECKS`). Whatever is refused has no byte of the task in it and does nothing
to it; the last test adds up what Temporal was asked to do.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import pytest
import pytest_asyncio
from temporalio.client import Client

from bridge.dev_server import DevServer, free_port
from bridge.scopes import METHOD_SCOPES
from tests.auth import matrix
from tests.auth.matrix import ASKABLE, MARK, UNKNOWN, YES, Answer, Knock, Target, World, modern, older, page
from tests.authserver.running import AuthServer
from tests.cases.client import McpClient
from tests.cases.stack import Programs, program_environment
from tests.codec.keys import FIRST, converter
from tests.support import eventually, mcp_tasks, unique

pytestmark = pytest.mark.asyncio(loop_scope="session")

WHO: Final = ("nobody", "bad", "expired", "elsewhere", "unscoped", "stranger", "owner", "operator")
"""No credentials; a changed token; one that has expired; one for another resource; a valid one of alice's without the
scope; bob; alice, whose task it is, with another token than the task was started with; an operator."""

TABLE: Final[Mapping[str, str]] = {
    # who:                       nobody bad expired elsewhere unscoped stranger owner operator
    "server/discover":           "401   401   401   401       open     open     open     open",
    "tools/list":                "401   401   401   401       403      open     open     open",
    "tools/call":                "401   401   401   401       403      starts   starts   starts",
    "tasks/get":                 "401   401   401   401       403      unknown  reads    waits",
    "tasks/update":              "401   401   401   401       403      unknown  answers  not-theirs",
    "tasks/cancel":              "401   401   401   401       403      unknown  cancels  cancels",
    "subscriptions/listen":      "401   401   401   401       403      unknown  reads    waits",
    "resources/list":            "401   401   401   401       403      open     open     open",
    "resources/templates/list":  "401   401   401   401       403      open     open     open",
    "resources/read":            "401   401   401   401       403      unknown  reads    reads",
    "prompts/list":              "401   401   401   401       403      open     open     open",
    "prompts/get":               "401   401   401   401       403      open     open     open",
    "completion/complete":       "401   401   401   401       403      open     open     open",
    "initialize":                "401   401   401   401       open     open     open     open",
    "ping":                      "401   401   401   401       open     open     open     open",
    "notifications/cancelled":   "401   401   401   401       403      session  cancels  session",
    "an answer":                 "401   401   401   401       403      nothing  answers  nothing",
    "page":                      "login login login login     hidden   hidden   reads    hidden",
    "page, sent":                "out   out   out   out       hidden   hidden   answers  hidden",
    "codec decode":              "401   401   401   401       operate  operate  operate  reads",
    "codec encode":              "401   401   401   401       operate  operate  operate  open",
}  # fmt: skip


def task(target: Target) -> dict[str, Any]:
    return {"taskId": target.task}


def history(target: Target) -> dict[str, Any]:
    return {"uri": f"mcp-task://{target.task}/history"}


KNOCKS: Final[Mapping[str, Knock]] = {
    "server/discover": modern("server/discover"),
    "tools/list": modern("tools/list"),
    "tools/call": modern("tools/call", lambda _: {"name": "confide", "arguments": {"label": "of their own"}}),
    "tasks/get": modern("tasks/get", task),
    "tasks/update": modern("tasks/update", lambda target: {**task(target), "inputResponses": {"known": YES}}),
    "tasks/cancel": modern("tasks/cancel", task),
    "subscriptions/listen": matrix.listen,
    "resources/list": modern("resources/list"),
    "resources/templates/list": modern("resources/templates/list"),
    "resources/read": modern("resources/read", history),
    "prompts/list": modern("prompts/list"),
    "prompts/get": modern("prompts/get", lambda _: {"name": "greet"}),
    "completion/complete": modern(
        "completion/complete",
        lambda _: {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "whom", "value": "a"}},
    ),
    "initialize": older(
        lambda _: {
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "qa", "version": "1"},
            },
        },
        in_session=False,
    ),
    "ping": older(lambda _: {"id": 1, "method": "ping"}, in_session=False),
    "notifications/cancelled": older(
        lambda target: {"method": "notifications/cancelled", "params": {"requestId": target.request}}
    ),
    "an answer": older(lambda target: {"id": target.question, "result": YES}, in_session=False),
    "page": page("GET"),
    "page, sent": page("POST"),
    "codec decode": matrix.codec("decode"),
    "codec encode": matrix.codec("encode"),
}

OLDER: Final = ("notifications/cancelled", "an answer")
DOES: Final = ("starts", "answers", "cancels")

WHY: Final = {
    "bad": "The token's signature is not valid",
    "expired": "The token has expired",
    "elsewhere": "The token is for another resource",
}

NEEDS: Final = {method: f"{scope}" for method, scope in METHOD_SCOPES.items()} | {"an answer": "tasks:answer"}


async def test_the_table_has_every_method_and_somebody_of_each_kind() -> None:
    assert TABLE.keys() == KNOCKS.keys() > METHOD_SCOPES.keys()
    assert all(len(cells.split()) == len(WHO) for cells in TABLE.values())


# What a word of the table stands for


def error(answer: Answer) -> dict[str, Any]:
    return dict(json.loads(answer.body)["error"])


def is_401(answer: Answer, who: str, _door: str, world: World) -> None:
    metadata = world.url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
    why = f'error="invalid_token", error_description="{WHY[who]}", ' if who in WHY else ""
    challenge = f'Bearer {why}resource_metadata="{metadata}", scope="tasks:call tasks:read tasks:answer"'
    assert (answer.status, answer.body) == (401, "A valid bearer token is required.\n")
    assert answer.header("WWW-Authenticate") == challenge


def is_403(answer: Answer, _who: str, door: str, world: World) -> None:
    metadata = world.url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
    assert (answer.status, error(answer)) == (
        403,
        {"code": -32600, "message": f"The credentials are not good for this, which needs: {NEEDS[door]}"},
    )
    assert answer.header("WWW-Authenticate") == (
        f'Bearer error="insufficient_scope", scope="{NEEDS[door]}", resource_metadata="{metadata}"'
    )


def is_open(answer: Answer, _who: str, door: str, _world: World) -> None:
    body = json.loads(answer.body)
    assert answer.status == 200 and ("payloads" in body if door.startswith("codec") else "result" in body)


def is_unknown(answer: Answer, _who: str, door: str, _world: World) -> None:
    """And the same bytes as of a task that does not exist, which the test sees to."""
    if door == "subscriptions/listen":
        (acknowledged,) = (json.loads(line[5:]) for line in answer.body.splitlines() if line.startswith("data:"))
        assert (answer.status, acknowledged["params"]["notifications"]) == (200, {})
    elif door == "resources/read":
        assert (answer.status, error(answer)["code"], error(answer)["message"]) == (400, -32602, "Resource not found")
    else:
        assert (answer.status, error(answer)) == (400, {"code": -32602, "message": "Task not found"})


def is_not_theirs(answer: Answer, _who: str, _door: str, _world: World) -> None:
    assert (answer.status, error(answer)) == (
        400,
        {
            "code": -32602,
            "message": "You may read this task, but not do this with it",
            "data": {"reason": "not_allowed"},
        },
    )


def reads(answer: Answer, _who: str, door: str, _world: World) -> None:
    assert answer.status == 200
    shown = answer.body
    if door == "codec decode":
        shown = base64.b64decode(json.loads(shown)["payloads"][0]["data"]).decode()
    assert MARK in shown, "what others must not see is there to be seen"


def waits(answer: Answer, _who: str, _door: str, _world: World) -> None:
    """The task without its question."""
    assert answer.status == 200 and '"status":"working"' in answer.body.replace(" ", "")
    assert "Waiting for an answer by the task's owner or a delegate" in answer.body


def starts(answer: Answer, _who: str, _door: str, _world: World) -> None:
    assert answer.status == 200 and json.loads(answer.body)["result"]["resultType"] == "task"


def is_taken(answer: Answer, _who: str, door: str, _world: World) -> None:
    assert answer.status == (202 if door in OLDER else 200)
    if door.startswith("tasks/"):
        assert json.loads(answer.body)["result"]["resultType"] == "complete"
    elif door == "page, sent":
        assert "Your answer is on its way" in answer.body


def has_no_session(answer: Answer, _who: str, _door: str, _world: World) -> None:
    message = "The session is unknown or has ended; send initialize again"
    assert (answer.status, error(answer)) == (404, {"code": -32600, "message": message})


def answers_nothing(answer: Answer, _who: str, _door: str, _world: World) -> None:
    message = "This answers no open request of this server"
    assert (answer.status, error(answer)) == (400, {"code": -32600, "message": message})


def is_sent_to_sign_in(answer: Answer, _who: str, _door: str, world: World) -> None:
    assert (answer.status, answer.body) == (303, "")
    assert (answer.header("Location") or "").startswith(f"{world.issuer}/auth?")


def is_signed_out(answer: Answer, _who: str, _door: str, _world: World) -> None:
    assert answer.status == 401 and "nothing was sent" in answer.body


def is_hidden(answer: Answer, _who: str, _door: str, _world: World) -> None:
    assert answer.status == 404 and "There is nothing here for you" in answer.body


def is_for_operators(answer: Answer, _who: str, _door: str, _world: World) -> None:
    assert (answer.status, answer.body) == (403, "The scope tasks:operate is needed\n")
    assert answer.header("WWW-Authenticate") == 'Bearer error="insufficient_scope", scope="tasks:operate"'


CHECKS: Final[Mapping[str, Callable[[Answer, str, str, World], None]]] = {
    "401": is_401,
    "403": is_403,
    "open": is_open,
    "unknown": is_unknown,
    "not-theirs": is_not_theirs,
    "reads": reads,
    "waits": waits,
    "starts": starts,
    "answers": is_taken,
    "cancels": is_taken,
    "session": has_no_session,
    "nothing": answers_nothing,
    "login": is_sent_to_sign_in,
    "out": is_signed_out,
    "hidden": is_hidden,
    "operate": is_for_operators,
}


# The deployment


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def world(
    temporal: DevServer, authorization: AuthServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[World]:
    queue, port = unique("matrix"), free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    known = {
        "MCP_TASKS_ENCRYPTION_KEYS": FIRST,
        "MCP_TASKS_OAUTH_ISSUERS": authorization.issuer,
        "MCP_TASKS_RESOURCE_URL": url,
        "MCP_TASKS_OAUTH_CLOCK_SKEW_SECONDS": "0",
    }
    environment = program_environment(tmp_path_factory.mktemp("matrix"), temporal.environment) | known
    programs = Programs(environment={**environment, "MCP_TASKS_TASK_QUEUE": queue})
    try:
        await programs.worker("tests.fixtures.matrix")
        await programs.bridge(
            "tests.fixtures.matrix",
            port=port,
            MCP_TASKS_PAGES_URL=url.replace("/mcp", "/pages"),
            MCP_TASKS_PAGES_CLIENT_ID="pages",
            MCP_TASKS_PAGES_CLIENT_SECRET="pages-secret",
        )
        first = await authorization.token("alice", url)
        async with (
            mcp_tasks("codec-server", "--port", "0", environment=environment) as codec,
            McpClient(url, ASKABLE, token=first) as alice,
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
        ):
            world = World(
                url=url,
                pages=url.replace("/mcp", "/pages"),
                codec=str(codec.ready["codec"]),
                issuer=authorization.issuer,
                engine=await Client.connect(temporal.address, data_converter=converter(FIRST)),
                queue=queue,
                alice=alice,
                session=session,
            )
            world.people = await matrix.people(world, authorization)
            yield world
    finally:
        await programs.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def targets(world: World) -> AsyncIterator[Mapping[str, Target]]:
    """What nobody may do anything to, by the kind of door."""
    on_page = await world.start("confide_on_page")
    seen = await page("GET")(world, world.people["owner"], on_page)
    world.form = matrix.form_token(seen.body)
    async with world.older() as call:
        yield {"wire": await world.start("confide"), "page": on_page, "older": call}


@asynccontextmanager
async def target_of(door: str, word: str, world: World, targets: Mapping[str, Target]) -> AsyncIterator[Target]:
    """One of its own for a request that does something."""
    kind = "older" if door in OLDER else "page" if door.startswith("page") else "wire"
    if word not in DOES or word == "starts":
        yield targets[kind]
    elif kind == "older":
        async with world.older() as call:
            yield call
    else:
        yield await world.start("confide_on_page" if kind == "page" else "confide")


@pytest.mark.parametrize(
    ("door", "who", "word"),
    [
        pytest.param(door, who, word, id=f"{door}-{who}-{word}")
        for door, cells in TABLE.items()
        for who, word in zip(WHO, cells.split(), strict=True)
    ],
)
async def test_cell(world: World, targets: Mapping[str, Target], door: str, who: str, word: str) -> None:
    async with target_of(door, word, world, targets) as target:
        before = await lengths(world, targets)
        answer = await KNOCKS[door](world, world.people[who], target)
        CHECKS[word](answer, who, door, world)
        if word in ("unknown", "hidden"):
            unknown = await KNOCKS[door](world, world.people[who], Target(UNKNOWN))
            assert answer.about(target.task, UNKNOWN) == unknown
        if word not in (*DOES, "reads"):
            leaked = [secret for secret in (MARK, "alice", "eyJ", world.queue) if secret in repr(answer)]
            assert not leaked, answer
        assert await lengths(world, targets) == before, "nothing was sent to what is not theirs"
        world.started += word == "starts"
        world.answered += word == "answers"
        world.cancelled += word == "cancels"


async def lengths(world: World, targets: Mapping[str, Target]) -> list[int]:
    return [await world.history_length(targets[kind].task) for kind in ("wire", "page")]


async def test_temporal_was_asked_for_what_the_cells_allow_and_for_nothing_else(
    world: World, targets: Mapping[str, Target]
) -> None:
    await world.start("confide")  # what was started before it is listed with it
    expected = (world.started, world.answered, world.cancelled)

    async def listed() -> bool:
        return (await world.done())[0] >= world.started

    await eventually(listed, what="the last run in Temporal's list")
    assert await world.done() == expected
