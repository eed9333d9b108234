"""Prompts, resources and completion of a tasks module, and histories, as a client gets them over HTTP."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio.client import Client

from bridge.dev_server import DevServer
from bridge.gateway import Gateway
from tests.cases.client import McpClient, Reply, accept
from tests.cases.older_client import OlderClient
from tests.cases.stack import Programs
from tests.encryption import CONVERTER
from tests.support import run_to_end, unique
from workflows.kit.contract import Principal, TaskMemo

pytestmark = pytest.mark.asyncio(loop_scope="session")

TEMPLATE = "mcp-task://{taskId}/history"


def uri_of(task: str) -> str:
    return TEMPLATE.replace("{taskId}", task)


async def read(client: McpClient, uri: str) -> Reply:
    return await client.request("resources/read", {"uri": uri}, headers={"Mcp-Name": uri})


async def history(client: McpClient, task: str) -> dict[str, Any]:
    (contents,) = (await read(client, uri_of(task))).result["contents"]
    assert contents["uri"] == uri_of(task)
    assert contents["mimeType"] == "application/json"
    return dict(json.loads(contents["text"]))


# The module's own features


async def test_discover_tells_what_the_module_serves_and_nothing_that_nobody_keeps(client: McpClient) -> None:
    result = (await client.request("server/discover")).result
    assert result["capabilities"] == {
        "tools": {},
        "prompts": {},
        "resources": {},
        "completions": {},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    }
    assert result["instructions"] == "Pay with care."


async def test_a_module_with_tools_alone_has_no_prompts_and_no_completion(plain: McpClient) -> None:
    result = (await plain.request("server/discover")).result
    assert result["capabilities"].keys() == {"tools", "resources", "extensions"}
    assert "instructions" not in result
    for method, params in (("prompts/list", {}), ("completion/complete", {}), ("prompts/get", {"name": "x"})):
        reply = await plain.request(method, params)
        assert (reply.status, reply.code) == (404, -32601)


async def test_a_handler_knows_who_asks_and_over_which_channel(client: McpClient) -> None:
    result = (await client.request("prompts/get", {"name": "whoami"})).result
    assert result["messages"][0]["content"]["text"] == "local/local over http"


async def test_a_prompt_may_ask_and_its_state_is_sealed(client: McpClient) -> None:
    first = (await client.request("prompts/get", {"name": "asks"})).result
    assert first["resultType"] == "input_required"
    assert "round 1" not in first["requestState"]
    retry = {"name": "asks", "inputResponses": {"name": accept(name="Anna")}, "requestState": first["requestState"]}
    done = (await client.request("prompts/get", retry)).result
    assert done["messages"][0]["content"]["text"] == "round 1: Anna"
    for change in ({"requestState": first["requestState"] + "x"}, {"name": "whoami"}):
        reply = await client.request("prompts/get", retry | change)
        assert (reply.code, reply.message["error"]["data"]) == (-32602, {"reason": "invalid_request_state"})


async def test_an_error_that_a_handler_raises_for_the_client_is_the_answer(client: McpClient) -> None:
    error = (await client.request("prompts/get", {"name": "refuses"})).message["error"]
    assert error == {"code": -32602, "message": "No such prompt today", "data": {"name": "refuses"}}


@pytest.mark.parametrize("prompt", ["breaks", "odd", "leaves", "interrupts"])
async def test_a_fault_of_a_handler_tells_nothing_of_itself(client: McpClient, prompt: str) -> None:
    reply = await client.request("prompts/get", {"name": prompt})
    assert reply.code == -32603
    assert "secret" not in json.dumps(reply.message)
    assert (await client.request("prompts/list")).code is None, "the bridge goes on"


async def test_results_without_caching_hints_are_private_and_stale_at_once(client: McpClient) -> None:
    result = (await client.request("prompts/list")).result
    assert (result["ttlMs"], result["cacheScope"]) == (0, "private")


async def test_caching_hints_of_the_modules_own_are_kept(client: McpClient) -> None:
    result = (await client.request("resources/list")).result
    assert (result["ttlMs"], result["cacheScope"]) == (5000, "public")
    assert [resource["uri"] for resource in result["resources"]] == ["acme://one"]


async def test_completion_is_the_modules(client: McpClient) -> None:
    params = {"ref": {"type": "ref/prompt", "name": "whoami"}, "argument": {"name": "a", "value": "hi"}}
    assert (await client.request("completion/complete", params)).result["completion"]["values"] == ["hi!"]


async def test_templates_of_the_module_follow_ours_on_the_first_page(client: McpClient) -> None:
    first = (await client.request("resources/templates/list")).result
    assert [template["uriTemplate"] for template in first["resourceTemplates"]] == [TEMPLATE, "acme://first/{id}"]
    assert (first["ttlMs"], first["cacheScope"], first["nextCursor"]) == (7000, "private", "more")
    second = (await client.request("resources/templates/list", {"cursor": "more"})).result
    assert [template["uriTemplate"] for template in second["resourceTemplates"]] == ["acme://second/{id}"]


async def test_a_resource_that_is_no_history_is_the_modules(client: McpClient) -> None:
    assert (await read(client, "acme://one")).result["contents"] == [{"uri": "acme://one", "text": "one"}]


async def test_a_module_that_registers_a_method_of_ours_ends_the_start_with_one_line(tmp_path: Any) -> None:
    (tmp_path / "greedy.py").write_text(
        "from mcp_types import RequestParams\n"
        "from tests.extension.served import ACTIVITIES, TASKS\n"
        "def register_handlers(server):\n"
        "    server.add_request_handler('tools/call', RequestParams, None)\n",
        "utf-8",
    )
    environment = {"PYTHONPATH": f"{tmp_path}:.", "MCP_TASKS_SEALING_KEYS": "k" * 32}
    status, _, errors = await run_to_end("bridge", "--port", "0", "--tasks", "greedy", environment=environment)
    assert status != 0
    assert "register_handlers: tools/call is not for a tasks module to serve" in errors
    assert "Traceback" not in errors


# Histories


async def test_without_resources_of_the_module_the_template_is_the_only_one(plain: McpClient) -> None:
    assert (await plain.request("resources/list")).result["resources"] == []
    (template,) = (await plain.request("resources/templates/list")).result["resourceTemplates"]
    assert (template["uriTemplate"], template["mimeType"]) == (TEMPLATE, "application/json")
    for method in ("resources/list", "resources/templates/list"):
        assert (await plain.request(method, {"cursor": "forged"})).code == -32602


async def test_the_owner_reads_what_happened_and_nothing_of_what_was_said(client: McpClient) -> None:
    task = await client.start("pay", {"account": "secret-account"})
    await client.parked(task)
    waiting = await read(client, uri_of(task))
    assert (waiting.result["ttlMs"], waiting.result["cacheScope"]) == (0, "private")
    await client.update(task, {"approval": accept(approve=True, note="secret-note")})
    assert (await client.finished(task))["result"]["content"][0]["text"] == "receipt-of-secret-account"

    told = await history(client, task)
    assert [entry["event"] for entry in told["entries"]] == [
        "created",
        "asked",
        "status_changed",
        "answered",
        "step_scheduled",
        "status_changed",
        "step_finished",
        "ended",
    ]
    created, answered = told["entries"][0], told["entries"][3]
    assert (created["tool"], created["by"]) == ("pay", {"issuer": "local", "subject": "local"})
    assert (answered["key"], answered["action"], answered["channel"]) == ("approval", "accept", "http")
    assert told["entries"][-1]["status"] == "completed"
    assert "secret" not in json.dumps(told)
    assert "receipt" not in json.dumps(told)
    ended = (await read(client, uri_of(task))).result
    assert ended["ttlMs"] > 0
    assert ended["cacheScope"] == "private"


async def test_a_cancel_is_in_the_history(client: McpClient) -> None:
    task = await client.start("pay", {"account": "a"})
    await client.parked(task)
    await client.cancel(task)
    await client.finished(task)
    last = (await history(client, task))["entries"][-2:]
    assert [entry["event"] for entry in last] == ["cancel_requested", "ended"]
    assert last[1]["status"] == "cancelled"


async def test_a_strangers_task_an_unknown_one_and_what_is_no_task_are_answered_alike(
    client: McpClient, programs: Programs, temporal: DevServer
) -> None:
    gateway = await Gateway.connect(
        {"target_host": temporal.address, "namespace": "default"}, owner_key=b"k" * 32, data_converter=CONVERTER
    )
    queue = programs.environment["MCP_TASKS_TASK_QUEUE"]
    strangers, foreign, unknown = (unique("task") for _ in range(3))
    memo = TaskMemo(
        tool="pay",
        owner=Principal(issuer="local", subject="stranger"),
        arguments_digest="0",
        created_at=datetime.now(UTC),
        era="2026-07-28",
        client_capabilities={"elicitation": {}},
        delivery="task",
    )
    arguments = {"account": "a"}
    await gateway.start(task_id=strangers, workflow_type="pay", task_queue=queue, arguments=[arguments], memo=memo)
    engine = await Client.connect(temporal.address, data_converter=CONVERTER)
    await engine.start_workflow("pay", arguments, id=foreign, task_queue=queue)

    replies = [await read(client, uri_of(task)) for task in (strangers, foreign, unknown)]
    for task, reply in zip((strangers, foreign, unknown), replies, strict=True):
        assert reply.status == 400
        assert reply.message["error"] == {
            "code": -32602,
            "message": "Resource not found",
            "data": {"uri": uri_of(task)},
        }


@pytest.mark.parametrize(
    "uri",
    ["mcp-task://", "mcp-task:///history", "mcp-task://x", "mcp-task://x/history/", "mcp-task://x/y/history",
     "mcp-task://%00/history", "mcp-task://x/history?all", "mcp-task:x"],
)  # fmt: skip
async def test_what_the_template_does_not_make_is_not_found(client: McpClient, uri: str) -> None:
    error = (await read(client, uri)).message["error"]
    assert (error["code"], error["message"], error["data"]) == (-32602, "Resource not found", {"uri": uri})


async def test_a_uri_that_only_begins_like_that_of_a_history_is_not_found(client: McpClient) -> None:
    task = await client.start("pay", {"account": "a"})
    await client.parked(task)
    assert (await read(client, uri_of(task))).code is None
    for suffix in ("/", "?all", "#top", "/all"):
        assert (await read(client, uri_of(task) + suffix)).code == -32602
    await client.cancel(task)


async def test_without_a_module_that_reads_resources_no_other_uri_is_found(plain: McpClient) -> None:
    error = (await read(plain, "acme://one")).message["error"]
    assert (error["code"], error["data"]) == (-32602, {"uri": "acme://one"})


# Revisions with a handshake


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18"])
async def test_an_older_client_is_told_of_and_served_the_same_features(client: McpClient, version: str) -> None:
    task = await client.start("pay", {"account": "a"})
    await client.parked(task)
    async with OlderClient([client.url], version) as old:
        assert old.welcome["capabilities"] == {"tools": {}, "prompts": {}, "resources": {}, "completions": {}}
        assert old.welcome["instructions"] == "Pay with care."
        prompts = (await old.request("prompts/list"))["result"]
        assert prompts.keys() == {"prompts"}
        templates = (await old.request("resources/templates/list"))["result"]["resourceTemplates"]
        assert [template["uriTemplate"] for template in templates] == [TEMPLATE, "acme://first/{id}"]
        (contents,) = (await old.request("resources/read", {"uri": uri_of(task)}))["result"]["contents"]
        assert [entry["event"] for entry in json.loads(contents["text"])["entries"]][:2] == ["created", "asked"]
        error = (await old.request("resources/read", {"uri": uri_of("task-unknown")}))["error"]
        assert (error["code"], error["message"]) == (-32002, "Resource not found")
    await client.cancel(task)
