"""The list of tools changes while the bridge runs: who listens is told, who calls is not disturbed."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any, Final

import pytest
import pytest_asyncio

from tests.cases.client import FORMS, McpClient, accept
from tests.cases.listening import SUBSCRIPTION, Stream, acknowledged, listening
from tests.cases.older_client import OlderClient, first_request
from tests.cases.stack import Process, Stack
from tests.support import eventually, unique

pytestmark = pytest.mark.asyncio(loop_scope="session")

CHANGED: Final = "notifications/tools/list_changed"
NAME: Final = "by_catalog"


class Offer:
    """A bridge with a catalog of one tool, and that file."""

    def __init__(self, file: Path, log: IO[bytes]) -> None:
        self.file = file
        self.log = log
        self.write("slow")

    def write(self, workflow: str, *lines: str, name: str = NAME) -> None:
        """Offer this workflow of the worker's."""
        new = self.file.with_suffix(".new")
        schema = 'input_schema = { type = "object" }'
        head = (f"[tools.{name}]", f'workflow = "{workflow}"', 'queue = "mcp-tasks"', "keeps_lifetime = true", schema)
        told = () if any(line.startswith("description") for line in lines) else ('description = "By catalog."',)
        new.write_text("\n".join((*head, *told, *lines, "")), "utf-8")
        new.replace(self.file)

    def errors(self) -> list[str]:
        """What the bridge has logged about a catalog that it cannot use."""
        self.log.seek(0)
        return [line for line in self.log.read().decode().splitlines() if "catalog.unusable" in line]


@pytest.fixture(scope="module")
def offer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with tempfile.TemporaryFile() as log:
        yield Offer(tmp_path_factory.mktemp("catalog") / "tools.toml", log)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bridge(stack: Stack, worker: Process, offer: Offer) -> Process:
    """With an answer window that a test can wait for."""
    return await stack.bridge(MCP_TASKS_CATALOG=str(offer.file), MCP_TASKS_ANSWER_WINDOW_SECONDS="4", log=offer.log)


@pytest_asyncio.fixture(loop_scope="session")
async def client(bridge: Process) -> AsyncIterator[McpClient]:
    async with McpClient(bridge.url) as client:
        yield client


async def listed(client: McpClient) -> dict[str, Any]:
    """The tools by name."""
    return {tool["name"]: tool for tool in (await client.request("tools/list")).result["tools"]}


async def shows(client: McpClient, name: str, description: str) -> None:
    """Wait until the tool is listed with this description."""

    async def shown() -> bool:
        return bool((await listed(client)).get(name, {}).get("description") == description)

    await eventually(shown, what=f"{name}: {description}")


async def told(stream: Stream, count: int) -> None:
    """Wait for that many announcements, which are all that came."""

    async def arrived() -> bool:
        return len(stream.messages) > count

    await eventually(arrived, what=f"{count} announcements")
    expected = {"jsonrpc": "2.0", "method": CHANGED, "params": {"_meta": {SUBSCRIPTION: stream.id}}}
    assert stream.messages[1:] == [expected] * count


async def test_a_change_is_told_to_who_asked_and_the_list_shows_it_by_then(client: McpClient, offer: Offer) -> None:
    description = unique("told")
    async with (
        listening(client, [], toolsListChanged=True) as first,
        listening(client, [], {}, toolsListChanged=True) as second,
        listening(client, [], promptsListChanged=True, resourcesListChanged=True) as other,
    ):
        for stream, honoured in (
            (first, {"toolsListChanged": True}),
            (second, {"toolsListChanged": True}),
            (other, {}),
        ):
            assert await acknowledged(stream) == honoured
        offer.write("slow", f'description = "{description}"')
        await told(first, 1)
        assert (await listed(client))[NAME]["description"] == description
        await told(second, 1)
        await told(other, 0)


