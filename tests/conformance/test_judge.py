"""What the runner takes for a pass: what the suite's exit status would let through is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.run import WIRE, Checks, judge, saved_in
from tests.conformance.scenarios import MODERN, OLDER, SCENARIOS, Scenario

SCENARIO = Scenario("some", 2, may_skip=frozenset({"allowed"}))
LEFT = Scenario("other", 2, left_out="a reason")


def checks(*rows: tuple[str, str]) -> Checks:
    return [{"id": name, "status": status, "description": name} for name, status in rows]


@pytest.mark.parametrize(
    "rows",
    [
        [("a", "SUCCESS"), ("b", "SUCCESS")],
        [("a", "SUCCESS"), ("allowed", "SKIPPED")],
        [("a", "SUCCESS"), ("b", "INFO")],
    ],
    ids=str,
)
def test_a_scenario_whose_rows_are_all_there_and_succeeded_passes(rows: list[tuple[str, str]]) -> None:
    outcome = judge(SCENARIO, checks(*rows))
    assert outcome.problems == ()
    assert outcome.line().startswith("pass  some ")


@pytest.mark.parametrize(
    "rows",
    [
        [("a", "SUCCESS"), ("b", "FAILURE")],
        [("a", "SUCCESS"), ("b", "WARNING")],
        [("a", "SUCCESS"), ("b", "SKIPPED")],
        [("a", "SUCCESS")],
        [],
    ],
    ids=str,
)
def test_a_failure_a_warning_an_unexpected_skip_and_a_missing_row_fail(rows: list[tuple[str, str]]) -> None:
    outcome = judge(SCENARIO, checks(*rows))
    assert len(outcome.problems) == 1
    assert outcome.line().startswith("fail  some ")


def test_a_scenario_that_saved_nothing_fails() -> None:
    assert judge(SCENARIO, None).problems == ("it did not report",)


def test_a_scenario_that_is_left_out_and_fails_is_no_problem() -> None:
    outcome = judge(LEFT, checks(("a", "FAILURE"), (WIRE, "SUCCESS")))
    assert outcome.problems == ()
    assert outcome.line().startswith("left  other ")


def test_a_scenario_that_is_left_out_and_succeeds_fails() -> None:
    assert len(judge(LEFT, checks(("a", "SUCCESS"), (WIRE, "SUCCESS"))).problems) == 1


def test_what_was_saved_is_found_by_the_name_of_its_scenario(tmp_path: Path) -> None:
    folder = tmp_path / "server-json-schema-2020-12-2026-11-29T19-51-38-787Z"
    folder.mkdir()
    (folder / "checks.json").write_text("[]", "utf-8")
    (tmp_path / "server-that-threw-2026-11-29T19-51-38-787Z").mkdir()
    assert saved_in(tmp_path) == {"json-schema-2020-12": []}


def test_no_scenario_is_listed_twice_for_a_revision() -> None:
    for revision in (MODERN, OLDER):
        names = [scenario.name for scenario in SCENARIOS if scenario.revision == revision]
        assert len(names) == len(set(names))
