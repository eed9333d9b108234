"""Kills migrations with SIGKILL and checks that every record arrived exactly once; run as a process of its own,
which can fork.

`statements FOLDER JOURNAL RESTART FIRST STEP`: before the FIRST SQL statement of a migration and every STEP-th after
it, each time anew, and goes on as RESTART (the `same` task or `another`). `moments FOLDER`: a larger one at random
moments, until it ends.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from activities.migration_store import open_store
from tests.activities.migration_data import CONTACTS, SOURCE, TARGET, arrived, left, make_databases, migration, query
from workflows.migrate_records import Decision, Key, Tally


def migrate(folder: Path, task: str, **changes: Any) -> Tally:
    """What the workflow does, from the beginning: Cyd belongs to the second account offered, Fay stays."""
    arguments = migration(**changes)
    after: Key | None = None
    while True:
        with open_store(folder, arguments, task=task) as store:
            batch = store.move_batch(after, most_ambiguous=5)
        decisions = [
            Decision(record=asked.record, digest=asked.digest, owner=31 if "cyd" in asked.label else None)
            for asked in batch.ambiguous
        ]
        with open_store(folder, arguments, task=task) as store:
            store.settle(decisions)
            after = batch.after
            if batch.finished:
                return store.tally()


def in_child(work: Callable[[], object]) -> int:
    """Fork, do `work` in the child; its process id."""
    if pid := os.fork():
        return pid
    work()
    os._exit(0)


def killed(pid: int) -> bool:
    """Whether the child was killed; fails if it broke otherwise."""
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in {0, -signal.SIGKILL}, status
    return status != 0


def die_before(statement: int) -> None:
    """From now on, SIGKILL this process before its `statement`-th SQL statement."""
    seen = Counter[str]()
    connect = sqlite3.connect

    def count(_sql: str) -> None:
        seen["statements"] += 1
        if seen["statements"] == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)
        connection.set_trace_callback(count)
        return connection

    sqlite3.connect = counted  # type: ignore[assignment]


def check_whole(folder: Path, copies: int = 1) -> None:
    """No record is lost or twice, at any time; one that has arrived may not have left yet."""
    everybody = Counter(
        query(folder / SOURCE, "SELECT email FROM contacts")
        + query(folder / TARGET, "SELECT email FROM contacts WHERE name <> 'Eva'")
    )
    in_target = query(folder / TARGET, "SELECT email FROM contacts")
    assert len(everybody) == copies * len(CONTACTS), everybody
    assert len(in_target) == len(set(in_target))


def check_finished(folder: Path) -> None:
    assert left(folder) == ["Eve", "Fay"], left(folder)
    assert arrived(folder) == [("Ada", 10), ("Bob", 20), ("Cyd", 31), ("Dan", None), ("Gil", 10)], arrived(folder)
    assert query(folder / TARGET, "SELECT COUNT(*) FROM mcp_migration_ledger WHERE cleared = 0") == [0]


def statements(folder: Path, journal: str, restart: str, first: str, step: str) -> int:
    """Returns the last point at which it was killed, or could have been."""
    for point in range(int(first), 1000, int(step)):
        case = folder / str(point)
        case.mkdir()
        make_databases(case, journal=journal)

        def dying(case: Path = case, point: int = point) -> None:
            die_before(point)
            migrate(case, "first")

        was_killed = killed(in_child(dying))
        check_whole(case)
        tally = migrate(case, "first" if restart == "same" else "second")
        check_finished(case)
        if restart == "same":
            assert tally == Tally(moved=5, unlinked=1, skipped=1, already_there=0, refused=1), (point, tally)
        if not was_killed:
            return point - int(step)
    raise AssertionError("the migration does not end")


def moments(folder: Path) -> int:
    """Returns how often it was killed."""
    chance, kills, copies = random.Random(7), 0, 40  # noqa: S311 - a repeatable choice
    make_databases(folder, copies=copies)
    while True:
        pid = in_child(lambda: migrate(folder, "first", batch_size=4))
        time.sleep(chance.uniform(0.001, 0.04 + 0.02 * kills))
        os.kill(pid, signal.SIGKILL)
        if not killed(pid):
            break
        kills += 1
        check_whole(folder, copies)
    check_whole(folder, copies)
    assert len(left(folder)) == copies + 1  # each Fay, and the first Eve
    assert len(arrived(folder)) == 6 * copies - 1
    return kills


if __name__ == "__main__":
    mode, folder, *options = sys.argv[1:]
    sys.stdout.write(str(statements(Path(folder), *options) if mode == "statements" else moments(Path(folder))))
