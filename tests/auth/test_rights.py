"""Whose task is whose, with tokens of a real authorization server: owner, stranger, delegates and operator, at every
method that names a task."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import pytest_asyncio
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client

from bridge.dev_server import DevServer
from tests.auth.clients import as_
from tests.auth.conftest import bridge_for
from tests.authserver.running import ALL, AuthServer
from tests.cases.client import FORMS, McpClient, Reply, accept
from tests.cases.listening import acknowledged, listening
from tests.cases.older_client import OlderClient
from tests.cases.stack import Process, Programs
from tests.encryption import CONVERTER
from tests.support import eventually, unique
from workflows.kit.contract import UPDATE_SIGNAL

pytestmark = pytest.mark.asyncio(loop_scope="session")

UNKNOWN: Final = f"task-{0:032x}"
NOT_ALLOWED: Final = (
    400,
    {
        "code": -32602,
        "message": "You may read this task, but not do this with it",
        "data": {"reason": "not_allowed"},
    },
)
OPERATE: Final = f"{ALL} tasks:operate"

TOOL: Final = """
[tools.{right}]
workflow = "{workflow}"
queue = "{queue}"
description = "Asks."
keeps_lifetime = true
input_schema = {{ type = "object" }}
"""


def catalog(programs: Programs, delegates: Mapping[str, str]) -> str:
    """A tool for each right, which delegates it to a group."""
    queue = programs.environment["MCP_TASKS_TASK_QUEUE"]
    return "".join(
        TOOL.format(right=right, workflow="slow" if right == "at_work" else "ask", queue=queue) + delegated
        for right, delegated in delegates.items()
    )


def to_managers(right: str) -> str:
    return f'delegates = {{ {right} = ["release-managers"] }}\n'


RIGHTS: Final = {"own": "", "at_work": "", **{right: to_managers(right) for right in ("read", "answer", "cancel")}}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def delegating(
    programs: Programs, authorization: AuthServer, other_authorization: AuthServer, tmp_path_factory: Any
) -> Process:
    file = tmp_path_factory.mktemp("rights") / "tools.toml"
    file.write_text(catalog(programs, RIGHTS), "utf-8")
    issuers = authorization.issuer, other_authorization.issuer
    return await bridge_for(programs, *issuers, MCP_TASKS_CATALOG=str(file))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def alice(delegating: Process, authorization: AuthServer) -> AsyncIterator[McpClient]:
    """Whose tasks they are."""
    async with as_("alice", authorization, delegating) as client:
        yield client


@asynccontextmanager
async def everybody_else(
    authorization: AuthServer, elsewhere: AuthServer, bridge: Process
) -> AsyncIterator[dict[str, McpClient]]:
    """Those who have nothing to do with a task of hers."""
    async with (
        as_("bob", authorization, bridge) as bob,
        as_("rita", authorization, bridge) as rita,
        as_("alice", elsewhere, bridge) as namesake,
    ):
        yield {"bob": bob, "rita": rita, "namesake": namesake}


def history_uri(task_id: str) -> str:
    return f"mcp-task://{task_id}/history"


def methods(task_id: str, key: str) -> dict[str, dict[str, Any]]:
    return {
        "tasks/get": {"taskId": task_id},
        "tasks/update": {"taskId": task_id, "inputResponses": {key: accept(text="x")}},
        "tasks/cancel": {"taskId": task_id},
        "resources/read": {"uri": history_uri(task_id)},
    }


async def bytes_of(client: McpClient, method: str, params: Mapping[str, Any]) -> tuple[int, list[str], bytes]:
    """Status, headers but for the date, and body of the answer to a request that has the same id each time."""
    body = json.dumps(client.body(method, params, id=1))
    headers = client.headers(method, params)
    if method == "resources/read":
        headers["Mcp-Name"] = params["uri"]
    async with aiohttp.ClientSession() as session:
        async with session.post(client.url, data=io.BytesIO(body.encode()), headers=headers) as response:
            kept = [f"{name}: {value}" for name, value in response.headers.items() if name != "Date"]
            return response.status, kept, await response.read()


async def test_a_task_of_somebody_else_an_unknown_one_and_a_deleted_one_are_the_same_bytes(
    delegating: Process,
    alice: McpClient,
    authorization: AuthServer,
    other_authorization: AuthServer,
    engine: Client,
) -> None:
    """AU-01, at every method, for tasks in every state."""
    tasks = {"working": await alice.start("at_work", {"seconds": 60, "label": unique("rights")})}
    keys = {"working": "none"}
    for state in ("parked", "completed", "cancelled", "deleted"):
        tasks[state] = await alice.start("own")
        (keys[state],) = await alice.parked(tasks[state])
    for state in ("completed", "deleted"):
        await alice.update(tasks[state], {keys[state]: accept(text="yes")})
        await alice.finished(tasks[state])
    await alice.cancel(tasks["cancelled"])
    await alice.finished(tasks["cancelled"])
    await delete(engine, tasks["deleted"])
    before = {state: await history_length(engine, tasks[state]) for state in ("parked", "completed", "cancelled")}
    async with everybody_else(authorization, other_authorization, delegating) as others:
        for who, client in others.items():
            for state, task_id in tasks.items():
                for method, params in methods(task_id, keys[state]).items():
                    answer = await bytes_of(client, method, params)
                    unknown = await bytes_of(client, method, methods(UNKNOWN, keys[state])[method])
                    told = (answer[0], answer[1], answer[2].replace(task_id.encode(), UNKNOWN.encode()))
                    assert told == unknown, (who, state, method)
                    assert answer[0] == 400, (who, state, method)
    for state, length in before.items():
        assert await history_length(engine, tasks[state]) == length, "nothing was sent"
    assert (await alice.get(tasks["working"])).result["status"] == "working"
    await alice.cancel(tasks["working"])


async def test_an_error_tells_nothing_of_the_inside(
    delegating: Process, alice: McpClient, authorization: AuthServer, other_authorization: AuthServer
) -> None:
    """AU-09, for what the rule refuses."""
    inside = re.compile(
        r"traceback|file \"|site-packages|grpc|rpcerror|statuscode|temporal(?!-tasks)|task_queue|workflow|127\.0\.0\.1"
        r"|alice|release-managers|eyJ",
        re.IGNORECASE,
    )
    task_id = await alice.start("read")
    (key,) = await alice.parked(task_id)
    async with everybody_else(authorization, other_authorization, delegating) as others:
        for who, client in others.items():
            for method, params in methods(task_id, key).items():
                status, _, body = await bytes_of(client, method, params)
                if status != 200:
                    assert not inside.search(body.decode()), (who, method, body)
    await alice.cancel(task_id)


async def test_of_a_mixed_list_those_are_heard_alone_that_the_listener_may_read(
    delegating: Process, alice: McpClient, authorization: AuthServer, other_authorization: AuthServer
) -> None:
    """AU-05."""
    hers, shared = await alice.start("own"), await alice.start("read")
    async with as_("bob", authorization, delegating) as bob, as_("rita", authorization, delegating) as rita:
        his = await bob.start("own")
        mixed = [his, hers, UNKNOWN, his, shared, ""]
        async with listening(bob, mixed) as stream, listening(rita, mixed) as delegated:
            async with listening(bob, [hers, UNKNOWN]) as foreign, listening(bob, []) as nothing:
                assert await acknowledged(stream) == {"taskIds": [his]}
                assert await acknowledged(delegated) == {"taskIds": [shared]}
                assert await acknowledged(foreign) == await acknowledged(nothing) == {}
                for task_id, client in ((hers, alice), (shared, alice), (his, bob)):
                    (key,) = await client.parked(task_id)
                    await client.update(task_id, {key: accept(text="yes")})
                await stream.told(his, "completed")
                await delegated.told(shared, "completed")
                assert not stream.tasks(hers) and not stream.tasks(shared) and not delegated.tasks(hers)
                assert len(foreign.messages) == len(nothing.messages) == 1


async def may(client: McpClient, task_id: str, key: str) -> dict[str, bool | str]:
    """What `client` may do with a parked task of somebody else's, a cancel last."""
    got = await client.get(task_id)
    if got.code is not None:
        return {"read": False}
    asked = key in got.result.get("inputRequests", {})
    assert got.result["status"] == ("input_required" if asked else "working")
    told = await client.request(
        "resources/read", {"uri": history_uri(task_id)}, headers={"Mcp-Name": history_uri(task_id)}
    )
    async with listening(client, [task_id]) as stream:
        assert await acknowledged(stream) == {"taskIds": [task_id]}
        first = await stream.told(task_id, got.result["status"])
        assert (key in first.get("inputRequests", {})) is asked
    found: dict[str, bool | str] = {"read": told.status == 200}
    for name, reply in (
        ("answer", await client.update(task_id, {key: accept(text="by another")})),
        ("cancel", await client.cancel(task_id)),
    ):
        if reply.code is not None:
            assert (reply.status, reply.message["error"]) == NOT_ALLOWED
        found[name] = reply.code is None
    assert found["answer"] is asked
    return found


