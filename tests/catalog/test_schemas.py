"""What a schema has against arguments is found in a time that no caller chooses, beside the event loop if large."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, create_model

from bridge.catalog import Tool
from bridge.keywords import matcher
from bridge.schemas import QUICK_CHARS, UNCHECKED, is_quick
from bridge.settings import SettingsError

DEADLINE = 5.0
"""Seconds for what took 9 to 43 s; it takes hundredths, or a second for what has to be read whole."""

DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def tool(schema: Mapping[str, Any], **fields: Any) -> Tool:
    return Tool(
        name="sort",
        workflow_type="Sort",
        queue="q",
        description="Sorts.",
        annotations={},
        task="optional",
        poll_interval=timedelta(seconds=1),
        client_capabilities={},
        input_schema={"type": "object", **schema},
        **fields,
    )


def of(value: Any, **keywords: Any) -> Tool:
    """A tool whose one argument `v` is what pydantic's schema for `value` says."""
    model: type[BaseModel] = create_model("Arguments", v=(Annotated[value, Field(**keywords)], ...))
    return tool(model.model_json_schema())


async def problem(tool: Tool, value: Any) -> str | None:
    return await tool.arguments_problem({"v": value})


@pytest.mark.parametrize(
    ("tool", "value", "expected"),
    [
        (of(set[str]), [{"a": n} for n in range(4_000)], "v.0: {'a': 0} is not of type 'string'"),
        (of(list[int]), ["x"] * 700_000, "v.0: 'x' is not of type 'integer'"),
        (of(list[int | str | None]), [{}] * 500_000, "v.0: {} is not valid under any of the given schemas"),
        (of(list[int] | list[bool]), ["x"] * 300_000, "v"),
        (of(set[str]), [str(n) for n in range(30_000)], None),
        (tool({"properties": {"v": {"uniqueItems": True}}}), [{"a": n} for n in range(20_000)], None),
        (tool({"properties": {"v": {"uniqueItems": True}}}), [n * (2**61 - 1) for n in range(60_000)], None),
        (of(str, pattern=r"^([a-z]+ ?)+$"), "a" * 40 + "!", f"v: '{'a' * 40}!' does not match '^([a-z]+ ?)+$'"),
    ],
    ids=["objects", "errors", "no alternative", "no list", "strings", "unique objects", "one hash", "pattern"],
)
async def test_a_check_takes_no_time_that_its_caller_chooses(tool: Tool, value: Any, expected: str | None) -> None:
    started = time.monotonic()
    found = await problem(tool, value)
    assert time.monotonic() - started < DEADLINE
    assert (found or "").startswith(expected or "") and (found is None) == (expected is None)


@pytest.mark.parametrize("dialect", [{}, {"$schema": DRAFT_7}], ids=["2020-12", "draft 7"])
@pytest.mark.parametrize(
    "keyword",
    [
        {"patternProperties": {r"^([a-z]+ ?)+$": {"type": "integer"}}, "additionalProperties": False},
        {"patternProperties": {r"^([a-z]+ ?)+$": False}},
        {"propertyNames": {"pattern": r"^([a-z]+ ?)+$"}},
        {"properties": {"v": {"$ref": "#"}}, "propertyNames": {"pattern": r"^([a-z]+ ?)+$"}},
    ],
    ids=["additional", "pattern", "names", "by a reference to the root"],
)
async def test_patterns_of_names_are_matched_in_linear_time(dialect: dict[str, Any], keyword: dict[str, Any]) -> None:
    started = time.monotonic()
    await tool(dialect | keyword).arguments_problem({"v": {"a" * 40 + "!": 1}, "a" * 40 + "!": 1})
    assert time.monotonic() - started < DEADLINE


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"n1": 1, "n2": 2, "fixed": "x"}, None),
        ({"n1": "x"}, "n1: 'x' is not of type 'integer'"),
        ({"m1": 1}, "Additional properties are not allowed ('m1' was unexpected)"),
    ],
)
async def test_patterns_of_names_say_what_they_did(arguments: dict[str, Any], expected: str | None) -> None:
    schema = {
        "properties": {"fixed": {}},
        "patternProperties": {"^n[0-9]$": {"type": "integer"}},
        "additionalProperties": False,
    }
    assert await tool(schema).arguments_problem(arguments) == expected


