"""The status table, row by row, on close events made by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from mcp_types.methods import serialize_server_result

from bridge.closed import Closed, Ending, Failure
from bridge.degrade import shown_result
from bridge.status import Outcome, OutcomeRules, live, outcome, terminal, tool_result
from bridge.wire import created_task, detailed_task
from workflows.kit.contract import (
    EXPIRED,
    JSONRPC_ERROR,
    MAX_DEPTH,
    MAX_MESSAGE_CHARS,
    TOOL_ERROR,
    Principal,
    Progress,
    TaskMemo,
    TaskView,
)
from workflows.kit.results import call_tool_result

AT = datetime(2026, 7, 28, 10, 30, tzinfo=UTC)
TEXT = {"type": "text", "text": "hello"}
MEMO = TaskMemo(
    tool="tool",
    owner=Principal(issuer="local", subject="me"),
    arguments_digest="0",
    created_at=AT,
    era="2026-07-28",
    client_capabilities={},
    delivery="task",
)


def end(ending: Ending, *, cancel_requested: bool = False, rules: OutcomeRules | None = None, **fields: Any) -> Outcome:
    closed = Closed(ending, AT, **fields)
    return outcome(closed, task_id="t", run_id="r", cancel_requested=cancel_requested, rules=rules or OutcomeRules())


def failed(failure: Failure, *, cancel_requested: bool = False, rules: OutcomeRules | None = None) -> Outcome:
    return end("failed", failure=failure, cancel_requested=cancel_requested, rules=rules)


def application(type_: str, message: str = "why", *details: Any, non_retryable: bool = False) -> Failure:
    return Failure("application", type_, message, non_retryable, details)


def activity(cause: Failure) -> Failure:
    return Failure("activity", message="Activity task failed", cause=cause)


def assert_waiting_callers_get(result: dict[str, Any]) -> None:
    """The SDK's kernel takes from `result` only what MCP does not know, in every revision."""
    for version in ("2025-06-18", "2025-11-25", "2026-07-28"):
        older = version != "2026-07-28"
        kept = serialize_server_result("tools/call", version, shown_result(result) if older else result)
        assert kept.get("isError", False) == result.get("isError", False)
        assert len(kept["content"]) == len(result["content"])
        assert older or kept.get("structuredContent") == result.get("structuredContent")


def shown(value: Any) -> dict[str, Any]:
    """The result of a run that returned `value`, for those who ask for it and those who wait alike."""
    result = tool_result(value, task_id="t")
    assert_waiting_callers_get(result)
    return result


def error_text(made: Outcome) -> str:
    assert made.status == "completed"
    assert made.result is not None
    assert made.result["isError"] is True
    text = made.result["content"][0]["text"]
    assert isinstance(text, str)
    return text


def test_a_call_tool_result_is_the_result_and_says_that_it_is_complete() -> None:
    value = {"content": [TEXT], "structuredContent": {"n": 1}, "_meta": {"a": 1}}
    assert end("completed", result=value) == Outcome("completed", result={**value, "resultType": "complete"})


IMAGE = {"type": "image", "data": "eA==", "mimeType": "image/png"}
LINK = {"type": "resource_link", "uri": "file:///x", "name": "x"}
VALID_BLOCKS: list[dict[str, Any]] = [
    TEXT,
    IMAGE,
    {"type": "audio", "data": "eA==", "mimeType": "audio/wav"},
    LINK,
    {**LINK, "size": 5, "description": "d", "icons": [{"src": "https://x.example/i.png"}]},
    {"type": "resource", "resource": {"uri": "file:///x", "text": "t"}},
    {"type": "resource", "resource": {"uri": "file:///x", "blob": "eA==", "mimeType": "image/png"}},
    {**TEXT, "annotations": {"audience": ["user"], "priority": 1, "lastModified": "2026-07-28T10:00:00Z"}},
    {**TEXT, "annotations": None, "_meta": None},
    {**TEXT, "_meta": {"x.example/y": [None]}, "unknown": {"n": None}},
]


