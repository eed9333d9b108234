"""AU-10: what a task leaves behind: an id that nobody guesses, and no secret of its caller."""

from __future__ import annotations

import base64
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from tempfile import TemporaryFile
from typing import Any, Final

import pytest
from google.protobuf.json_format import MessageToDict
from temporalio.client import Client

from tests.cases.client import McpClient, accept
from tests.cases.counts import counts
from tests.cases.stack import Process, Stack

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOKEN: Final = "SECRET-abc-of-the-caller"
ANSWER: Final = "pw-123-of-the-caller"
RANDOM_BITS: Final = 122


@counts("tasks", cut=100, full=1000)
async def test_ids_are_random_and_say_nothing(client: McpClient, tasks: int) -> None:
    ids = [await client.start("echo_task", {"x": number}) for number in range(tasks)]
    assert len(set(ids)) == tasks
    assert len({len(task_id) for task_id in ids}) == 1
    words = [re.sub("^task-", "", task_id) for task_id in ids]
    assert all(re.fullmatch("[0-9a-f]+", word) for word in words)
    assert len(words[0]) * 4 >= RANDOM_BITS
    # Neither time nor number nor tool: every place has every digit about as often, and ids do not grow
    for place in zip(*words, strict=True):
        assert max(Counter(place).values()) < tasks / 16 + 7 * math.sqrt(tasks / 16)
    rises = sum(earlier < later for earlier, later in pairwise(words))
    assert abs(rises - tasks / 2) < 4 * math.sqrt(tasks)


def plain(value: Any) -> Iterator[str]:
    """All texts in a JSON value, those in Base64 as what they say."""
    match value:
        case str():
            yield value
            try:
                yield base64.b64decode(value, validate=True).decode("utf-8", "replace")
            except ValueError:
                return
        case dict():
            for name, inner in value.items():
                yield name
                yield from plain(inner)
        case list():
            for inner in value:
                yield from plain(inner)
        case _:
            return


async def test_neither_token_nor_answer_is_left_where_it_does_not_belong(
    stack: Stack, worker: Process, engine: Client
) -> None:
    with TemporaryFile() as log:
        bridge = await stack.bridge(log=log, MCP_TASKS_BEARER_TOKEN=TOKEN, MCP_TASKS_LOG_LEVEL="debug")
        async with McpClient(bridge.url, token=TOKEN) as client:
            task_id = await client.start("ask", {"n": 2})
            (first,) = await client.parked(task_id)
            assert (await client.update(task_id, {first: accept(text=5, other=ANSWER)})).code == -32602
            spoilt = client.headers("tasks/get", {"taskId": task_id})
            assert (await client.post(json.dumps([ANSWER]).encode(), spoilt)).code == -32600
            await client.update(task_id, {first: accept(text=ANSWER)})
            (second,) = await client.parked(task_id, without=(first,))
            handle = engine.get_workflow_handle(task_id)
            described = MessageToDict((await handle.describe()).raw_description)
            assert "input_required" in " ".join(plain(described))  # it was looked into
            for text in plain(described):
                assert TOKEN not in text and ANSWER not in text
            await client.update(task_id, {second: accept(text=ANSWER)})
            await client.finished(task_id)
        for event in json.loads((await handle.fetch_history()).to_json())["events"]:
            texts = list(plain(event))
            assert not any(TOKEN in text for text in texts)
            if any(ANSWER in text for text in texts):  # as documented: an answer is a signal, and may be in the result
                assert event["eventType"].endswith(("EXECUTION_SIGNALED", "EXECUTION_COMPLETED"))
        await bridge.stop()
        log.seek(0)
        written = log.read().decode()
        assert "http.refused" in written
        assert TOKEN not in written and ANSWER not in written
