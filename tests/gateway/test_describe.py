"""What of a workflow's view is shown."""

from __future__ import annotations

import functools
import logging
from typing import Any, cast

import pytest
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter

from bridge.describe import described, parsed_view
from bridge.payloads import PARSED_BYTES, Payloads, nothing_parsed
from workflows.kit.contract import TASK_MEMO, VIEW_MEMO


def asked(prop: dict[str, Any], **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"a": prop}, **more}
    return {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": schema}}


FORM = asked({"type": "string"})
VIEW = {"v": 1, "status": "input_required", "changedAt": "2026-11-29T10:00:00Z"}


def test_a_question_that_nobody_could_answer_is_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    requests = {"good": FORM, "bad": {"method": "elicitation/create", "params": {"message": "?"}}}
    with caplog.at_level(logging.WARNING):
        view = parsed_view({**VIEW, "inputRequests": requests}, "task-1")
    assert view is not None
    assert view.input_requests == {"good": FORM}
    assert [record.message for record in caplog.records] == ["question.unusable"]


SAMPLING: dict[str, Any] = {"method": "sampling/createMessage", "params": {"messages": [5, None], "maxTokens": 5}}
NESTED: Any = functools.reduce(lambda inner, _: [inner], range(300), cast("Any", "x"))


@pytest.mark.parametrize(
    "request_",
    [
        SAMPLING,
        asked({"type": "string"}, **{"$schema": 5}),
        asked({"type": "string", "default": NESTED}),
    ],
    ids=["messages", "dialect", "too deep to write"],
)
def test_a_question_that_would_cost_a_waiting_caller_the_answer_is_left_out(
    request_: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    view = parsed_view({**VIEW, "inputRequests": {"good": FORM, "bad": request_}}, "task-1")
    assert view is not None
    assert view.input_requests == {"good": FORM}
    assert [record.message for record in caplog.records] == ["question.unusable"]


NO_TIMES = ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "soon", None, 10**30]


@pytest.mark.parametrize("changed_at", NO_TIMES, ids=str)
def test_a_view_of_a_time_that_utc_does_not_know_is_none(changed_at: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert parsed_view({**VIEW, "changedAt": changed_at}, "task-1") is None
    assert [record.message for record in caplog.records] == ["view.unreadable"]


@pytest.mark.parametrize("changed_at", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59+23:59", "2026-11-29T10:00:00"])
def test_a_view_of_any_other_time_is_one(changed_at: str) -> None:
    assert parsed_view({**VIEW, "changedAt": changed_at}, "task-1") is not None


MEMO = {
    "tool": "tool",
    "owner": {"issuer": "local", "subject": "me"},
    "argumentsDigest": "0",
    "createdAt": "2026-11-29T10:00:00Z",
    "era": "2026-07-28",
    "clientCapabilities": {},
    "delivery": "task",
}


async def test_what_was_made_of_a_payload_is_made_once_for_a_task() -> None:
    parsed = nothing_parsed()
    made: list[tuple[Any, str]] = []

    def parse(value: Any, task_id: str) -> object:
        made.append((value, task_id))
        return object()

    one, two = (Payloads(pydantic_data_converter, "default", task_id, parsed) for task_id in ("one", "two"))
    (payload,), (other,) = (pydantic_data_converter.payload_converter.to_payloads([value]) for value in ("a", "b"))
    first = await one.parsed(payload, parse)
    assert await one.parsed(payload, parse) is first
    await two.parsed(payload, parse)
    await one.parsed(other, parse)
    assert made == [("a", "one"), ("a", "two"), ("b", "one")]


async def test_what_was_made_of_payloads_is_bounded_by_bytes() -> None:
    parsed = nothing_parsed()
    payloads = Payloads(pydantic_data_converter, "default", "task", parsed)
    for number in range(20):
        (payload,) = pydantic_data_converter.payload_converter.to_payloads([f"{number}" * 200_000])
        await payloads.parsed(payload, lambda value, _task_id: value)
    (huge,) = pydantic_data_converter.payload_converter.to_payloads(["x" * PARSED_BYTES])
    await payloads.parsed(huge, lambda value, _task_id: value)
    assert 0 < parsed.currsize <= PARSED_BYTES


async def test_memos_of_times_that_utc_does_not_know_are_none(caplog: pytest.LogCaptureFixture) -> None:
    converter = DataConverter.default
    response = DescribeWorkflowExecutionResponse()
    payloads = Payloads(converter, "default", "task-1", nothing_parsed())

    async def read(memo: dict[str, Any], view: dict[str, Any]) -> tuple[bool, bool]:
        for name, value in ((TASK_MEMO, memo), (VIEW_MEMO, view)):
            (payload,) = converter.payload_converter.to_payloads([value])
            response.workflow_execution_info.memo.fields[name].CopyFrom(payload)
        run = await described(response, payloads, "task-1")
        return run.memo is not None, run.snapshot is not None

    assert await read(MEMO, VIEW) == (True, True)
    assert caplog.records == []
    assert await read({**MEMO, "createdAt": NO_TIMES[0]}, {**VIEW, "changedAt": NO_TIMES[1]}) == (False, False)
    assert [record.message for record in caplog.records] == ["memo.unreadable", "view.unreadable"]
