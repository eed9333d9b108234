"""The guide's module is served as a reader pastes it, and the pages show what a client really gets."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, get_args

import pytest
import pytest_asyncio

from bridge import histories, history
from bridge.dev_server import DevServer
from bridge.events import StepEnd
from bridge.features import MODULE_METHODS
from bridge.resources import HISTORY_TEMPLATE
from tests.cases.client import McpClient, accept
from tests.cases.listening import acknowledged, listening
from tests.cases.stack import Programs, program_environment
from tests.docs.pages import DOCS, TUTORIAL, blocks, text_of
from tests.support import ROOT, eventually, unique

pytestmark = pytest.mark.asyncio(loop_scope="session")

GUIDE: Final = DOCS / "how-to" / "serve-prompts-and-resources.md"
REFERENCE: Final = "reference/task-history.md"

_VARYING: Final = re.compile(r"task-[0-9a-f]{32}|\d{4}-\d\d-\d\dT[\d:.]+Z")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def desk(temporal: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[McpClient]:
    """A client of the guide's `desk.py`, beside the tutorial's `refunds.py`."""
    async with programs_of_the_guide(tmp_path_factory.mktemp("desk"), temporal) as programs:
        await programs.worker("desk")
        async with McpClient((await programs.bridge("desk")).url) as client:
            yield client


@asynccontextmanager
async def programs_of_the_guide(folder: Path, temporal: DevServer) -> AsyncIterator[Programs]:
    """Programs that find the guide's modules in `folder`."""
    desk, live_desk = blocks(GUIDE, "python")
    modules = {"refunds.py": blocks(TUTORIAL, "python")[0], "desk.py": desk, "live_desk.py": live_desk}
    for name, text in modules.items():
        (folder / name).write_text(text, "utf-8")
    environment = program_environment(folder, temporal.environment)
    environment["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(folder)))
    programs = Programs(environment={**environment, "MCP_TASKS_TASK_QUEUE": unique("desk")})
    try:
        yield programs
    finally:
        await programs.close()


def printed() -> list[Any]:
    """The answers that the guide prints."""
    text = "\n".join(blocks(GUIDE, "console"))
    found = re.findall(r"^\{\n.*?^\}$", text, re.MULTILINE | re.DOTALL)
    return [json.loads(re.sub(r',\s+"_meta": …', "", answer)) for answer in found]


async def test_the_guide_prints_what_its_module_answers(desk: McpClient) -> None:
    prompt = await desk.request("prompts/get", {"name": "apology", "arguments": {"order": "A-17"}})
    policy = await desk.request("resources/read", {"uri": "desk://policy"}, headers={"Mcp-Name": "desk://policy"})
    assert [{"jsonrpc": "2.0", "id": 1, "result": reply.result} for reply in (prompt, policy)] == printed()


async def test_the_guides_other_handlers_work(desk: McpClient) -> None:
    discovered = (await desk.request("server/discover")).result
    assert discovered["instructions"] == "Read desk://policy before you refund."
    assert [prompt["name"] for prompt in (await desk.request("prompts/list")).result["prompts"]] == ["apology"]
    resources = (await desk.request("resources/list")).result["resources"]
    assert [resource["uri"] for resource in resources] == ["desk://policy"]
    assert (await desk.request("prompts/get", {"name": "apology"})).code == -32602
    nothing = await desk.request("resources/read", {"uri": "desk://x"}, headers={"Mcp-Name": "desk://x"})
    assert nothing.message["error"]["data"] == {"uri": "desk://x"}


async def test_the_guide_tells_of_changes_as_it_says(temporal: DevServer, tmp_path: Path) -> None:
    policy, (expected,) = tmp_path / "policy.txt", blocks(GUIDE, "json")
    policy.write_text("Within 30 days.", "utf-8")
    async with programs_of_the_guide(tmp_path, temporal) as programs:
        bridge = await programs.bridge("live_desk")
        async with (
            McpClient(bridge.url) as client,
            listening(client, [], resourceSubscriptions=["desk://policy"]) as stream,
        ):
            resources = (await client.request("server/discover")).result["capabilities"]["resources"]
            assert f'`"resources": {json.dumps(resources)}`' in GUIDE.read_text("utf-8")
            assert await acknowledged(stream) == {"resourceSubscriptions": ["desk://policy"]}
            policy.write_text("Never.", "utf-8")

            async def told() -> list[Any]:
                return stream.messages[1:]

            (update,) = await eventually(told, what="the update")
            assert update == json.loads(expected.replace("7", str(stream.id)))
            headers = {"Mcp-Name": "desk://policy"}
            read = (await client.request("resources/read", {"uri": "desk://policy"}, headers=headers)).result
            assert read["contents"][0]["text"] == "Never."


async def test_the_reference_shows_the_history_of_the_tutorials_refund(desk: McpClient) -> None:
    task = await desk.start("refund", {"order": "A-17", "cents": 1250})
    await desk.parked(task)
    await desk.update(task, {"approval": accept(approve=True)})
    await desk.finished(task)
    uri = HISTORY_TEMPLATE.replace("{taskId}", task)
    (contents,) = (await desk.request("resources/read", {"uri": uri}, headers={"Mcp-Name": uri})).result["contents"]
    (example,) = blocks(DOCS / REFERENCE, "json")
    assert masked(contents["text"]) == masked(example)


def masked(text: str) -> Any:
    """JSON without what differs from run to run."""
    return json.loads(re.sub(r'"stepId": \d+', '"stepId": 0', _VARYING.sub("*", json.dumps(json.loads(text)))))


def events() -> set[str]:
    """Every event that the code writes."""
    tree = ast.parse(Path(history.__file__).read_text("utf-8"))
    names = {
        constant.value
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "_entry"
        for constant in call.args[:1]
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
    }
    return {*names, "answers_offered", "answers_ignored", *(f"step_{end}" for end in get_args(StepEnd))}


async def test_every_entry_is_in_the_reference_and_none_is_invented() -> None:
    rows = re.findall(r"^\| (`[^|]+`) \|", text_of(REFERENCE).split("## Entries")[1], re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) - {"event"} == events()


async def test_the_reference_has_the_template_and_the_limits() -> None:
    page = text_of(REFERENCE)
    assert f"`{HISTORY_TEMPLATE}`" in page
    assert f"{histories.MAX_EVENTS:,} events" in page
    assert f"{histories.MAX_CHARS:,} characters" in page
    assert f"the first {history.MAX_KEYS_TOLD};" in page


async def test_every_method_that_a_module_may_serve_is_in_the_reference() -> None:
    page = text_of("reference/handlers.md")
    assert [method for method in MODULE_METHODS if f"`{method}`" not in page] == []