@pytest.mark.parametrize(
    ("who", "scope", "tool", "expected"),
    [
        ("rita", ALL, "own", {"read": False}),
        ("rita", ALL, "read", {"read": True, "answer": False, "cancel": False}),
        ("rita", ALL, "answer", {"read": True, "answer": True, "cancel": False}),
        ("rita", ALL, "cancel", {"read": True, "answer": False, "cancel": True}),
        ("olga", ALL, "read", {"read": False}),
        ("olga", OPERATE, "own", {"read": True, "answer": False, "cancel": True}),
        ("olga", OPERATE, "answer", {"read": True, "answer": False, "cancel": True}),
        ("rita", OPERATE, "answer", {"read": True, "answer": True, "cancel": True}),
        ("bob", ALL, "answer", {"read": False}),
    ],
)
async def test_each_may_do_what_the_tool_delegates_and_an_operator_may_read_and_cancel(
    delegating: Process,
    alice: McpClient,
    authorization: AuthServer,
    who: str,
    scope: str,
    tool: str,
    expected: dict[str, bool | str],
) -> None:
    task_id = await alice.start(tool)
    (key,) = await alice.parked(task_id)
    async with as_(who, authorization, delegating, scope) as client:
        assert await may(client, task_id, key) == expected
    if not expected.get("answer") and not expected.get("cancel"):
        await alice.update(task_id, {key: accept(text="mine")})
    ended = await alice.finished(task_id)
    if expected.get("answer"):
        assert ended["result"]["structuredContent"]["answers"][0][1] == "by another"
    elif expected.get("cancel"):
        assert ended["status"] == "cancelled"
    else:
        assert ended["result"]["structuredContent"]["answers"][0][1] == "mine"