@pytest.mark.parametrize("block", VALID_BLOCKS, ids=str)
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"isError": True},
        {"isError": False},
        {"_meta": {"a": 1}},
        {"_meta": None},
        {"unknown": [1]},
        {"structuredContent": None},
        {"structuredContent": [1, {"n": 10**400}]},
    ],
    ids=str,
)
def test_every_kind_of_content_makes_a_call_tool_result_that_is_shown_as_it_is(
    block: dict[str, Any], more: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    value = {"content": [TEXT, block], **more}
    assert shown(value) == {**value, "resultType": "complete"}
    assert caplog.records == []


MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"content": [{"type": "text"}]}, "content.0.TextContent.text: "),
    ({"content": [{"type": "text", "text": 5}]}, "content.0.TextContent.text: "),
    ({"content": [TEXT, {"type": "image", "data": "eA=="}]}, "content.1.ImageContent.mimeType: "),
    ({"content": [{"type": "resource_link", "uri": "x"}]}, "content.0.ResourceLink.name: "),
    ({"content": [{"type": "resource_link", "uri": 5, "name": "x"}]}, "content.0.ResourceLink.uri: "),
    ({"content": [{"type": "resource"}]}, "content.0.EmbeddedResource.resource: "),
    ({"content": [{**TEXT, "annotations": 5}]}, "content.0.TextContent.annotations: "),
    ({"content": [{**TEXT, "annotations": {"priority": "0.5"}}]}, "content.0.TextContent.annotations.priority: "),
    ({"content": [{**TEXT, "annotations": {"priority": 7}}]}, "content.0.TextContent.annotations.priority: "),
    ({"content": [TEXT], "isError": "yes"}, "isError: "),
    ({"content": [TEXT], "isError": 1}, "isError: "),
    ({"content": [TEXT], "isError": None}, "isError: "),
    ({"content": [TEXT], "_meta": 5}, "_meta: "),
    (
        {"content": [], "requestState": "s", "inputRequests": {"a": {"method": "roots/list"}}, "_meta": {}},
        "it is an InputRequiredResult as well",
    ),
]


@pytest.mark.parametrize(("value", "reason"), MALFORMED, ids=str)
def test_a_malformed_call_tool_result_is_a_value_that_every_caller_gets_and_the_log_says_why(
    value: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = shown(value)
    assert made["structuredContent"] == value
    assert json.loads(made["content"][0]["text"]) == value
    assert made.keys() == {"content", "structuredContent", "resultType"}
    (record,) = caplog.records
    assert record.message == "result.malformed"
    assert record.__dict__["task_id"] == "t"
    assert record.__dict__["reason"].startswith(reason)


@pytest.mark.parametrize("value", [value for value, _ in MALFORMED], ids=str)
def test_a_malformed_result_of_a_tool_error_stays_an_error(value: dict[str, Any]) -> None:
    made = failed(application(TOOL_ERROR, "why", value)).result or {}
    assert made["isError"] is True
    assert made["structuredContent"] == value
    assert_waiting_callers_get(made)


def nested(depth: int, innermost: Any = 1) -> Any:
    """`innermost` within `depth` lists."""
    for _ in range(depth):
        innermost = [innermost]
    return innermost


@pytest.mark.parametrize(
    "value", [nested(MAX_DEPTH), {"a": nested(MAX_DEPTH - 1)}, {"content": [TEXT], "x": nested(MAX_DEPTH - 1)}]
)
def test_a_result_as_deep_as_the_contract_allows_is_shown(value: Any) -> None:
    made = shown(value)
    assert "isError" not in made
    assert value in (made.get("structuredContent"), {key: made[key] for key in made if key != "resultType"})


def test_what_the_kit_wraps_may_be_as_deep() -> None:
    value = call_tool_result(nested(MAX_DEPTH))
    assert shown(value) == {**value, "resultType": "complete"}


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 300, 900])
@pytest.mark.parametrize("place", ["value", "structured", "extra", "block"])
def test_a_result_that_is_nested_deeper_is_a_tool_error(depth: int, place: str) -> None:
    deep = nested(depth)
    value = {
        "value": deep,
        "structured": {"content": [TEXT], "structuredContent": deep},
        "extra": {"content": [TEXT], "extra": deep},
        "block": {"content": [{**TEXT, "_meta": {"a": deep}}]},
    }[place]
    text = f"The result is nested too deeply, the limit is {MAX_DEPTH} levels."
    expected = {"content": [{"type": "text", "text": text}], "isError": True, "resultType": "complete"}
    assert shown(value) == expected
    assert place == "value" or failed(application(TOOL_ERROR, "why", value)).result == expected


