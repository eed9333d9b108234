"""Exactly once, under SIGKILL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def crash_points(*arguments: str) -> int:
    command = [sys.executable, "-m", "tests.activities.crash_points", *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)  # noqa: S603
    assert run.returncode == 0, run.stderr
    return int(run.stdout)


@pytest.mark.parametrize(
    ("journal", "restart"),
    [
        ("delete", "same"),
        ("wal", "another"),
        pytest.param("delete", "another", marks=pytest.mark.full),
        pytest.param("wal", "same", marks=pytest.mark.full),
    ],
)
def test_killed_before_any_statement_every_record_arrives_exactly_once(
    tmp_path: Path, journal: str, restart: str
) -> None:
    assert crash_points("statements", str(tmp_path), journal, restart) > 50


def test_killed_at_random_moments_every_record_arrives_exactly_once(tmp_path: Path) -> None:
    assert crash_points("moments", str(tmp_path)) > 3
