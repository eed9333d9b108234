"""Exactly once, under SIGKILL."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

ROOT = Path(__file__).parents[2]

MEMORY = Path("/dev/shm")  # noqa: S108 - only a place for a folder of our own

STATEMENTS = 200
"""A migration has more, each of which is a place to die."""

CASES = [("delete", "same"), ("delete", "another"), ("wal", "same"), ("wal", "another")]


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory if there is such a place: what a killed process wrote is there with or without a disk, but faster."""
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        yield Path(name).resolve()


def crash_points(*arguments: str) -> int:
    command = [sys.executable, "-m", "tests.activities.crash_points", *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)  # noqa: S603
    assert run.returncode == 0, run.stderr
    return int(run.stdout)


@pytest.mark.parametrize(("first", "case"), [*enumerate(CASES, start=1)])
def test_killed_before_every_fourth_statement_every_record_arrives_exactly_once(
    folder: Path, first: int, case: tuple[str, str]
) -> None:
    """The cases start one statement apart, so that together they die before each."""
    assert crash_points("statements", str(folder), *case, str(first), str(len(CASES))) > STATEMENTS


@pytest.mark.full
@pytest.mark.parametrize("case", CASES)
def test_killed_before_any_statement_every_record_arrives_exactly_once(folder: Path, case: tuple[str, str]) -> None:
    assert crash_points("statements", str(folder), *case, "1", "1") > STATEMENTS


def test_killed_at_random_moments_every_record_arrives_exactly_once(tmp_path: Path) -> None:
    assert crash_points("moments", str(tmp_path)) > 3
