"""A short part of `make fuzz` with one seed, so that every change meets the generators; and what a find is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio
from hypothesis import strategies as st

from tests.fuzz.checks import Find, check_message, strict_json
from tests.fuzz.pure import PURE
from tests.fuzz.served import check_response, served
from tests.fuzz.target import Target, examine
from tests.fuzz.values import Pairs, Raw, filled, written
from tests.fuzz.world import World, running_world
from tests.transport.toy import Response

SEED: Final = 20260728
PURE_EXAMPLES: Final = 40
SERVED_EXAMPLES: Final = {
    "http-bytes": 15,
    "http-messages": 30,
    "stdio-lines": 15,
    "task-answers": 6,
    "call-answers": 5,
}


@pytest.mark.parametrize("target", PURE, ids=lambda target: target.name)
def test_what_reads_input_ends_as_it_should(target: Target) -> None:
    failure = examine(target, SEED, examples=PURE_EXAMPLES)
    assert failure is None, failure.why


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    async with running_world() as world:
        yield world


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", SERVED_EXAMPLES)
async def test_the_product_survives(world: World, name: str) -> None:
    (target,) = (target for target in served(world, asyncio.get_running_loop()) if target.name == name)
    failure = await asyncio.to_thread(examine, target, SEED, examples=SERVED_EXAMPLES[name])
    assert failure is None, failure.why
    await world.check()


@pytest.mark.asyncio(loop_scope="module")
async def test_at_the_end_every_task_has_ended_and_none_was_wedged(world: World) -> None:
    assert await world.end() > 3
    world.check_logs()


# The tools themselves


def test_a_failure_is_found_made_small_and_repeated_by_its_seed() -> None:
    def small(number: int) -> None:
        if number > 1_000:
            raise Find("too large")

    target = Target("numbers", st.integers(), small, 200)
    failures = [examine(target, 7) for _ in range(2)]
    assert [(failure.example, failure.seed) for failure in failures if failure] == [(1_001, 7), (1_001, 7)]
    assert failures[0] is not None and "too large" in failures[0].why
    assert examine(Target("numbers", st.just(1), small, 200), 7) is None


@pytest.mark.parametrize(
    "message",
    [
        [],
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "1.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": None, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "result": {}, "error": {"code": 1, "message": "x"}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": "1", "message": "x"}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x" * 50_000}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "Internal server error"}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": 'File "/srv/bridge/http.py", line 1'}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no such workflow"}},
    ],
)
def test_a_wrong_message_is_a_find(message: Any) -> None:
    with pytest.raises(Find):
        check_message(message)


def test_a_right_message_is_none() -> None:
    check_message({"jsonrpc": "2.0", "id": 1, "result": {}})
    check_message({"jsonrpc": "2.0", "error": {"code": -32700, "message": "no JSON"}})
    check_message({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}})


@pytest.mark.parametrize("text", [b'{"a":1,"a":2}', b'{"a":NaN}', b"\xff", b"{"])
def test_text_that_is_not_strictly_json_is_a_find(text: bytes) -> None:
    with pytest.raises(Find):
        strict_json(text)


def test_a_stream_that_holds_more_than_events_is_a_find() -> None:
    stream = {"content-type": "text/event-stream"}
    check_response(Response(200, stream, b'event: message\ndata: {"jsonrpc":"2.0","id":1,"result":{}}\n\n:\n\n'))
    with pytest.raises(Find):
        check_response(Response(200, stream, b"data: {}\n\nHTTP/1.1 200 OK\n\n"))


def test_what_is_written_may_be_no_json_and_words_are_filled_in() -> None:
    value = {"a": Raw("NaN"), "b": Pairs((("c", 1), ("c", "$task"))), "$task": ["$task~1", "$other"]}
    assert written(filled(value, {"$task": "xyz"})) == b'{"a":NaN,"b":{"c":1,"c":"xyz"},"xyz":["xAz","$other"]}'
