"""Which input requests can be asked, whoever wrote the workflow."""

from __future__ import annotations

from typing import Any

import pytest

from workflows.kit.questions import request_problem

PARAMS: dict[str, Any] = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
FORM = {"method": "elicitation/create", "params": PARAMS}


@pytest.mark.parametrize(
    "request_",
    [
        None,
        "x",
        {},
        {"method": "elicitation/create"},
        {"method": "elicitation/create", "params": None},
        {"method": "elicitation/create", "params": {"message": "?"}},
        {"method": "elicitation/create", "params": {**PARAMS, "requestedSchema": {"type": "object"}}},
        {
            "method": "elicitation/create",
            "params": {
                "message": "?",
                "requestedSchema": {"type": "object", "properties": {"a": {"type": "array"}}},
            },
        },
        {
            "method": "elicitation/create",
            "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}, "required": 7}},
        },
        {"method": "tools/call", "params": {}},
    ],
)
def test_a_request_that_could_not_be_answered_is_known(request_: object) -> None:
    assert request_problem(request_) is not None


def test_a_request_that_can_be_answered_has_no_problem() -> None:
    assert request_problem(FORM) is None
    assert request_problem({"method": "roots/list"}) is None
