"""The two databases of a migration, and the order of commits that makes every record arrive exactly once.

A batch holds the write locks of both databases, and then

1. commits in the target: the records and, in the same transaction, one ledger row each, not yet `cleared`;
2. commits in the source: the records are gone there;
3. commits in the target: the ledger rows are `cleared`.

Killed before 1, nothing happened. Killed between 1 and 2, the ledger knows that a record still in the source has
arrived; it is only removed. Killed between 2 and 3, the record is no longer in the source, so its ledger row is
cleared at the next start. Hence a key that the source uses again later is a new record: only rows that are not
cleared speak of what is in the source now.

Holds in every journal mode, also where a commit over two attached databases would not be atomic (write-ahead logs).
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import uuid4

from workflows.kit.errors import ToolError
from workflows.migrate_records import Ambiguous, Decision, Key, MigrateArgs, Tally

from .folders import inside
from .migration_ledger import Ledger
from .migration_owners import Owners
from .migration_schema import Shape, connect, locked, quoted, shape_of, table_name

_IDENTITY: Final = "CREATE TABLE IF NOT EXISTS mcp_migration_identity (id TEXT NOT NULL)"


@dataclass
class Batch:
    """What one transaction did: the last key it looked at, how many records, and those to ask about."""

    after: Key | None
    seen: int = 0
    ambiguous: list[Ambiguous] = field(default_factory=list)
    finished: bool = False


class MigrationStore:
    """The batches of one task; every method runs in one thread and may be killed anywhere. Made by `open_store`."""

    def __init__(
        self,
        source: sqlite3.Connection,
        target: sqlite3.Connection,
        *,
        migration: MigrateArgs,
        shape: Shape,
        ledger: Ledger,
    ) -> None:
        """Work on two open connections; see `open_store`."""
        self._source = source
        self._target = target
        self._migration = migration
        self._shape = shape
        self._ledger = ledger
        self._owners = Owners(target, migration, shape)
        self._table = quoted(migration.table)
        self._key = quoted(shape.key)

    def prepare(self) -> None:
        """Make the ledger, and clear what an earlier, broken batch left uncleared after its record was gone."""
        with locked(self._source), locked(self._target):
            self._ledger.make()
            self._ledger.clear([record for record in self._ledger.uncleared() if self._read(record) is None])

    def count(self) -> int:
        """How many records the source has."""
        (count,) = self._source.execute(f"SELECT COUNT(*) FROM {self._table}").fetchone()  # noqa: S608 - quoted
        return int(count)

    def move_batch(self, after: Key | None, *, most_ambiguous: int) -> Batch:
        """Move the records that follow the key `after`, up to a batch of them or `most_ambiguous` that must be
        asked about."""
        batch = Batch(after=after)
        with self._both() as gone:
            rows = self._following(after)
            for key, *values in rows:
                if len(batch.ambiguous) == most_ambiguous:
                    break
                batch.after, batch.seen = key, batch.seen + 1
                row = tuple(values)
                if self._decided(key, row, gone):
                    continue
                owners = self._owners.of(row)
                if len(owners) > 1:
                    batch.ambiguous.append(self._owners.question(key, row, owners, digest_of(row)))
                else:
                    self._deliver(key, row, owners[0].key if owners else None, gone)
            batch.finished = batch.seen == len(rows) < self._migration.batch_size
        return batch

    def settle(self, decisions: list[Decision]) -> None:
        """Carry out what people decided, in one transaction."""
        with self._both() as gone:
            for decision in decisions:
                row = self._read(decision.record)
                if row is None or self._decided(decision.record, row, gone):
                    continue  # carried out by an attempt before this one, or moved by another task meanwhile
                if decision.owner is None:
                    self._ledger.note(decision.record, decision.digest, "skipped")
                elif digest_of(row) != decision.digest or not self._owners.exists(decision.owner):
                    self._ledger.note(decision.record, digest_of(row), "refused")
                else:
                    self._deliver(decision.record, row, decision.owner, gone)

    def tally(self) -> Tally:
        """This task's ledger, counted."""
        return self._ledger.tally()

    @contextmanager
    def _both(self) -> Iterator[list[Key]]:
        """Steps 1 to 3 around the body, which collects the keys that it removed from the source."""
        gone: list[Key] = []
        with locked(self._source):
            with locked(self._target):
                yield gone
        if gone:
            with locked(self._target):
                self._ledger.clear(gone)

    def _following(self, after: Key | None) -> list[tuple[Key, ...]]:
        columns = ", ".join(map(quoted, (self._shape.key, *self._shape.columns)))
        where = "" if after is None else f"WHERE {self._key} > :after"
        return self._source.execute(
            f"SELECT {columns} FROM {self._table} {where} ORDER BY {self._key} LIMIT :limit",  # noqa: S608 - quoted
            {"after": after, "limit": self._migration.batch_size},
        ).fetchall()

    def _read(self, key: Key) -> tuple[object, ...] | None:
        columns = ", ".join(map(quoted, self._shape.columns)) or "1"
        row: tuple[object, ...] | None = self._source.execute(
            f"SELECT {columns} FROM {self._table} WHERE {self._key} = ?",  # noqa: S608 - quoted
            (key,),
        ).fetchone()
        return row

    def _decided(self, key: Key, row: tuple[object, ...], gone: list[Key]) -> bool:
        """Whether the ledger has this record already; one that has arrived is removed from the source."""
        digest = digest_of(row)
        mine = self._ledger.mine(key)
        if mine is not None:
            if mine == (digest, False):
                self._remove(key, gone)
            return True
        arrived = self._ledger.arrived(key)
        if arrived is None:
            return False
        if arrived == digest:
            self._ledger.note(key, digest, "already_there")
            self._remove(key, gone)
        else:  # changed in the source after it had arrived: only a person can tell which is right
            self._ledger.note(key, digest, "refused")
        return True

    def _deliver(self, key: Key, row: tuple[object, ...], owner: Key | None, gone: list[Key]) -> None:
        """Put one record into the target and take it out of the source; one that the target's rules refuse stays."""
        arrived_as = self._insert(key, row, owner)
        if arrived_as is None:
            self._ledger.note(key, digest_of(row), "refused")
            return
        self._ledger.note(key, digest_of(row), "moved", owner=owner, arrived_as=arrived_as, cleared=False)
        self._remove(key, gone)

    def _insert(self, key: Key, row: tuple[object, ...], owner: Key | None) -> Key | None:
        """Insert a record into the target; its row there, or None if it did not come to be, and then nothing did.

        Raises:
            ToolError: A rule of the target took back the whole batch.
        """
        names = [*self._shape.columns, self._migration.link_column]
        values: list[object] = [*row, owner]
        if self._shape.keeps_key:
            names.append(self._shape.key)
            values.append(key)
        columns, marks = ", ".join(map(quoted, names)), ", ".join("?" * len(names))
        # OR ABORT outranks a table's own ON CONFLICT, which may drop the record or replace another
        insert = f"INSERT OR ABORT INTO {self._table} ({columns}) VALUES ({marks})"  # noqa: S608 - quoted
        self._target.execute("SAVEPOINT arrival")
        try:
            inserted = self._target.execute(insert, values)
            arrived_as = key if self._shape.keeps_key else inserted.lastrowid
            if inserted.rowcount != 1 or not self._has_arrived(arrived_as):  # a trigger may drop it without an error
                arrived_as = None
        except sqlite3.IntegrityError:
            arrived_as = None
        if not self._target.in_transaction:  # RAISE(ROLLBACK); what came before in this batch is gone too
            raise ToolError(f"The target does not let the record {key} in; its batch was not moved.")
        if arrived_as is None:
            self._target.execute("ROLLBACK TO arrival")  # also what triggers did with it
        self._target.execute("RELEASE arrival")
        return arrived_as

    def _has_arrived(self, arrived_as: Key | None) -> bool:
        column = self._key if self._shape.keeps_key else "_rowid_"
        found = self._target.execute(f"SELECT 1 FROM {self._table} WHERE {column} = ?", (arrived_as,))  # noqa: S608
        return found.fetchone() is not None

    def _remove(self, key: Key, gone: list[Key]) -> None:
        """Take a record that has arrived out of the source.

        Raises:
            ToolError: It is still there, by a rule of the source. The batch is taken back.
        """
        try:
            deleted = self._source.execute(f"DELETE FROM {self._table} WHERE {self._key} = ?", (key,))  # noqa: S608
            removed = deleted.rowcount == 1 and self._read(key) is None
        except sqlite3.IntegrityError:
            removed = False
        if not removed:
            raise ToolError(f"The source does not let go of the record {key}; this batch was not moved.")
        gone.append(key)