async def test_an_operator_without_the_scope_to_answer_is_refused_by_the_scope(
    delegating: Process, alice: McpClient, authorization: AuthServer
) -> None:
    task_id = await alice.start("own")
    (key,) = await alice.parked(task_id)
    async with as_("olga", authorization, delegating, "tasks:operate") as operator:
        assert (await operator.get(task_id)).result["status"] == "working"
        assert (await operator.update(task_id, {key: accept(text="x")})).status == 403
        assert (await operator.cancel(task_id)).result == {"resultType": "complete"}
    assert (await alice.finished(task_id))["status"] == "cancelled"


async def test_the_history_names_who_answered_and_that_another_cancelled(
    delegating: Process, alice: McpClient, authorization: AuthServer, engine: Client
) -> None:
    answered, cancelled = await alice.start("answer"), await alice.start("cancel")
    (key,) = await alice.parked(answered)
    await alice.parked(cancelled)
    async with as_("rita", authorization, delegating) as rita:
        await rita.update(answered, {key: accept(text="yes")})
        await rita.cancel(cancelled)
    await alice.finished(answered)
    await alice.finished(cancelled)
    (told,) = [entry for entry in await history(alice, answered) if entry["event"] == "answered"]
    assert (told["by"]["subject"], told["channel"]) == ("rita", "http")
    (told,) = [entry for entry in await history(alice, cancelled) if entry["event"] == "cancel_requested"]
    owner = (await engine.get_workflow_handle(cancelled).describe()).search_attributes["McpOwner"][0]
    reference, _, note = told["by"].partition(" ")
    assert note == "(not the task's owner)" and reference != owner and len(reference) == len(str(owner))
    signals = [
        event.workflow_execution_signaled_event_attributes
        async for event in engine.get_workflow_handle(answered).fetch_history_events()
        if event.HasField("workflow_execution_signaled_event_attributes")
    ]
    (signal,) = [signal for signal in signals if signal.signal_name == UPDATE_SIGNAL]
    (update,) = await CONVERTER.decode(signal.input.payloads)
    assert "groups" not in update["actor"], "no more of the caller than the task asks for"


async def test_a_second_person_approves_who_is_a_delegate_and_the_owner_is_told_whom_it_waits_for(
    programs: Programs, authorization: AuthServer
) -> None:
    """With a tool of the tasks module, to which the deployment names delegates."""
    module, queue = "tests.fixtures.answerers", unique("answerers")
    await programs.worker(module, MCP_TASKS_TASK_QUEUE=queue)
    bridge = await bridge_for(
        programs,
        authorization.issuer,
        tasks=module,
        MCP_TASKS_TASK_QUEUE=queue,
        MCP_TASKS_DELEGATES='{"ask_another": {"answer": ["release-managers"]}}',
    )
    async with as_("sam", authorization, bridge) as sam, as_("rita", authorization, bridge) as rita:
        task_id = await sam.start("ask_another", {"label": unique("second")})
        assert list(await rita.parked(task_id)) == ["approval"]
        shown = (await sam.get(task_id)).result
        assert (shown["status"], shown["statusMessage"]) == (
            "working",
            "Waiting for an answer by somebody other than the task's owner",
        )
        own = await sam.update(task_id, {"approval": accept(yes=True)})
        assert own.message["error"]["data"]["key"] == "approval"
        await rita.update(task_id, {"approval": accept(yes=True)})
        assert (await sam.finished(task_id))["result"]["structuredContent"] == {"yes": True, "by": "rita"}


