"""Requests at the edge of the protocol (PE): each gets the answer that the specification fixes, and none refused acts.

What only concerns bytes and headers is tested against the transport alone; here are the same faults where they could
start, answer or cancel something.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from bridge.catalog import Catalog, Tool
from tests.cases.client import FORMS, FULL, TASKS, McpClient, Reply, accept, sentinel
from tests.fixtures.case_parts import Value
from tests.support import unique
from workflows.kit import Task, tool

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOLE: Final = "@@"
NOT_TEXT: Final[list[Any]] = [None, 5, [], {}, True]
NO_OBJECT: Final[list[Any]] = [None, "s", [], 5, True]
CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
TASK_METHODS: Final = ("tasks/get", "tasks/update", "tasks/cancel")
METHODS: Final = ("server/discover", "tools/list", "tools/call", *TASK_METHODS)
UNDECLARED: Final[Mapping[str, Mapping[str, Any]]] = {
    "nothing": {},
    "forms only": FORMS,
    "the legacy capability": {"tasks": {"cancel": {}, "list": {}, "requests": {"tools": {"call": {}}}}},
    "another spelling": {"extensions": {"io.modelcontextprotocol/Tasks": {}}},
    "null": {"extensions": {TASKS: None}},
    "true": {"extensions": {TASKS: True}},
    "a list": {"extensions": {TASKS: []}},
    "experimental": {"experimental": {TASKS: {}}},
    "at the top": {TASKS: {}},
}


async def parked_ask(client: McpClient) -> tuple[str, str]:
    """A task that waits for one answer, and the key of its question."""
    task_id = await client.start("ask", {"n": 1})
    (key,) = await client.parked(task_id)
    return task_id, key


def params_for(method: str, task_id: str, key: str) -> dict[str, Any]:
    """Params with which `method` would do something."""
    params: dict[str, dict[str, Any]] = {
        "tools/call": {"name": "echo", "arguments": {"x": 1}},
        "tasks/get": {"taskId": task_id},
        "tasks/update": {"taskId": task_id, "inputResponses": {key: accept(text="no")}},
        "tasks/cancel": {"taskId": task_id},
    }
    return params.get(method, {})


async def post_literal(
    client: McpClient, method: str, params: Mapping[str, Any], literal: str, **members: Any
) -> Reply:
    """Send a request in which the string `HOLE` is replaced by any text at all."""
    text = json.dumps(client.body(method, params, **members)).replace(json.dumps(HOLE), literal)
    return await client.post(text.encode(), client.headers(method, params))


async def assert_untouched(client: McpClient, task_id: str, key: str) -> None:
    """The task still waits for its answer, takes it, and completes with it."""
    task = (await client.get(task_id)).result
    assert (task["status"], list(task["inputRequests"])) == ("input_required", [key])
    assert (await client.update(task_id, {key: accept(text="yes")})).code is None
    answers = (await client.finished(task_id))["result"]["structuredContent"]["answers"]
    assert answers == [["Question 0", "yes"]]


# Ids


async def test_requests_of_one_id_at_one_time_get_each_their_own_answer(client: McpClient) -> None:
    replies = await asyncio.gather(*(client.call("echo", {"x": number}, id=1) for number in range(20)))
    assert [reply.result["structuredContent"]["x"] for reply in replies] == list(range(20))
    assert {reply.message["id"] for reply in replies} == {1}


@pytest.mark.parametrize("request_id", ["007", " 7 ", "1_000", "\u0667", "", 9007199254740993, 0, -1], ids=ascii)
async def test_a_call_and_its_task_do_not_depend_on_the_id(client: McpClient, request_id: Any) -> None:
    called = await client.call("echo_task", {"x": 1}, id=request_id)
    assert called.message["id"] == request_id and type(called.message["id"]) is type(request_id)
    assert str(request_id) not in called.result["taskId"] or len(str(request_id)) < 4
    refused = await client.get("task-unknown", id=request_id)
    assert (refused.code, refused.message["id"]) == (-32602, request_id)


@pytest.mark.parametrize("request_id", [None, True, 1.5, {}, [1], "absent"])
async def test_a_request_with_a_bad_id_or_none_does_nothing(client: McpClient, request_id: Any) -> None:
    label = unique("bad-id")
    task_id, key = await parked_ask(client)
    for method, params in [
        ("tools/call", {"name": "slow", "arguments": {"seconds": 0, "label": label}}),
        ("tools/call", {"name": "count", "arguments": {"label": label}}),
        *((method, params_for(method, task_id, key)) for method in TASK_METHODS),
    ]:
        body = client.body(method, params, id=request_id)
        if request_id == "absent":
            del body["id"]
        reply = await client.post(body, client.headers(method, params))
        assert (reply.status, reply.code, "id" in reply.message) == (400, -32600, False)
    await assert_untouched(client, task_id, key)
    assert await client.count(label) == 0


# Numbers and nesting


@pytest.mark.parametrize(
    "literal", ["1" * 5000, "NaN", "-Infinity", "Infinity", "1e400", "-1e400"], ids=["5000 digits", *"abcde"]
)
async def test_a_number_that_cannot_be_held_is_refused_wherever_it_stands(client: McpClient, literal: str) -> None:
    task_id, key = await parked_ask(client)
    update = {"taskId": task_id, "inputResponses": {key: accept(text=HOLE)}}
    places: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("server/discover", {"x": HOLE}, {}),
        ("server/discover", {}, {"id": HOLE}),
        ("server/discover", {}, {"meta": {"progressToken": HOLE}}),
        ("server/discover", {}, {"capabilities": {"extensions": {TASKS: {"x": HOLE}}}}),
        ("tools/call", {"name": "echo", "arguments": {"x": HOLE}}, {}),
        ("tools/call", {"name": "echo_task", "arguments": {"x": [{"y": HOLE}]}}, {}),
        ("tools/call", {"name": "echo", "arguments": {}, "inputResponses": {"k": HOLE}}, {}),
        ("tasks/update", update, {}),
    ]
    for method, params, members in places:
        reply = await post_literal(client, method, params, literal, **members)
        assert (reply.status, reply.code) == (400, -32700)
    await client.alive()
    await assert_untouched(client, task_id, key)


@pytest.mark.parametrize("depth", [150, 250, 20_000, 100_000])
async def test_deep_nesting_is_refused_wherever_it_stands(client: McpClient, depth: int) -> None:
    task_id, key = await parked_ask(client)
    nested = '{"a":' * depth + "1" + "}" * depth
    places: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("tools/call", {"name": "echo", "arguments": {"x": HOLE}}, {}),
        ("tools/call", {"name": "echo_task", "arguments": HOLE}, {}),
        ("tools/call", {"name": "echo", "arguments": {}, "inputResponses": HOLE}, {}),
        ("tasks/update", {"taskId": task_id, "inputResponses": {key: {"action": "accept", "content": HOLE}}}, {}),
        ("tasks/get", {"taskId": task_id}, {"capabilities": {**FULL, "x": HOLE}}),
        ("tasks/cancel", {"taskId": task_id}, {"meta": {"x": HOLE}}),
    ]
    for method, params, members in places:
        async with asyncio.timeout(5):
            reply = await post_literal(client, method, params, nested, **members)
        assert reply.status == 400 and reply.code in {-32600, -32700}
    await client.alive()
    await assert_untouched(client, task_id, key)


async def test_nesting_up_to_the_limit_goes_through_the_engine_and_back(client: McpClient) -> None:
    value: Any = "bottom"
    for _ in range(124):
        value = {"a": value}
    assert (await client.call("echo", {"x": value})).result["structuredContent"] == {"x": value}
    for name in ("echo_task", "emit"):
        task = await client.finished(await client.start(name, {"x": value}))
        assert value in (task["result"]["structuredContent"], task["result"]["structuredContent"].get("x"))
    task = await client.finished(await client.start("boom", {"kind": "rpc", "code": 1, "data": value}))
    assert task["error"]["data"] == value


# Envelopes


async def test_a_batch_is_refused_whole(client: McpClient) -> None:
    label = unique("batch")
    params = {"name": "slow", "arguments": {"seconds": 0, "label": label}}
    call = json.dumps(client.body("tools/call", params))
    discover = json.dumps(client.body("server/discover", {}))
    cancelled = '{"jsonrpc":"2.0","method":"notifications/cancelled"}'
    for text in ("[]", f"[{discover}]", f"  \n[{call},{call}]", f"[{cancelled}]", f"[[{call}]]", f"[{call}] "):
        reply = await client.post(text.encode(), client.headers("tools/call", params))
        assert (reply.status, reply.code, "id" in reply.message) == (400, -32600, False)
    await client.alive()
    assert await client.count(label) == 0


@pytest.mark.parametrize("method", [*METHODS, "nope"])
async def test_malformed_params_are_invalid_params_with_the_id(client: McpClient, method: str) -> None:
    task_id, key = await parked_ask(client)
    good = client.body(method, params_for(method, task_id, key), id=7)
    meta = good["params"]["_meta"]
    bodies: list[dict[str, Any]] = [good | {"params": params} for params in NO_OBJECT]
    bodies.append({name: value for name, value in good.items() if name != "params"})
    bodies += [good | {"params": good["params"] | {"_meta": bad}} for bad in [*NO_OBJECT, {}]]
    bodies += [good | {"params": good["params"] | {"_meta": meta | {CAPABILITIES: bad}}} for bad in NO_OBJECT]
    bodies += [
        good | {"params": good["params"] | {"_meta": {name: value for name, value in meta.items() if name != left_out}}}
        for left_out in (CAPABILITIES, "io.modelcontextprotocol/protocolVersion")
    ]
    for body in bodies:
        reply = await client.post(body, client.headers(method, params_for(method, task_id, key)))
        assert (reply.status, reply.code, reply.message["id"]) == (400, -32602, 7), body
    for version in ("1.0", 2.0, None, 2):
        reply = await client.post(good | {"jsonrpc": version}, client.headers(method, {}))
        assert (reply.status, reply.code, reply.message["id"]) == (400, -32600, 7)
    await assert_untouched(client, task_id, key)


BAD_MEMBERS: Final[list[tuple[str, dict[str, Any]]]] = [
    *(("tools/call", {"name": bad, "arguments": {}}) for bad in NOT_TEXT),
    *(("tools/call", {"name": "echo", "arguments": bad}) for bad in NO_OBJECT[1:]),
    *(("tools/call", {"name": "echo", "arguments": {}, "inputResponses": bad}) for bad in NO_OBJECT[1:]),
    *(("tools/call", {"name": "echo", "arguments": {}, "requestState": bad}) for bad in NOT_TEXT[1:]),
    ("tools/call", {"arguments": {}}),
    *(("tools/list", {"cursor": bad}) for bad in [*NOT_TEXT[1:], "nope", "é", "bm9wZQ=="]),
    *((method, {"taskId": bad}) for method in TASK_METHODS for bad in [*NOT_TEXT, ""]),
    *((method, {}) for method in TASK_METHODS),
]


@pytest.mark.parametrize(("method", "params"), BAD_MEMBERS)
async def test_a_malformed_member_is_invalid_params(client: McpClient, method: str, params: dict[str, Any]) -> None:
    reply = await client.request(method, params, id="x")
    # A name that is no string cannot be repeated in its header, and headers are compared before params are looked at
    code = -32602 if isinstance(params.get("name", ""), str | None) else -32020
    assert (reply.status, reply.code, reply.message["id"]) == (400, code, "x"), reply.message
    assert reply.message["error"]["message"]


@pytest.mark.parametrize("responses", [None, "s", [], 5, True, "absent"])
async def test_an_update_without_an_object_of_answers_is_invalid_params(client: McpClient, responses: Any) -> None:
    task_id, key = await parked_ask(client)
    params = {"taskId": task_id} | ({} if responses == "absent" else {"inputResponses": responses})
    reply = await client.request("tasks/update", params)
    assert (reply.status, reply.code) == (400, -32602)
    await assert_untouched(client, task_id, key)


@pytest.mark.parametrize("token", [None, {}, [], 1.5, True])
async def test_a_malformed_progress_token_is_never_an_internal_error(client: McpClient, token: Any) -> None:
    reply = await client.call("echo", {"x": 1}, meta={"progressToken": token})
    assert reply.code in {None, -32602} and reply.notifications == []


# Capabilities


async def test_a_refused_caller_has_no_effect_on_a_live_task(client: McpClient) -> None:
    label = unique("undeclared")
    working = await client.start("slow", {"seconds": 1, "label": label})
    task_id, key = await parked_ask(client)
    for capabilities in UNDECLARED.values():
        for target, method in itertools.product((working, task_id, "task-unknown"), TASK_METHODS):
            reply = await client.request(method, params_for(method, target, key), capabilities=capabilities)
            assert (reply.status, reply.code) == (400, -32021)
            assert reply.message["error"]["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    await assert_untouched(client, task_id, key)
    assert (await client.finished(working))["status"] == "completed"
    assert await client.count(label) == 1


@pytest.mark.parametrize("capabilities", UNDECLARED.values(), ids=UNDECLARED)
async def test_a_call_that_does_not_declare_tasks_gets_a_result_or_is_told_what_to_declare(
    client: McpClient, capabilities: Mapping[str, Any]
) -> None:
    plain = await client.call("echo_task", {"x": 1}, capabilities=capabilities)
    label = unique("required")
    refused = await client.call("handle_only", {"seconds": 0, "label": label}, capabilities=capabilities)
    if isinstance(capabilities.get("extensions", {}).get(TASKS, {}), dict):
        assert (plain.result["resultType"], plain.result["structuredContent"]) == ("complete", {"x": 1})
        assert (refused.status, refused.code) == (400, -32021)
        assert refused.message["error"]["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    else:  # declared with something that no capability can be
        assert (plain.status, plain.code) == (refused.status, refused.code) == (400, -32602)
    assert await client.count(label) == 0


async def test_capabilities_count_for_their_own_request_only(client: McpClient) -> None:
    async def call(declares: bool) -> str:
        capabilities = FULL if declares else {}
        reply = await client.call("slow", {"seconds": 0}, capabilities=capabilities)
        return str(reply.result["resultType"])

    turns = [True, False] * 2
    assert [await call(declares) for declares in turns] == ["task" if turn else "complete" for turn in turns]
    together = await asyncio.gather(*(call(declares) for declares in turns))
    assert together == ["task" if turn else "complete" for turn in turns]


NEEDS: Final[list[tuple[str, dict[str, Any], dict[str, Any]]]] = [
    ("ask", {}, {"elicitation": {}}),
    ("ask", {"elicitation": {"url": {}}}, {"elicitation": {}}),
    ("ask", {"elicitation": None}, {"elicitation": {}}),
    ("ask", {"sampling": {}}, {"elicitation": {}}),
    ("sampler", {}, {"sampling": {}}),
    ("sampler", {"elicitation": {}}, {"sampling": {}}),
]


@pytest.mark.parametrize(("tool", "declared", "required"), NEEDS)
@pytest.mark.parametrize("tasks", [{}, {"extensions": {TASKS: {}}}], ids=["waits", "takes a handle"])
async def test_a_call_of_a_tool_that_asks_names_the_capability_it_needs(
    client: McpClient, tool: str, declared: dict[str, Any], required: dict[str, Any], tasks: dict[str, Any]
) -> None:
    reply = await client.call(tool, {}, capabilities=declared | tasks)
    assert (reply.status, reply.code) == (400, -32021)
    assert reply.message["error"]["data"] == {"requiredCapabilities": required}


@pytest.mark.parametrize("elicitation", [{}, {"form": {}}, {"form": {}, "url": {}}, {"x": {}}])
async def test_an_elicitation_capability_that_allows_forms_is_enough(
    client: McpClient, elicitation: dict[str, Any]
) -> None:
    capabilities = {"elicitation": elicitation, "extensions": {TASKS: {"x": 1}}}
    task_id = str((await client.call("ask", {"n": 1}, capabilities=capabilities)).result["taskId"])
    (key,) = await client.parked(task_id)
    await assert_untouched(client, task_id, key)


async def test_a_poll_that_may_not_see_the_question_is_refused_and_the_task_is_not_lost(client: McpClient) -> None:
    task_id, key = await parked_ask(client)
    lacking: list[dict[str, Any]] = [{}, {"elicitation": {"url": {}}}]
    for capabilities in ({"extensions": {TASKS: {}}} | declared for declared in lacking):
        reply = await client.get(task_id, capabilities=capabilities)
        assert (reply.status, reply.code) == (400, -32021)
        assert reply.message["error"]["data"] == {"requiredCapabilities": {"elicitation": {}}}
    await assert_untouched(client, task_id, key)


async def test_a_tool_that_asks_unannounced_ends_with_an_error_for_the_model(client: McpClient) -> None:
    called = await client.call("any_asker", {}, capabilities={"extensions": {TASKS: {}}})
    result = (await client.finished(called.result["taskId"]))["result"]
    assert result["isError"] is True and "elicitation" in result["content"][0]["text"]
    result = (await client.call("any_asker", {}, capabilities={})).result
    assert result["isError"] is True and "elicitation" in result["content"][0]["text"]


# Headers


def name_headers(task_id: str, other: str) -> list[tuple[dict[str, Any], bool]]:
    """Headers of a request about `task_id`, and whether they agree with it."""
    encoded = base64.b64encode(task_id.encode()).decode()
    return [
        ({"Mcp-Name": task_id}, True),
        ({"Mcp-Name": sentinel(task_id)}, True),
        ({"mCp-NaMe": task_id}, True),
        ({"Mcp-Name": f" {task_id} \t"}, True),
        ({"Mcp-Name": f"=?BASE64?{encoded}?="}, False),
        ({"Mcp-Name": "=?base64?%%%?="}, False),
        ({"Mcp-Name": f"=?base64?{base64.b64encode(bytes([255, 254])).decode()}?="}, False),
        ({"Mcp-Name": f"=?base64?{encoded.rstrip('=')}?="}, not encoded.endswith("=")),
        ({"Mcp-Name": None}, False),
        ({"Mcp-Name": ""}, False),
        ({"Mcp-Name": other}, False),
        ({"Mcp-Name": task_id.upper()}, False),
        ({"Mcp-Method": "TASKS/GET"}, False),
        ({"Mcp-Method": "tools/call"}, False),
        ({"MCP-Protocol-Version": None}, False),
        ({"Mcp-Method": None}, False),
    ]


async def send_with(client: McpClient, method: str, params: dict[str, Any], changed: dict[str, Any]) -> Reply:
    """A request whose header of that name, however it is spelt, is replaced; None leaves it out."""
    names = {name.lower() for name in changed}
    kept = {name: value for name, value in client.headers(method, params).items() if name.lower() not in names}
    return await client.post(
        client.body(method, params), kept | {name: value for name, value in changed.items() if value is not None}
    )


@pytest.mark.parametrize("method", TASK_METHODS)
async def test_a_task_is_addressed_only_if_header_and_body_name_it(client: McpClient, method: str) -> None:
    task_id, key = await parked_ask(client)
    other = await client.start("echo_task", {"x": 1})
    cases = name_headers(task_id, other)
    for headers, agrees in cases:
        if not agrees:
            reply = await send_with(client, method, params_for(method, task_id, key), headers)
            assert (reply.status, reply.code) == (400, -32020), headers
    assert (await client.get(task_id)).result["status"] == "input_required"
    for headers, agrees in cases:
        if agrees:
            reply = await send_with(client, method, params_for(method, task_id, key), headers)
            assert (reply.status, reply.result["resultType"]) == (200, "complete"), headers


async def test_a_tool_name_beyond_ascii_is_called_through_the_sentinel_only(client: McpClient) -> None:
    assert (await client.call("tööl", {"x": 1})).result["structuredContent"] == {"x": 1}
    reply = await client.call("tööl", {"x": 1}, headers={"Mcp-Name": "tööl"})
    assert (reply.status, reply.code) == (400, -32020)
    reply = await client.call("tööl", {"x": 1}, headers={"Mcp-Name": sentinel("tool")})
    assert (reply.status, reply.code) == (400, -32020)


# Methods


REMOVED: Final = (
    "tasks/result",
    "tasks/list",
    "tasks/delete",
    "tasks/subscribe",
    "TASKS/GET",
    "tasks/get/",
    "tasks",
    "initialize",
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
    "prompts/list",
    "completion/complete",
)


@pytest.mark.parametrize("method", REMOVED)
@pytest.mark.parametrize("capabilities", [FULL, {}], ids=["declared", "undeclared"])
async def test_a_method_that_is_not_served_is_not_found(
    client: McpClient, method: str, capabilities: dict[str, Any]
) -> None:
    params = {"taskId": await client.start("echo_task", {})} if method.startswith("tasks/") else {}
    reply = await client.request(method, params, capabilities=capabilities)
    assert (reply.status, reply.code) == (404, -32601)


async def test_the_legacy_task_hint_is_ignored(client: McpClient) -> None:
    params: dict[str, Any] = {"name": "echo", "arguments": {"x": 1}, "task": {"ttl": 1}}
    assert (await client.request("tools/call", params)).result["structuredContent"] == {"x": 1}
    params["name"] = "echo_task"
    for capabilities in (UNDECLARED["nothing"], UNDECLARED["the legacy capability"]):
        result = (await client.request("tools/call", params, capabilities=capabilities)).result
        assert (result["resultType"], result["structuredContent"]) == ("complete", {"x": 1})
    created = (await client.request("tools/call", params)).result
    assert (created["resultType"], created["ttlMs"]) == ("task", None)


@pytest.mark.parametrize("request_id", [1, "task"])
async def test_a_cancelled_notification_cancels_nothing(client: McpClient, request_id: Any) -> None:
    label = unique("cancelled")
    called = await client.call("slow", {"seconds": 0.5, "label": label}, id=1)
    task_id = str(called.result["taskId"])
    params = {"requestId": task_id if request_id == "task" else request_id}
    notification = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
    reply = await client.post(notification, client.headers("notifications/cancelled", {}))
    assert reply.status == 202 and reply.message == {"text": ""}
    assert (await client.finished(task_id))["status"] == "completed"
    assert await client.count(label) == 1


# Answers, outcomes and unknown tasks


@pytest.mark.parametrize(
    "task_id", ["task-unknown", "x", "task-" + "0" * 32, "a" * 900, "../x", "=?base64?eA==?=", "t\u00e4sk"]
)
async def test_an_unknown_task_is_invalid_params(client: McpClient, task_id: str) -> None:
    messages = set()
    for method in TASK_METHODS:
        reply = await client.request(
            method, params_for(method, task_id, "key"), headers={"Mcp-Name": sentinel(task_id)}
        )
        assert (reply.status, reply.code) == (400, -32602)
        messages.add(json.dumps(reply.message["error"]))
    assert len(messages) == 1


async def test_outstanding_questions_are_all_listed_until_each_is_answered(client: McpClient) -> None:
    task_id = await client.start("ask", {"n": 3, "mode": "parallel"})
    asked = await client.parked(task_id, 3)
    assert len({json.dumps(request) for request in asked.values()}) == 3
    keys = list(asked)
    for number, key in enumerate(reversed(keys), start=1):
        assert (await client.update(task_id, {key: accept(text=key)})).result == {"resultType": "complete"}
        if number < 3:
            left = await client.parked(task_id, 3 - number)
            assert left == {other: asked[other] for other in keys[: 3 - number]}
            assert (await client.get(task_id)).result["status"] == "input_required"
    answers = (await client.finished(task_id))["result"]["structuredContent"]["answers"]
    assert [answer for _, answer in answers] == keys


async def test_answers_that_nobody_waits_for_are_acknowledged_and_ignored(client: McpClient) -> None:
    task_id = await client.start("ask", {"n": 2})
    ((first, request),) = (await client.parked(task_id)).items()
    junk: list[dict[str, Any]] = [{}, {"unknown-key": {"ignored": True}}, {"": None}, {"x": 5}, {first.upper(): []}]
    for responses in junk:
        assert (await client.update(task_id, responses)).result == {"resultType": "complete"}
    assert await client.parked(task_id) == {first: request}
    for answer in ("one", "late", "late"):
        assert (await client.update(task_id, {first: accept(text=answer), **junk[1]})).code is None
    (second,) = await client.parked(task_id, without=(first,))
    assert (await client.update(task_id, {first: accept(text="later")})).code is None
    assert list(await client.parked(task_id)) == [second]
    await client.update(task_id, {second: accept(text="two")})
    task = await client.finished(task_id)
    assert task["result"]["structuredContent"]["answers"] == [["Question 0", "one"], ["Question 1", "two"]]
    for responses in ({second: accept(text="late")}, {second: 5}, {}):
        assert (await client.update(task_id, responses)).result == {"resultType": "complete"}
    assert (await client.get(task_id)).result == task


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("echo_task", {"x": {"y": [1, None]}}),
        ("emit", {"x": "text"}),
        ("boom", {"kind": "tool", "message": "no"}),
        ("boom", {"kind": "rpc", "code": 4711, "message": "m", "data": {"k": 1}}),
    ],
)
async def test_a_task_has_the_outcome_that_its_call_would_have_had(
    client: McpClient, tool: str, arguments: dict[str, Any]
) -> None:
    waited = await client.call(tool, arguments, capabilities={})
    task = await client.finished(await client.start(tool, arguments))
    if waited.code is None:
        assert (task["status"], task["result"]) == ("completed", waited.result)
    else:
        assert (task["status"], task["error"]) == ("failed", waited.message["error"])


# Discovery and lists


@pytest.mark.parametrize("capabilities", [FULL, {}], ids=["declared", "undeclared"])
async def test_discovery_says_what_is_served_and_for_how_long(client: McpClient, capabilities: dict[str, Any]) -> None:
    message = (await client.request("server/discover", capabilities=capabilities)).message
    result = message["result"]
    assert result["resultType"] == "complete"
    assert "2026-07-28" in result["supportedVersions"]
    assert result["capabilities"]["extensions"] == {TASKS: {}}
    assert isinstance(result["capabilities"]["tools"], dict) and "tasks" not in result["capabilities"]
    assert type(result["ttlMs"]) is int and result["ttlMs"] >= 0
    assert result["cacheScope"] in {"public", "private"}
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"].keys() >= {"name", "version"}


async def test_the_tool_list_is_complete_ordered_cacheable_and_the_same_for_all(client: McpClient) -> None:
    first = (await client.request("tools/list")).result
    assert first["resultType"] == "complete" and "nextCursor" not in first
    assert type(first["ttlMs"]) is int and first["ttlMs"] >= 0
    assert first["cacheScope"] in {"public", "private"}
    names = [tool["name"] for tool in first["tools"]]
    assert len(set(names)) == len(names) and {"echo", "ask", "tööl"} <= set(names)
    for listed in first["tools"]:
        assert listed["inputSchema"]["type"] == "object"
        assert listed.keys() <= {"name", "title", "description", "inputSchema", "outputSchema", "annotations"}
        assert None not in listed.values()
    assert (await client.request("tools/list", capabilities={})).result == first


async def test_every_result_names_the_server(client: McpClient) -> None:
    task_id, key = await parked_ask(client)
    replies = [await client.request(method, params_for(method, task_id, key)) for method in METHODS]
    replies.append(await client.call("echo_task", {}))
    replies.append(await client.call("ask", {"n": 1}, capabilities=FORMS))
    for reply in replies:
        info = reply.message["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]
        assert info["name"] and info["version"]


@pytest.mark.parametrize("version", ["1900-01-01", "2025-11-25"])
async def test_a_version_that_is_not_served_is_refused_with_those_that_are(client: McpClient, version: str) -> None:
    supported = (await client.request("server/discover")).result["supportedVersions"]
    meta = {"io.modelcontextprotocol/protocolVersion": version}
    label = unique("version")
    headers = {"MCP-Protocol-Version": version}
    reply = await client.call("slow", {"seconds": 0, "label": label}, meta=meta, headers=headers)
    assert (reply.status, reply.code) == (400, -32022)
    data = reply.message["error"]["data"]
    assert data["requested"] == version
    assert version not in data["supported"] and set(data["supported"]) <= set(supported)
    assert await client.count(label) == 0


# Shapes

BASE: Final = {"resultType", "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs"}
OPTIONAL: Final = {"statusMessage", "pollIntervalMs"}
OUTCOMES: Final[list[tuple[str, dict[str, Any], str, str | None]]] = [
    ("slow", {"seconds": 20}, "working", None),
    ("ask", {"n": 2, "mode": "parallel"}, "input_required", "inputRequests"),
    ("echo_task", {"x": 1}, "completed", "result"),
    ("boom", {"kind": "tool"}, "completed", "result"),
    ("boom", {"kind": "rpc", "code": 4711}, "failed", "error"),
    ("slow", {"seconds": 30}, "cancelled", None),
]


@pytest.mark.parametrize(("tool", "arguments", "status", "extra"), OUTCOMES)
async def test_a_task_is_flat_and_has_the_members_of_its_status_alone(
    client: McpClient, tool: str, arguments: dict[str, Any], status: str, extra: str | None
) -> None:
    created = (await client.call(tool, arguments)).result
    assert created["resultType"] == "task"
    assert BASE <= created.keys() <= BASE | OPTIONAL
    task_id = created["taskId"]
    acknowledged = []
    if status == "cancelled":
        acknowledged.append(await client.cancel(task_id))
    if status == "input_required":
        await client.parked(task_id, 2)
    elif status != "working":
        await client.finished(task_id)
    task = (await client.get(task_id)).result
    assert (task["resultType"], task["status"], task["taskId"]) == ("complete", status, task_id)
    own = BASE | ({extra} if extra else set())
    assert own <= task.keys() <= own | OPTIONAL
    assert "requestState" not in json.dumps(task)
    if extra == "result":
        assert task["result"]["resultType"] == "complete" and isinstance(task["result"]["content"], list)
        assert "_meta" not in task["result"]
    acknowledged.append(await client.update(task_id, {"unknown": {"ignored": True}}))
    acknowledged.append(await client.cancel(task_id))
    assert [reply.result for reply in acknowledged] == [{"resultType": "complete"}] * len(acknowledged)


# The tool list in pages


async def test_the_tool_list_is_paged_whole_and_in_order() -> None:
    catalog = Catalog(Tool.of(_generated(number).declaration, "queue") for number in range(250))
    names, cursor = list[str](), None
    for _ in range(3):
        page, cursor = catalog.page(cursor)
        names += [tool["name"] for tool in page]
    assert cursor is None and names == [f"tool-{number:03}" for number in range(250)]
    for bad in ("", "x", "bm9wZQ==", "\u00e9"):
        with pytest.raises(ValueError):
            catalog.page(bad)


def _generated(number: int) -> type[Task[Value, Any]]:
    class Generated(Task[Value, Any]):
        async def execute(self, arguments: Value) -> Any:
            return arguments.x

    return tool(name=f"tool-{number:03}", description="One of many.")(Generated)