@contextmanager
def open_store(root: Path, migration: MigrateArgs, *, task: str) -> Iterator[MigrationStore]:
    """The store of `task`, checked and ready.

    Raises:
        ToolError: The databases are not below `root`, are the same, or do not fit together.
    """
    paths = [inside(root, name, of=what) for name, what in ((migration.source, "source"), (migration.target, "target"))]
    for path, name in zip(paths, (migration.source, migration.target), strict=True):
        if not path.is_file():
            raise ToolError(f"There is no database {name}.")
    if paths[0].samefile(paths[1]):
        raise ToolError("The source and the target are the same database.")
    with connect(paths[0]) as source, connect(paths[1]) as target:
        shape = shape_of(source, target, migration)
        ledger = Ledger(target, source_id=_identity(source, migration.table), task=task)
        store = MigrationStore(source, target, migration=migration, shape=shape, ledger=ledger)
        store.prepare()
        yield store


def _identity(source: sqlite3.Connection, table: str) -> str:
    """The identity of the source's table: the file's own, made once, and the table's name.

    It goes where the file goes, so a new export is never taken for an old one, nor one table for another.
    """
    with locked(source):
        source.execute(_IDENTITY)
        row = source.execute("SELECT id FROM mcp_migration_identity").fetchone()
        if row is None:
            row = (uuid4().hex,)
            source.execute("INSERT INTO mcp_migration_identity VALUES (?)", row)
        return f"{row[0]} {table_name(source, table)}"


def digest_of(row: tuple[object, ...]) -> str:
    """A digest of a record's content: equal exactly if the values and their SQLite types are."""
    return hashlib.sha256(repr(tuple(row)).encode("utf-8", "surrogatepass")).hexdigest()