async def test_only_what_the_list_shows_is_told(client: McpClient, offer: Offer) -> None:
    before = unique("before")
    offer.write("slow", f'description = "{before}"')
    await shows(client, NAME, before)
    async with listening(client, [], toolsListChanged=True) as stream:
        await acknowledged(stream)
        offer.write("slow", f'description = "{before}"', 'lifetime = "1h"', "# a remark")
        await asyncio.sleep(1.5)  # were it told, it would be by now
        offer.write("slow", f'description = "{(after := unique("after"))}"')
        await shows(client, NAME, after)
        await asyncio.sleep(0.5)  # and what is one too many would have followed
        await told(stream, 1)


async def test_a_file_that_cannot_be_used_leaves_all_as_it_is_and_is_logged_in_a_line(
    client: McpClient, offer: Offer
) -> None:
    offer.write("echo")
    await shows(client, NAME, "By catalog.")
    before = await listed(client)
    async with listening(client, [], toolsListChanged=True) as stream:
        await acknowledged(stream)
        offer.write("echo", "lifetme = 1")

        async def logged() -> list[str]:
            return offer.errors()

        (line,) = await eventually(logged, what="the error")
        assert f"tool {NAME}: lifetme is no key" in line and "the tools offered before stay" in line
        assert await listed(client) == before
        assert (await client.call("echo", {"x": 1})).result["structuredContent"] == {"x": 1}
        offer.write("echo", f'description = "{unique("right")}"')
        await told(stream, 1)
    assert len(offer.errors()) == 1


async def test_a_call_ends_with_its_result_though_its_tool_is_taken_away(bridge: Process, offer: Offer) -> None:
    async with McpClient(bridge.url, FORMS) as plain:
        offer.write("slow", f'description = "{(description := unique("here"))}"')
        await shows(plain, NAME, description)
        call = asyncio.create_task(plain.call(NAME, {"seconds": 4, "steps": 2, "label": (label := unique("away"))}))

        async def has_begun() -> bool:
            return await plain.count(label) > 0

        await eventually(has_begun, what="the first step")
        offer.write("slow", f'description = "{label}"', name="another")
        await shows(plain, "another", label)
        assert NAME not in await listed(plain)
        refused = await plain.call(NAME, {})
        assert (refused.code, refused.message["error"]["message"]) == (-32602, f"Unknown tool: {NAME}")
        assert (await call).result["structuredContent"] == {"steps": 2}


async def test_a_question_may_be_answered_as_long_as_the_answer_window_of_now_says(
    bridge: Process, offer: Offer
) -> None:
    """What a client keeps of a question was sealed for the window of the start, which is over by then."""
    async with McpClient(bridge.url, FORMS) as plain, OlderClient([bridge.url]) as old:
        offer.write("ask", f'description = "{(description := unique("longer"))}"', 'answer_window = "1h"')
        await shows(plain, NAME, description)
        first = (await plain.call(NAME, {"n": 1})).result
        async with old.calling(NAME, {"n": 1}) as call:
            asked = await first_request(call)
            await asyncio.sleep(6)
            (key,) = first["inputRequests"]
            answer = accept(text="late")
            done = await plain.call(NAME, {"n": 1}, state=first["requestState"], responses={key: answer})
            assert done.result["structuredContent"]["answers"][0][1] == "late"
            assert await old.respond(asked, {"result": answer}) == 202


async def test_changes_are_advertised_where_there_is_a_catalog_file(client: McpClient, stack: Stack) -> None:
    assert (await client.request("server/discover")).result["capabilities"]["tools"] == {"listChanged": True}
    async with OlderClient([client.url]) as old:
        assert old.welcome["capabilities"]["tools"] == {}, "there is no standing stream on which it would be told"
    without = await stack.bridge()
    async with McpClient(without.url) as fixed:
        assert (await fixed.request("server/discover")).result["capabilities"]["tools"] == {}
        async with listening(fixed, [], toolsListChanged=True) as stream:
            assert await acknowledged(stream) == {}
        lists = [(await each.request("tools/list")).result for each in (client, fixed)]
    changing, lasting = (result["ttlMs"] for result in lists)
    assert changing < lasting, "what may change any time is not kept for as long"
