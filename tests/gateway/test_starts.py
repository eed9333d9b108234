"""How long Temporal itself lets a run live."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bridge.catalog import Tool
from bridge.starts import UNWINDING_MARGIN, execution_timeout
from workflows.kit.contract import Principal, TaskMemo

MINUTE = 60_000


def timeout(*, foreign: bool, lifetime: int | None, window: int | None) -> timedelta | None:
    tool = Tool(
        name="t",
        workflow_type="t",
        queue="q",
        description="",
        annotations={},
        task="optional",
        poll_interval=timedelta(seconds=1),
        client_capabilities={},
        input_schema={"type": "object"},
        foreign=foreign,
    )
    memo = TaskMemo(
        tool="t",
        owner=Principal(issuer="i", subject="s"),
        arguments_digest="",
        created_at=datetime.now(UTC),
        era="2026-07-28",
        client_capabilities={},
        delivery="task" if window is None else "result",
        lifetime_ms=lifetime,
        answer_window_ms=window,
    )
    return execution_timeout(tool, memo)


@pytest.mark.parametrize("window", [None, MINUTE])
def test_the_kit_keeps_its_time_and_temporal_is_the_backstop(window: int | None) -> None:
    assert timeout(foreign=False, lifetime=None, window=window) is None
    assert timeout(foreign=False, lifetime=2 * MINUTE, window=window) == timedelta(minutes=2) + UNWINDING_MARGIN


@pytest.mark.parametrize(
    ("lifetime", "window", "expected"),
    [
        (None, None, None),
        (2 * MINUTE, None, timedelta(minutes=2)),
        (2 * MINUTE, MINUTE, timedelta(minutes=1)),
        (MINUTE, 2 * MINUTE, timedelta(minutes=1)),
        (None, MINUTE, timedelta(minutes=1)),
    ],
)
def test_of_a_workflow_of_others_temporal_keeps_the_time(
    lifetime: int | None, window: int | None, expected: timedelta | None
) -> None:
    assert timeout(foreign=True, lifetime=lifetime, window=window) == expected