@pytest.mark.parametrize(
    "items",
    [[1, 1.0], [0, -0.0], [{"a": 1, "b": [2.0]}, {"b": [2], "a": 1}], [None, None], ["a", "a"], [2**70, float(2**70)]],
)
async def test_equal_items_are_found(items: list[Any]) -> None:
    assert "has non-unique elements" in str(await problem(tool({"properties": {"v": {"uniqueItems": True}}}), items))


@pytest.mark.parametrize(
    "items",
    [
        [1, True],
        [0, False],
        [1, "1"],
        [[1], [True]],
        [None, "null"],
        [{"a": 1}, {"a": "1"}],
        [2**70, 2**70 + 1],
        [[], {}],
    ],
)
async def test_items_that_only_look_equal_are_not(items: list[Any]) -> None:
    assert await problem(tool({"properties": {"v": {"uniqueItems": True}}}), items) is None


@pytest.mark.parametrize(
    ("branches", "value", "expected"),
    [
        ("anyOf", {"kind": "a", "n": "x"}, "v.n: 'x' is not of type 'integer'"),
        ("oneOf", {"kind": "a", "n": "x"}, "v.n: 'x' is not of type 'integer'"),
        ("anyOf", 5, "v: 5 is not valid under any of the given schemas"),
        ("oneOf", "both", "v: 'both' is valid under each of {'const': 'both'}, {'minLength': 4, 'type': 'string'}"),
        ("anyOf", "both", None),
    ],
)
async def test_the_closest_of_alternatives_is_told(branches: str, value: Any, expected: str | None) -> None:
    alternatives = [
        {"type": "object", "properties": {"kind": {"const": "a"}, "n": {"type": "integer"}}},
        {"const": "both"},
        {"minLength": 4, "type": "string"},
    ]
    assert await problem(tool({"properties": {"v": {branches: alternatives}}}), value) == expected


async def test_a_pattern_that_needs_look_around_is_matched_all_the_same() -> None:
    secret = tool({"properties": {"v": {"pattern": r"^(?=.*[0-9])[a-z0-9]+$"}}})
    assert await problem(secret, "abc1") is None
    assert "does not match" in str(await problem(secret, "abc"))
    assert matcher(r"^a") is matcher(r"^a")  # compiled once


async def test_a_number_too_large_to_divide_is_refused() -> None:
    assert await problem(of(float, multiple_of=0.01), int("9" * 400)) == UNCHECKED


async def test_what_is_large_is_checked_while_the_loop_goes_on() -> None:
    """50,000 items keep a thread for a good while; the loop would not turn once."""
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    turning = asyncio.create_task(turn())
    assert await problem(of(list[int]), list(range(50_000))) is None
    assert turns > 5
    turning.cancel()


async def test_what_is_large_is_checked_two_at_a_time_and_small_calls_do_not_wait() -> None:
    loop, running, release = asyncio.get_running_loop(), asyncio.Semaphore(0), threading.Event()

    def slow(arguments: Mapping[str, Any]) -> None:
        if not is_quick(arguments):
            loop.call_soon_threadsafe(running.release)
            release.wait(DEADLINE)

    slowly = tool({}, model_problem=slow)
    large = [asyncio.create_task(problem(slowly, "x" * QUICK_CHARS)) for _ in range(6)]
    async with asyncio.timeout(DEADLINE):
        await running.acquire()
        await running.acquire()
        assert await problem(slowly, "x") is None
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(running.acquire(), 0.3)
    release.set()
    assert await asyncio.gather(*large) == [None] * 6