async def test_what_a_catalog_takes_away_is_gone_at_the_next_request_and_from_open_streams(
    programs: Programs, authorization: AuthServer, tmp_path: Path
) -> None:
    file = tmp_path / "tools.toml"
    file.write_text(catalog(programs, {"read": to_managers("read"), "answer": to_managers("answer")}), "utf-8")
    bridge = await bridge_for(programs, authorization.issuer, MCP_TASKS_CATALOG=str(file))
    async with as_("alice", authorization, bridge) as alice, as_("rita", authorization, bridge) as rita:
        over, asking = await alice.start("read"), await alice.start("read", {"n": 2})
        (key,) = await alice.parked(over)
        await alice.update(over, {key: accept(text="yes")})
        await alice.finished(over)
        await alice.parked(asking)
        async with listening(rita, [over, asking]) as stream:
            await stream.told(over, "completed")
            await stream.told(asking, "working")
            file.write_text(catalog(programs, {"answer": to_managers("answer")}), "utf-8")

            async def taken_away() -> bool:
                return (await rita.get(over)).code == -32602

            await eventually(taken_away, what="the change of the catalog")
            assert (await rita.get(asking)).message["error"] == (await rita.get(UNKNOWN)).message["error"]
            async with listening(rita, [over, asking]) as again:
                assert await acknowledged(again) == {}
            before = len(stream.messages)
            (key,) = await alice.parked(asking)
            async with listening(alice, [asking]) as hers:
                await hers.told(asking, "input_required")
                await alice.update(asking, {key: accept(text="yes")})
                (key,) = await alice.parked(asking, without=(key,))
                await alice.update(asking, {key: accept(text="yes")})
                await hers.told(asking, "completed")
            await asyncio.sleep(1)
            assert len(stream.messages) == before


async def test_what_is_sealed_for_a_caller_is_good_with_another_token_and_for_nobody_else(
    delegating: Process, authorization: AuthServer, other_authorization: AuthServer
) -> None:
    """AU-03: the state of a call that asks."""
    async with as_("alice", authorization, delegating, capabilities=FORMS) as first:
        asked = (await first.call("own")).result
        (key,) = asked["inputRequests"]
    retry = {"state": asked["requestState"], "responses": {key: accept(text="yes")}}
    refused: list[Reply] = []
    for server, who in ((authorization, "rita"), (other_authorization, "alice")):
        async with as_(who, server, delegating, OPERATE, capabilities=FORMS) as other:
            refused.append(await other.call("own", **retry))
    assert [reply.message["error"]["message"] for reply in refused] == ["Invalid or expired requestState"] * 2
    async with as_("alice", authorization, delegating, capabilities=FORMS) as again:
        assert (await again.call("own", **retry)).result["structuredContent"]["answers"][0][1] == "yes"


async def test_a_session_and_a_question_of_an_older_revision_are_the_caller_s_with_whatever_token(
    delegating: Process, authorization: AuthServer
) -> None:
    """AU-03."""

    async def authorized(who: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {await authorization.token(who, delegating.url, OPERATE)}"}

    older = OlderClient([delegating.url])
    older.headers |= await authorized("alice")
    async with older, older.calling("own", {}) as call:
        messages = call.messages()
        question = await anext(messages)
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": accept(text="yes")}
        listing = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}
        stranger = {**older.headers, **await authorized("rita")}
        for message, status in ((listing, 404), (answer, 404)):
            async with older.send(message, stranger) as response:
                assert response.status == status, message
        stranger.pop("Mcp-Session-Id")
        async with older.send(answer, stranger) as response:
            assert response.status == 400
            assert (await response.json())["error"]["message"] == "This answers no open request of this server"
        older.headers |= await authorized("alice")  # a new token
        async with older.send(listing) as response:
            assert response.status == 200
        async with older.send(answer) as response:
            assert response.status == 202
        ended = await anext(messages)
    assert json.loads(ended["result"]["content"][0]["text"])["answers"][0][1] == "yes"


async def history(client: McpClient, task_id: str) -> list[dict[str, Any]]:
    uri = history_uri(task_id)
    reply = await client.request("resources/read", {"uri": uri}, headers={"Mcp-Name": uri})
    entries: list[dict[str, Any]] = json.loads(reply.result["contents"][0]["text"])["entries"]
    return entries


async def history_length(engine: Client, task_id: str) -> int:
    return (await engine.get_workflow_handle(task_id).describe()).history_length


async def delete(engine: Client, task_id: str) -> None:
    """As retention would; Temporal may take its time, and a stranger must not see the difference."""
    execution = WorkflowExecution(workflow_id=task_id)
    await engine.workflow_service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(namespace=engine.namespace, workflow_execution=execution)
    )


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def engine(temporal: DevServer) -> Client:
    return await Client.connect(temporal.address, data_converter=CONVERTER)
