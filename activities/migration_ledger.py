"""The ledger of a migration, in its target: what became of each record, written in the transaction that did it."""

from __future__ import annotations

import sqlite3
from typing import Final, Literal

from workflows.migrate_records import Key, Tally

Outcome = Literal["moved", "skipped", "already_there", "refused"]

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS mcp_migration_ledger (
    task TEXT NOT NULL,      -- the task that decided
    source TEXT NOT NULL,    -- the identity of the source's table
    record NOT NULL,         -- the record's key in the source
    digest TEXT NOT NULL,    -- its content there
    outcome TEXT NOT NULL,
    owner,                   -- the owner it was linked to
    arrived_as,              -- its row in the target
    cleared INTEGER NOT NULL,-- 0 while the record may still be in the source
    PRIMARY KEY (task, record)
) WITHOUT ROWID"""
_INDEX: Final = (
    "CREATE INDEX IF NOT EXISTS mcp_migration_uncleared ON mcp_migration_ledger (source, record) WHERE cleared = 0"
)


class Ledger:
    """One task's view of the ledger, for one table of one source. Its callers hold the transactions."""

    def __init__(self, target: sqlite3.Connection, *, source_id: str, task: str) -> None:
        """Nothing is read or made yet; see `make`."""
        self._target = target
        self._source_id = source_id
        self._task = task

    def make(self) -> None:
        """Make the ledger's table if there is none."""
        self._target.execute(_TABLE)
        self._target.execute(_INDEX)

    def uncleared(self) -> list[Key]:
        """The records of this source's table that have arrived and may not have left yet, of any task."""
        rows = self._target.execute(
            "SELECT record FROM mcp_migration_ledger WHERE source = ? AND cleared = 0", (self._source_id,)
        ).fetchall()
        return [record for (record,) in rows]

    def mine(self, record: Key) -> tuple[str, bool] | None:
        """This task's decision on a record: its digest then, and whether it is cleared."""
        row = self._target.execute(
            "SELECT digest, cleared FROM mcp_migration_ledger WHERE task = ? AND record = ?", (self._task, record)
        ).fetchone()
        return None if row is None else (row[0], bool(row[1]))

    def arrived(self, record: Key) -> str | None:
        """The digest with which any task brought a record that may still be in the source."""
        row = self._target.execute(
            "SELECT digest FROM mcp_migration_ledger WHERE source = ? AND record = ? AND cleared = 0",
            (self._source_id, record),
        ).fetchone()
        return None if row is None else str(row[0])

    def note(
        self,
        record: Key,
        digest: str,
        outcome: Outcome,
        *,
        owner: Key | None = None,
        arrived_as: Key | None = None,
        cleared: bool = True,
    ) -> None:
        """Write down this task's decision on a record."""
        self._target.execute(
            "INSERT INTO mcp_migration_ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (self._task, self._source_id, record, digest, outcome, owner, arrived_as, int(cleared)),
        )

    def clear(self, records: list[Key]) -> None:
        """Note that these records have left the source: from now on their keys mean other records."""
        self._target.executemany(
            "UPDATE mcp_migration_ledger SET cleared = 1 WHERE source = ? AND record = ? AND cleared = 0",
            [(self._source_id, record) for record in records],
        )

    def tally(self) -> Tally:
        """This task's decisions, counted."""
        counts: dict[str, int] = dict.fromkeys(("moved", "skipped", "already_there", "refused"), 0)
        counts |= self._target.execute(
            "SELECT outcome, COUNT(*) FROM mcp_migration_ledger WHERE task = ? GROUP BY outcome", (self._task,)
        ).fetchall()
        (unlinked,) = self._target.execute(
            "SELECT COUNT(*) FROM mcp_migration_ledger WHERE task = ? AND outcome = 'moved' AND owner IS NULL",
            (self._task,),
        ).fetchone()
        return Tally(unlinked=unlinked, **counts)