@pytest.mark.parametrize(
    ("arguments", "quick"),
    [
        ({"v": "x" * (QUICK_CHARS - 200)}, True),
        ({"v": "x" * QUICK_CHARS}, False),
        ({"x" * QUICK_CHARS: 1}, False),
        ({"v": [1] * 1_000}, True),
        ({"v": [1] * 10_000}, False),
        ({str(n): n for n in range(10_000)}, False),
        ({"v": [["x" * 100] * 10] * 100}, False),
    ],
)
def test_size_is_of_values_and_their_texts(arguments: dict[str, Any], quick: bool) -> None:
    assert is_quick(arguments) is quick
    assert quick or len(json.dumps(arguments)) > QUICK_CHARS // 4


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize("which", ["input", "output"])
@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"$schema": 5}, "the JSON Schema dialect 5 is not supported"),
        ({"$schema": "http://[bad"}, ""),
        ({"$schema": "https://example.com/dialect"}, "the JSON Schema dialect 'https://example.com/dialect' is not"),
        ({"properties": {"n": {"$ref": "http://127.0.0.1:1/x"}}}, "the reference 'http://127.0.0.1:1/x' leads to no"),
        ({"properties": {"n": {"$ref": "#/$defs/nope"}}}, "the reference '#/$defs/nope' leads to no schema in it"),
        ({"properties": {"n": {"$ref": "#/required"}}, "required": ["n"]}, "the reference '#/required' leads to no"),
        ({"properties": {"n": {"$ref": "#/minLength/x"}}, "minLength": 5}, "the reference '#/minLength/x' leads to no"),
        ({"$dynamicRef": "#x"}, "the reference '#x' leads to no schema in it"),
        ({"properties": {"n": {"$ref": "#/x/a"}}, "x": {"a": {"type": 5}}}, "5 is not valid"),
        ({"properties": {"n": {"$ref": "#/x/a"}}, "x": {"a": {"$ref": "#/x/b"}}}, "the reference '#/x/b' leads to no"),
        ({"$ref": "#"}, "a reference leads back to itself"),
        (
            {"properties": {"n": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"anyOf": [{}, {"$ref": "#/$defs/a"}]}}},
            "a reference leads back to itself",
        ),
        (nested(900), "it nests too deeply"),
    ],
)
def test_a_schema_that_would_fail_calls_ends_the_start(which: str, schema: dict[str, Any], why: str) -> None:
    with pytest.raises(SettingsError) as caught:
        tool(schema) if which == "input" else tool({}, output_schema=schema)
    line = str(caught.value)
    assert line.startswith(f"tool sort: its {which} schema is not valid: {why}") and "\n" not in line


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        (
            {"properties": {"v": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": {"items": {"$ref": "#/$defs/tree"}}}},
            [[]],
            True,
        ),
        ({"properties": {"v": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}, {"v": {"v": None}}, True),
        ({"properties": {"v": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}, {"v": {"v": 5}}, False),
        ({"properties": {"v": {"$ref": "https://json-schema.org/draft/2020-12/schema"}}}, {"type": "string"}, True),
        ({"properties": {"v": {"$ref": "https://json-schema.org/draft/2020-12/schema"}}}, {"type": "text"}, False),
        ({"$schema": DRAFT_7, "properties": {"v": {"$ref": "#/definitions/a"}}, "definitions": {"a": False}}, 1, False),
        ({"$schema": DRAFT_7.rstrip("#"), "properties": {"v": {"$ref": "#"}}}, {"v": {}}, True),
        ({"properties": {"v": {"$ref": "#n"}}, "$defs": {"a": {"$anchor": "n", "type": "null"}}}, 1, False),
        ({"properties": {"$ref": {"type": "string"}, "v": {}}}, 1, True),
    ],
)
async def test_references_within_a_schema_are_followed(schema: dict[str, Any], value: Any, fits: bool) -> None:
    assert (await problem(tool(schema), value) is None) is fits