@pytest.mark.parametrize(
    "value",
    [{"x": "a\ud800"}, {"\ud800": "\U0001f600"}, {"content": [{"type": "text", "text": "\udfff"}]}],
    ids=ascii,
)
def test_lone_surrogates_become_question_marks(value: Any) -> None:
    made = shown(value)
    assert json.dumps(made, ensure_ascii=False).encode()
    assert "?" in made["content"][0]["text"]


@pytest.mark.parametrize(
    "value",
    [
        "text",
        3,
        True,
        [1, 2],
        {"rows": 3},
        {"content": "a page"},
        {"content": [{"type": "paragraph"}]},
        {"content": [1]},
    ],
)
def test_any_other_value_becomes_structured_content_and_its_json(value: Any) -> None:
    made = shown(value)
    assert made["structuredContent"] == value
    assert made["content"][0]["type"] == "text"
    assert made["resultType"] == "complete"


def test_a_workflow_that_returns_nothing_has_a_result_without_content() -> None:
    assert shown(None) == {"content": [], "resultType": "complete"}


def test_a_declared_plain_result_stays_a_value_even_if_it_looks_like_a_call_tool_result() -> None:
    made = end("completed", result={"content": [TEXT]}, rules=OutcomeRules(plain_result=True))
    assert made.result is not None
    assert made.result["structuredContent"] == {"content": [TEXT]}


def test_no_result_can_claim_to_be_anything_but_complete() -> None:
    assert shown({"content": [], "resultType": "input_required"})["resultType"] == "complete"


def test_a_timeout_fails_the_task_and_says_so() -> None:
    made = end("timed_out")
    assert made.status == "failed"
    assert made.error == {"code": -32603, "message": made.status_message}


def test_a_termination_fails_the_task_and_names_its_reason() -> None:
    made = end("terminated", reason="cost too much")
    assert made.status == "failed"
    assert made.status_message == "The task was terminated: cost too much"
    assert made.error is not None
    assert made.error["code"] == -32603


def test_an_expired_task_failed_and_says_what_expired() -> None:
    made = failed(application(EXPIRED, "The task's lifetime is over"), cancel_requested=True)
    assert (made.status, made.status_message) == ("failed", "The task's lifetime is over")
    assert made.error == {"code": -32603, "message": "The task's lifetime is over"}


@pytest.mark.parametrize("extra", [{}, {"data": {"k": [1, None]}}, {"data": None}])
def test_a_json_rpc_error_survives_exactly(extra: dict[str, Any]) -> None:
    error = {"code": 4711, "message": "bad ✓", **extra}
    made = failed(application(JSONRPC_ERROR, "bad ✓", error), cancel_requested=True)
    assert (made.status, made.status_message, made.error) == ("failed", "bad ✓", error)


@pytest.mark.parametrize("code", [2**63, -(2**63) - 1, 10**400])
def test_an_integer_of_more_than_64_bits_is_no_code(code: int) -> None:
    made = failed(application(JSONRPC_ERROR, "m", {"code": code, "message": "m", "data": 1}))
    assert (made.status, made.error) == ("failed", {"code": -32603, "message": "m", "data": 1})


@pytest.mark.parametrize("code", [2**63 - 1, -(2**63), 0])
def test_any_code_of_64_bits_is_kept(code: int) -> None:
    error = {"code": code, "message": "m"}
    assert failed(application(JSONRPC_ERROR, "m", error)).error == error


@pytest.mark.parametrize("details", [(), ("no",), ({"code": "1", "message": "x"},), ({"code": True, "message": "x"},)])
def test_a_json_rpc_error_without_its_details_is_an_internal_error(details: tuple[Any, ...]) -> None:
    assert failed(application(JSONRPC_ERROR, "why", *details)).error == {"code": -32603, "message": "why"}


