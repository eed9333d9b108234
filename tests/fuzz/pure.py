"""The functions that read what strangers send, in process: each soon ends in its answer or in its kind of error."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st
from mcp_types import INVALID_PARAMS
from multidict import CIMultiDict
from pydantic import ValidationError

from bridge.catalog import Catalog
from bridge.catalog_file import read_catalog
from bridge.envelope import checked_envelope
from bridge.headers import (
    accepted,
    check_notification,
    check_parameters,
    check_request,
    check_single,
    is_json,
    is_modern,
    is_plain,
)
from bridge.jsonrpc import Notification, Refusal, Request, Response, encode, error_response, parse_message
from bridge.lines import Splitter
from bridge.origin import host_allowed, origin_allowed
from bridge.schemas import checked_schema, schema_problem
from bridge.seal import Seal, Unsealed
from bridge.settings import SettingsError
from tests.fuzz.answers import answers_to, forms
from tests.fuzz.checks import MAX_ERROR_CHARS, check_message, demand, strict_json
from tests.fuzz.messages import messages
from tests.fuzz.target import Target
from tests.fuzz.values import changed, texts, values, written
from workflows.kit.contract import MAX_DEPTH, Principal, UpdateSignal
from workflows.kit.questions import Giver, Questions, can_be_asked, request_problem, response_problem

SLOW_SECONDS: Final = 2.0
"""What takes longer holds up everybody: nothing that is generated here is large."""

OWNER: Final = Principal(issuer="https://id.example.com", subject="ada")
SEAL: Final = Seal(["k" * 32], "fuzz", timedelta(hours=1))
TOKEN: Final = SEAL.seal({"task": "t", "keys": ["a"]}, OWNER)


def _soon(check: Callable[[Any], None]) -> Callable[[Any], None]:
    """`check`, which must not take long."""

    @wraps(check)
    def timed(example: Any) -> None:
        before = time.process_time()
        check(example)
        seconds = time.process_time() - before
        demand(seconds < SLOW_SECONDS, f"{check.__name__} took {seconds:.1f} s")

    return timed


def _plain(value: Any) -> Any:
    """`value` as it comes out of a JSON reader."""
    return json.loads(json.dumps(value, default=str))


def _bounded(text: str | None) -> None:
    demand(text is None or len(text) < MAX_ERROR_CHARS, f"a text of {len(text or '')} characters: {text!r:.200}")


def _refused(refusal: Refusal) -> None:
    check_message(strict_json(encode(refusal.to_json())))


@_soon
def messages_are_read(raw: bytes) -> None:
    try:
        message = parse_message(raw, max_depth=MAX_DEPTH)
    except Refusal as refusal:
        _refused(refusal)
        return
    demand(isinstance(message, Request | Notification | Response), "no message")
    if isinstance(message, Request):
        encode(error_response(message.id, INVALID_PARAMS, "x", message.params))
        try:
            checked_envelope(message)
        except Refusal as refusal:
            _refused(refusal)


@_soon
def lines_are_cut(example: tuple[list[bytes], int]) -> None:
    chunks, limit = example
    splitter = Splitter(limit)
    found = [line for chunk in chunks for line in splitter.feed(chunk)] + list(splitter.end())
    demand(all(line is None or 0 < len(line) <= limit for line in found), "a line above the limit")
    whole = [line for line in b"".join(chunks).split(b"\n") if line and not (line.isspace() and len(line) <= limit)]
    demand([line if len(line) <= limit else None for line in whole] == found, "other lines")


SCHEMA: Final = {
    "type": "object",
    "properties": {"a": {"type": "string", "x-mcp-header": "A"}, "n": {"type": "integer", "x-mcp-header": "N"}},
}


@_soon
def headers_are_checked(example: tuple[list[tuple[str, str]], dict[str, Any]]) -> None:
    pairs, message = example
    headers = CIMultiDict(pairs)
    for values_of in (headers.getall("Accept", []), [value for _, value in pairs]):
        accepted(values_of)
        is_json(values_of)
        is_plain(values_of)
    for _, value in pairs:
        host_allowed(value, ("a.example",), loopback=True)
        origin_allowed(value, ("https://a.example",))
    try:
        parsed = parse_message(written(message), max_depth=MAX_DEPTH)
        check_single(headers)
        if isinstance(parsed, Request | Notification):
            is_modern(parsed, headers)
        check_notification(headers)
        if isinstance(parsed, Request):
            check_request(parsed, headers, task_name_required=True)
            check_parameters(parsed, SCHEMA, headers)
    except Refusal as refusal:
        _refused(refusal)


@_soon
def questions_are_checked(example: tuple[Any, Any, Any]) -> None:
    request, response, capabilities = example
    problem = request_problem(request)
    _bounded(problem)
    if problem is None:
        _bounded(response_problem(request, response))
        can_be_asked(capabilities, request)


@_soon
def answers_are_taken(example: tuple[dict[str, Any], Any, Any]) -> None:
    """What the bridge lets through is what the workflow takes, and the other way round."""
    schema, response, other = example
    request = {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": schema}}
    problem = response_problem(request, response)
    _bounded(problem)
    loop = asyncio.new_event_loop()
    try:
        questions = Questions(owner=OWNER, new_key=lambda: "0", new_future=loop.create_future)
        question = questions.ask("k", request, NOW)
        try:
            signal = UpdateSignal.model_validate({**_SIGNAL, "responses": {"x": other, "k": response}})
        except ValidationError as invalid:
            raise AssertionError("an answer that no signal carries") from invalid
        giver = Giver(by=signal.actor, at=NOW)
        taken = questions.deliver(signal.responses, giver, offered=bool(signal.offered)).changed
        demand(taken == (problem is None) == question.answered.done(), f"taken: {taken}, problem: {problem}")
    finally:
        loop.close()


NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
_SIGNAL: Final[Mapping[str, Any]] = {
    "v": 1,
    "responses": {},
    "actor": {"issuer": "i", "subject": "s", "channel": "http"},
    "at": "2026-01-01T00:00:00Z",
}


@_soon
def signals_are_read(update: Any) -> None:
    try:
        UpdateSignal.model_validate(update)
    except ValidationError:
        return


_KEYWORDS: Final = (
    "type properties required additionalProperties items prefixItems enum const minLength maxLength pattern format "
    "minimum maximum multipleOf minItems maxItems uniqueItems contains anyOf allOf oneOf not if then else $ref $defs "
    "$schema $id $anchor $dynamicRef propertyNames patternProperties dependentRequired dependentSchemas "
    "unevaluatedProperties unevaluatedItems"
).split()
_keyword_values: Final = st.one_of(
    values,
    st.sampled_from(("string", "object", "array", "integer", "#", "#/$defs/a", "#/properties/x", "(a+)+$", "(", "[")),
    st.sampled_from(("https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#")),
    st.sampled_from((0, 0.1, 1e-300, 10**400)),
)
schemas: Final = st.recursive(
    st.dictionaries(st.sampled_from(_KEYWORDS), _keyword_values, max_size=4),
    lambda inner: st.dictionaries(
        st.sampled_from(_KEYWORDS),
        st.one_of(
            inner,
            st.lists(inner, max_size=3),
            st.dictionaries(st.sampled_from(("a", "x", "^a", "$defs")), inner, max_size=3),
        ),
        max_size=4,
    ),
    max_leaves=6,
)


@_soon
def schemas_are_checked(example: tuple[dict[str, Any], Any]) -> None:
    schema, arguments = example
    try:
        validator = checked_schema(schema)
    except ValueError as refused:
        demand(str(refused), "refused without a word")
        return
    schema_problem(validator, arguments)


@_soon
def tokens_are_opened(token: str) -> None:
    try:
        claims = SEAL.open(token, OWNER)
    except Unsealed:
        return
    demand(token == TOKEN and claims == {"task": "t", "keys": ["a"]}, "a token that was not sealed here")


@_soon
def cursors_are_read(cursor: str) -> None:
    try:
        Catalog([]).page(cursor)
    except ValueError:
        return
    raise AssertionError("a cursor that was not given out")


@_soon
def catalogs_are_read(text: str) -> None:
    try:
        read_catalog(Path("tools.toml"), lambda path: text if path.name == "tools.toml" else "{}")
    except SettingsError as refused:
        demand("\n" not in str(refused).strip() or "not TOML" in str(refused), f"more than a line: {refused}")


_ENTRY: Final[dict[str, Any]] = {
    "workflow": '"W"',
    "queue": '"q"',
    "description": '"d"',
    "input_schema": '{ type = "object" }',
    "task": '"optional"',
    "lifetime": '"1h"',
    "wait_budget": '"5s"',
    "arguments": "[]",
    "client_capabilities": "{ elicitation = {} }",
    "annotations": "{ readOnlyHint = true }",
    "asks_before_handle": "true",
    "keeps_lifetime": "true",
    "encrypted": "false",
}
_toml: Final = st.sampled_from(
    ('"x"', '""', "1", "-1", "1e400", "inf", "nan", "true", "[]", "{}", "1979-05-27", '"99999999d"', '"0s"', "[[]]",
     '{ type = "object", properties = { a = {} } }', '{ "$ref" = "#" }', '"\\u0000"', "'''\n'''", "x", '"a.json"')
)  # fmt: skip


@st.composite
def _catalog_texts(draw: st.DrawFn) -> str:
    entry = {key: _ENTRY[key] for key in draw(st.sets(st.sampled_from(sorted(_ENTRY))))}
    for key in draw(st.lists(st.sampled_from((*sorted(_ENTRY), "input_schema_file", "result", "no_such")), max_size=2)):
        entry[key] = draw(_toml)
    name = draw(st.one_of(st.just("a"), st.sampled_from(('"a b"', '""', "a.b", '"ü"', '"\\n"', "a]"))))
    body = "".join(f"{key} = {value}\n" for key, value in entry.items())
    text = f"[tools.{name}]\n{body}"
    return draw(st.one_of(st.just(text), st.just(text[: len(text) // 2]), st.just("a=" + "[" * 5_000), st.text()))


_bytes: Final = st.one_of(
    st.builds(written, messages), st.binary(max_size=100), st.builds(lambda one: one[:-3], st.builds(written, messages))
)
_HEADER_NAMES: Final = (
    "Accept", "Content-Type", "Content-Encoding", "Mcp-Method", "Mcp-Name", "MCP-Protocol-Version", "Mcp-Param-A",
    "Mcp-Param-N", "Mcp-Session-Id", "X",
)  # fmt: skip
_header_values: Final = st.one_of(
    st.text(max_size=20),
    st.sampled_from(("2026-07-28", "tools/call", "=?base64?4oKs?=", "=?base64?////?=", "application/json;q=0", "*/*")),
)
_CAPABILITIES: Final = st.sampled_from(("elicitation", "sampling", "roots", "x"))
_questions: Final = changed(
    st.one_of(
        st.builds(
            lambda form: {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": form}}, forms()
        ),
        st.just({"method": "elicitation/create", "params": {"mode": "url", "message": "m", "url": "https://a"}}),
        st.just({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}),
        st.just({"method": "roots/list"}),
    )
).map(_plain)

PURE: Final = (
    Target("messages", _bytes, messages_are_read, 600),
    Target("lines", st.tuples(st.lists(st.binary(max_size=30)), st.integers(1, 40)), lines_are_cut, 400),
    Target(
        "headers",
        st.tuples(st.lists(st.tuples(st.sampled_from(_HEADER_NAMES), _header_values), max_size=6), messages),
        headers_are_checked,
        800,
    ),
    Target(
        "questions", st.tuples(_questions, values, st.dictionaries(_CAPABILITIES, values)), questions_are_checked, 800
    ),
    Target(
        "answers",
        forms().flatmap(lambda form: st.tuples(st.just(form), answers_to(form).map(_plain), values)),
        answers_are_taken,
        600,
    ),
    Target("signals", changed(st.just({**_SIGNAL, "responses": {"k": {}}})).map(_plain), signals_are_read, 300),
    Target("schemas", st.tuples(schemas, values), schemas_are_checked, 400),
    Target(
        "tokens",
        st.one_of(
            texts,
            st.text(),
            st.builds(lambda at, by: TOKEN[:at] + by + TOKEN[at + 1 :], st.integers(0, 150), st.characters()),
            st.builds(lambda at: TOKEN[:at], st.integers(0, 150)),
        ),
        tokens_are_opened,
        600,
    ),
    Target("cursors", st.one_of(texts, st.text()), cursors_are_read, 300),
    Target("catalogs", _catalog_texts(), catalogs_are_read, 400),
)
