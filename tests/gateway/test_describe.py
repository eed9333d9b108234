"""What of a workflow's view is shown."""

from __future__ import annotations

import logging

import pytest

from bridge.describe import parsed_view

FORM = {
    "method": "elicitation/create",
    "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
}
VIEW = {"v": 1, "status": "input_required", "changedAt": "2026-11-29T10:00:00Z"}


def test_a_question_that_nobody_could_answer_is_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    asked = {"good": FORM, "bad": {"method": "elicitation/create", "params": {"message": "?"}}}
    with caplog.at_level(logging.WARNING):
        view = parsed_view({**VIEW, "inputRequests": asked}, "task-1")
    assert view is not None
    assert view.input_requests == {"good": FORM}
    assert [record.message for record in caplog.records] == ["question.unusable"]