@pytest.mark.parametrize("cancel_requested", [False, True])
def test_a_tool_error_completes_the_task_with_the_authors_message_also_after_a_cancel(cancel_requested: bool) -> None:
    assert (
        error_text(failed(application(TOOL_ERROR, "no such user"), cancel_requested=cancel_requested)) == "no such user"
    )


def test_a_tool_error_may_bring_its_own_result() -> None:
    made = failed(application(TOOL_ERROR, "why", {"content": [TEXT], "isError": False}))
    assert made.result == {"content": [TEXT], "isError": True, "resultType": "complete"}


def test_a_bug_after_a_cancel_request_failed_while_stopping() -> None:
    made = failed(application("KeyError"), cancel_requested=True)
    assert (made.status, made.status_message) == ("failed", "The task failed while stopping")


@pytest.mark.parametrize(
    "origin",
    [
        application(TOOL_ERROR, "no table"),
        application("", "no table"),
        application("AcmeError", "no table"),
        application("Anything", "no table", non_retryable=True),
    ],
    ids=["contract type", "no type", "declared by the tool", "non-retryable"],
)
def test_an_activitys_declared_error_completes_the_task_with_its_message(origin: Failure) -> None:
    made = failed(activity(origin), rules=OutcomeRules(frozenset({"AcmeError"})))
    assert error_text(made) == "no table"


@pytest.mark.parametrize("cancel_requested", [False, True])
def test_an_error_of_the_workflow_itself_is_shown_if_its_type_is_declared(cancel_requested: bool) -> None:
    """For workflows that are not the kit's: the kit's own raise the contract's types."""
    failure, rules = application("AcmeError", "no table"), OutcomeRules(frozenset({"AcmeError"}))
    assert error_text(failed(failure, cancel_requested=cancel_requested, rules=rules)) == "no table"


def test_an_activitys_json_rpc_error_is_the_tasks() -> None:
    error = {"code": 1, "message": "m"}
    assert failed(activity(application(JSONRPC_ERROR, "m", error))).error == error


@pytest.mark.parametrize(
    "failure",
    [
        application("KeyError", "/srv/app.py"),
        application("", "/srv/app.py"),
        activity(application("ValueError", "/srv/app.py")),
        activity(Failure("other", message="/srv/app.py")),
        Failure("canceled", message="/srv/app.py"),
        Failure("other", message="/srv/app.py"),
    ],
    ids=[
        "exception",
        "untyped in the workflow",
        "exception in an activity",
        "timeout",
        "cancelled by nobody",
        "unknown",
    ],
)
def test_a_bug_completes_the_task_with_a_neutral_sentence_and_a_stable_reference(failure: Failure) -> None:
    made = failed(failure)
    assert made.reference is not None
    assert error_text(made) == f"The tool failed because of an internal error. Reference: {made.reference}"
    assert failed(failure) == made


def test_different_runs_have_different_references() -> None:
    closed = Closed("failed", AT, failure=Failure("other"))
    first, second = (
        outcome(closed, task_id="t", run_id=run, cancel_requested=False, rules=OutcomeRules()).reference for run in "ab"
    )
    assert first != second


def test_a_cancelled_run_is_a_cancelled_task() -> None:
    made = end("canceled")
    assert (made.status, made.result, made.error) == ("cancelled", None, None)


@pytest.mark.parametrize("type_", [TOOL_ERROR, EXPIRED, JSONRPC_ERROR])
def test_a_huge_message_is_cut_and_says_so(type_: str) -> None:
    huge = "x" * 3_000_000
    made = failed(application(type_, huge, {"code": 1, "message": huge}))
    text = made.status_message or error_text(made)
    assert text.startswith("xxx")
    assert "3000000" in text
    assert len(text) < MAX_MESSAGE_CHARS + 100


def test_a_terminal_task_lives_from_its_creation_to_the_end_of_retention() -> None:
    closed = Closed("completed", AT + timedelta(seconds=90))
    state = terminal("t", MEMO, closed, Outcome("completed", result={}), timedelta(hours=24))
    assert state.ttl_ms == (24 * 3600 + 90) * 1000
    assert state.last_updated_at == state.closed_at == closed.at


