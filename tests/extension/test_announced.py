"""Changes of the prompts and resources of a tasks module, as who listens is told of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from tests.cases.client import McpClient
from tests.cases.listening import SUBSCRIPTION, Stream, acknowledged, listening
from tests.cases.older_client import OlderClient
from tests.cases.stack import Programs
from tests.support import eventually, run_to_end

pytestmark = pytest.mark.asyncio(loop_scope="session")

ANNOUNCING: Final = "tests.extension.announcing"
CATALOG: Final = """
[tools.by_catalog]
workflow = "pay"
queue = "elsewhere"
description = "Pays."
input_schema = { type = "object" }
"""
ALL: Final[dict[str, Any]] = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["acme://one"],
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def desk(programs: Programs) -> AsyncIterator[McpClient]:
    """A client of a bridge whose module announces changes, without a catalog."""
    async with McpClient((await programs.bridge(ANNOUNCING)).url) as client:
        yield client


async def publish(client: McpClient, *names: str) -> None:
    """Have the module publish these events, or updates of these resources."""
    assert (await client.request("prompts/get", {"name": "x", "arguments": {"publish": " ".join(names)}})).result


def told(stream: Stream) -> list[tuple[str, Any]]:
    """The announcements so far."""
    assert all(message["params"]["_meta"] == {SUBSCRIPTION: stream.id} for message in stream.messages)
    return [(message["method"], message["params"].get("uri")) for message in stream.messages[1:]]


async def is_told(stream: Stream, *announcements: tuple[str, Any]) -> None:
    """Wait for these, which must be all."""

    async def all_told() -> bool:
        return len(told(stream)) >= len(announcements)

    await eventually(all_told, what="the announcements")
    assert sorted(told(stream), key=str) == sorted(announcements, key=str)


PROMPTS: Final = ("notifications/prompts/list_changed", None)
RESOURCES: Final = ("notifications/resources/list_changed", None)


async def test_what_a_module_with_a_bus_serves_is_advertised_and_honoured_and_nothing_else(desk: McpClient) -> None:
    capabilities = (await desk.request("server/discover")).result["capabilities"]
    assert capabilities["tools"] == {}
    assert capabilities["prompts"] == {"listChanged": True}
    assert capabilities["resources"] == {"listChanged": True, "subscribe": True}
    wanted = ALL | {"resourceSubscriptions": ["acme://one", "mcp-task://x/history", "acme://one", "acme://none"]}
    async with listening(desk, [], **wanted) as stream:
        assert await acknowledged(stream) == {
            "promptsListChanged": True,
            "resourcesListChanged": True,
            "resourceSubscriptions": ["acme://one", "acme://none"],
        }


async def test_a_module_without_a_bus_and_one_without_handlers_announce_nothing(
    client: McpClient, plain: McpClient
) -> None:
    for silent in (client, plain):
        capabilities = (await silent.request("server/discover")).result["capabilities"]
        assert [capabilities.get(name, {}) for name in ("tools", "prompts", "resources")] == [{}, {}, {}]
        async with listening(silent, [], **ALL) as stream:
            assert await acknowledged(stream) == {}


async def test_each_stream_is_told_of_what_it_asked_for_and_of_nothing_else(desk: McpClient) -> None:
    async with (
        listening(desk, [], **ALL) as everything,
        listening(desk, [], promptsListChanged=True, resourcesListChanged=False) as prompts,
        listening(desk, [], resourceSubscriptions=["acme://two"]) as two,
    ):
        for stream in (everything, prompts, two):
            await acknowledged(stream)
        await publish(desk, "resources", "acme://one", "acme://two", "prompts", "mcp-task://x/history")
        await is_told(everything, PROMPTS, RESOURCES, ("notifications/resources/updated", "acme://one"))
        await is_told(prompts, PROMPTS)
        await is_told(two, ("notifications/resources/updated", "acme://two"))


async def test_the_list_of_tools_is_not_the_modules_to_announce_and_what_is_no_event_is_ignored(
    programs: Programs, tmp_path: Path
) -> None:
    (tmp_path / "tools.toml").write_text(CATALOG, "utf-8")
    bridge = await programs.bridge(ANNOUNCING, MCP_TASKS_CATALOG=str(tmp_path / "tools.toml"))
    async with McpClient(bridge.url) as client, listening(client, [], **ALL) as stream:
        assert await acknowledged(stream) == ALL
        await publish(client, "tools", "foreign", "odd", "resources")
        await is_told(stream, RESOURCES)


async def test_an_older_client_is_promised_no_changes(desk: McpClient) -> None:
    async with OlderClient([desk.url], "2025-11-25") as old:
        assert old.welcome["capabilities"] == {"tools": {}, "prompts": {}, "resources": {}}


async def test_what_is_not_asked_for_with_true_is_not_asked_for(desk: McpClient) -> None:
    async with listening(desk, [], promptsListChanged="yes", resourceSubscriptions=[]) as stream:
        assert await acknowledged(stream) == {}


@pytest.mark.parametrize(
    "uris", ["acme://one", [1], [f"acme://{number}" for number in range(1001)]], ids=["text", "number", "too many"]
)
async def test_resources_of_another_shape_and_too_many_are_refused(desk: McpClient, uris: Any) -> None:
    reply = await desk.request("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})
    assert (reply.status, reply.code) == (400, -32602)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("SUBSCRIPTIONS = object()", "SUBSCRIPTIONS, if the module has it, is a SubscriptionBus"),
        (
            "from mcp.server.subscriptions import InMemorySubscriptionBus\nSUBSCRIPTIONS = InMemorySubscriptionBus()",
            "SUBSCRIPTIONS is of no use without one of prompts/list, resources/list, resources/read",
        ),
    ],
    ids=["no bus", "nothing served"],
)
async def test_a_bus_that_cannot_be_used_ends_the_start_with_one_line(tmp_path: Path, lines: str, problem: str) -> None:
    (tmp_path / "busy.py").write_text(
        f"from tests.extension.tools import Pay\nTASKS, ACTIVITIES = [Pay], []\n{lines}\n"
    )
    environment = {"PYTHONPATH": f"{tmp_path}:.", "MCP_TASKS_SEALING_KEYS": "k" * 32}
    status, _, errors = await run_to_end("bridge", "--port", "0", "--tasks", "busy", environment=environment)
    assert status == 2
    assert problem in errors and errors.count("\n") == 1
