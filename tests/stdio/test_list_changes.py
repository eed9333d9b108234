"""The list of tools changes while the server runs: told on the one pipe, to each subscription that asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from tests.cases.stack import Stack
from tests.stdio.client import StdioClient, cancelled, request, stdio_client
from tests.stdio.test_listen import told
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

CHANGED: Final = "notifications/tools/list_changed"


def write(file: Path, description: str, name: str = "by_catalog") -> None:
    new = file.with_suffix(".new")
    new.write_text(
        f'[tools.{name}]\nworkflow = "echo"\nqueue = "mcp-tasks"\ndescription = "{description}"\n'
        'keeps_lifetime = true\ninput_schema = { type = "object" }\n',
        "utf-8",
    )
    new.replace(file)


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    write(tmp_path / "tools.toml", "first")
    return tmp_path / "tools.toml"


@pytest_asyncio.fixture(loop_scope="session")
async def server(stack: Stack, catalog: Path) -> AsyncIterator[StdioClient]:
    async with stdio_client(stack.environment, MCP_TASKS_CATALOG=str(catalog)) as client:
        yield client


async def listen(server: StdioClient, listen_id: Any, **notifications: Any) -> dict[str, Any]:
    """What the acknowledgement honours."""
    await server.send(request("subscriptions/listen", {"notifications": notifications}, id=listen_id))

    async def acknowledged() -> list[dict[str, Any]]:
        return told(server, listen_id)

    (message,) = await eventually(acknowledged, what="the acknowledgement")
    return dict(message["params"]["notifications"])


async def changes_told(server: StdioClient, listen_id: Any, count: int) -> None:
    async def arrived() -> bool:
        return len(told(server, listen_id)) > count

    await eventually(arrived, what=f"{count} changes told to {listen_id}")
    assert [message["method"] for message in told(server, listen_id)[1:]] == [CHANGED] * count


async def test_each_subscription_that_asked_is_told_until_it_is_cancelled(server: StdioClient, catalog: Path) -> None:
    assert await listen(server, "one", toolsListChanged=True) == {"toolsListChanged": True}
    assert await listen(server, 7002, toolsListChanged=True, promptsListChanged=True) == {"toolsListChanged": True}
    assert await listen(server, "other", promptsListChanged=True) == {}
    write(catalog, "second")
    await changes_told(server, "one", 1)
    await changes_told(server, 7002, 1)
    assert [tool["description"] for tool in (await server.result(request("tools/list")))["tools"]][-1] == "second"
    await server.send(cancelled("one"))
    await server.alive()
    write(catalog, "third")
    await changes_told(server, 7002, 2)
    await changes_told(server, "one", 1)
    await changes_told(server, "other", 0)


async def test_a_tool_that_was_added_can_be_called(server: StdioClient, catalog: Path) -> None:
    assert (await server.result(request("server/discover")))["capabilities"]["tools"] == {"listChanged": True}
    await listen(server, "new", toolsListChanged=True)
    write(catalog, "Added.", "added")
    await changes_told(server, "new", 1)
    called = request("tools/call", {"name": "added", "arguments": {"x": 5}}, capabilities={})
    assert (await server.result(called, within=30))["structuredContent"] == {"x": 5}


async def test_an_older_client_is_promised_no_changes_and_sees_them_when_it_looks(
    server: StdioClient, catalog: Path
) -> None:
    assert (await server.initialize())["capabilities"]["tools"] == {}
    write(catalog, "second")

    async def seen() -> bool:
        tools = (await server.result({"jsonrpc": "2.0", "id": "list", "method": "tools/list"}))["tools"]
        server.messages.clear()
        return bool(tools[-1]["description"] == "second")

    await eventually(seen, what="the change")