def test_a_terminal_task_that_closed_before_its_creation_keeps_its_times_in_order() -> None:
    closed = Closed("completed", AT - timedelta(hours=30))
    state = terminal("t", MEMO, closed, Outcome("completed", result={}), timedelta(hours=24))
    assert state.ttl_ms == 1
    assert state.last_updated_at == state.created_at


def view(**fields: Any) -> TaskView:
    return TaskView.model_validate({"status": "working", "changedAt": AT.isoformat(), **fields})


ASKS = {"status": "input_required", "inputRequests": {"a": {"method": "x"}, "b": {"method": "y"}}}


def test_a_live_task_shows_all_open_questions() -> None:
    state = live("t", MEMO, view(**ASKS))
    assert (state.status, set(state.input_requests or {})) == ("input_required", {"a", "b"})


@pytest.mark.parametrize(
    ("declared", "parked"),
    [(None, None), (1, 3), (1_000, 3_000), (20_000, 60_000), (30_000, 60_000), (90_000, 90_000)],
)
def test_a_task_that_waits_for_a_person_is_polled_less_often_but_at_least_once_a_minute_if_it_was(
    declared: int | None, parked: int | None
) -> None:
    memo = MEMO.model_copy(update={"poll_interval_ms": declared})
    assert live("t", memo, view(**ASKS)).poll_interval_ms == parked
    working = [
        live("t", memo, None),
        live("t", memo, view()),
        live("t", memo, view(status="input_required")),
        live("t", memo, view(**ASKS), without=["a", "b"]),
    ]
    assert {state.poll_interval_ms for state in working} == {declared}


@pytest.mark.parametrize("parked", [{}, ASKS])
def test_a_poll_interval_of_the_views_own_is_left_as_it_is(parked: dict[str, Any]) -> None:
    memo = MEMO.model_copy(update={"poll_interval_ms": 1_000})
    assert live("t", memo, view(**parked, pollIntervalMs=500)).poll_interval_ms == 500
    assert live("t", memo, view(**parked, pollIntervalMs=0)).poll_interval_ms == (3_000 if parked else 1_000)


def test_the_handle_of_a_call_that_was_sent_again_says_what_a_read_says() -> None:
    memo = MEMO.model_copy(update={"poll_interval_ms": 1_000})
    assert created_task("t", memo)["pollIntervalMs"] == 1_000
    state = live("t", memo, view(**ASKS))
    assert created_task("t", memo, state)["pollIntervalMs"] == detailed_task(state)["pollIntervalMs"] == 3_000


def test_a_task_whose_questions_are_all_answered_is_working() -> None:
    state = live("t", MEMO, view(**ASKS), without=["a", "b"])
    assert (state.status, state.input_requests) == ("working", None)


def test_a_view_that_asks_for_input_without_a_question_is_working() -> None:
    assert live("t", MEMO, view(status="input_required")).status == "working"


def test_a_heartbeat_is_the_status_message_of_a_working_task_and_its_newest_progress() -> None:
    state = live("t", MEMO, view(statusMessage="old"), heartbeat=Progress(progress=3, total=10, message="rows"))
    assert (state.status_message, state.progress[-1].progress) == ("3/10 rows", 3)


def test_a_question_keeps_its_own_status_message_beside_a_heartbeat() -> None:
    state = live("t", MEMO, view(**ASKS, statusMessage="approve?"), heartbeat=Progress(progress=3))
    assert state.status_message == "approve?"


def test_a_time_without_an_offset_means_utc_and_nothing_is_updated_before_it_was_created() -> None:
    assert live("t", MEMO, view(changedAt="2026-07-28T10:30:05")).last_updated_at == AT + timedelta(seconds=5)
    assert live("t", MEMO, view(changedAt="2020-01-01T00:00:00Z")).last_updated_at == AT


def test_an_unlimited_task_has_no_ttl_and_a_limited_one_its_lifetime() -> None:
    assert live("t", MEMO, None).ttl_ms is None
    assert live("t", MEMO.model_copy(update={"lifetime_ms": 5}), None).ttl_ms == 5
