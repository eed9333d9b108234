"""Whether two databases fit together for a migration, checked once before anything is moved, and connections to them.

Whatever cannot work is a `ToolError` that names the table or column; later steps rely on the `Shape` found here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from workflows.kit.errors import ToolError
from workflows.migrate_records import MigrateArgs

LOCK_SECONDS: Final = 5.0
"""How long a statement waits for another writer before the step is tried again."""

_TRANSIENT: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL})


@dataclass(frozen=True)
class Shape:
    """How the tables look: the moved table's key and its other columns, and the owner table's key.

    `keeps_key`: the target does not number its rows itself, so a record keeps its key there.
    """

    key: str
    columns: tuple[str, ...]
    keeps_key: bool
    owner_key: str


@dataclass(frozen=True)
class _Column:
    name: str
    type: str
    is_key: bool


@contextmanager
def connect(path: Path) -> Iterator[sqlite3.Connection]:
    """An existing database, in autocommit mode, with commits that survive a loss of power."""
    with closing(
        sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=LOCK_SECONDS, isolation_level=None)
    ) as connection:
        # Step 2 destroys what step 1 wrote elsewhere, so that must be on the disk: EXTRA syncs the removed journal too
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA foreign_keys = ON")
        yield connection


@contextmanager
def locked(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that has the write lock from its start."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # SQLite ends it itself when a disk is full
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@contextmanager
def told() -> Iterator[None]:
    """Tell the model what is wrong with a database; what may pass by itself (a lock, a full disk) is raised as it
    is, for a retry.

    Raises:
        ToolError: The database cannot be used.
    """
    try:
        yield
    except sqlite3.Error as error:
        if (
            getattr(error, "sqlite_errorcode", 0) & 0xFF in _TRANSIENT
        ):  # extended codes keep the primary one in the low byte
            raise
        raise ToolError(f"The migration cannot go on: {error}.") from error


def shape_of(source: sqlite3.Connection, target: sqlite3.Connection, migration: MigrateArgs) -> Shape:
    """The shape of both databases, if they fit.

    Raises:
        ToolError: They do not; the message names what is missing.
    """
    columns = _columns(source, migration.table, "source")
    key = _single_key(columns, migration.table, "source")
    others = tuple(column.name for column in columns if not column.is_key)
    _require(migration.match_column, others, migration.table, "source")
    _check_keys(source, migration.table, key)
    _check_unreferenced(source, migration.table)

    arriving = _columns(target, migration.table, "target")
    arriving_key = _single_key(arriving, migration.table, "target")
    keeps_key = all(column.type.upper() != "INTEGER" for column in arriving if column.name == arriving_key)
    for name in (*others, migration.link_column, *((key,) if keeps_key else ())):
        _require(name, [column.name for column in arriving], migration.table, "target")
    if migration.link_column in others:
        raise ToolError(f"The source has a column {migration.link_column} already, which is to hold the owner.")

    owners = _columns(target, migration.owner_table, "target")
    for name in (migration.owner_match, migration.owner_label):
        _require(name, [column.name for column in owners], migration.owner_table, "target")
    owner_key = _single_key(owners, migration.owner_table, "target")
    return Shape(key=key, columns=others, keeps_key=keeps_key, owner_key=owner_key)


def table_name(connection: sqlite3.Connection, table: str) -> str:
    """The one spelling of an existing table's name: in SQL, upper and lower case mean the same table."""
    (name,) = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE", (table,)
    ).fetchone()
    return str(name)


def quoted(name: str) -> str:
    """`name` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _columns(connection: sqlite3.Connection, table: str, where: str) -> list[_Column]:
    found = connection.execute("SELECT name, type, pk FROM pragma_table_info(?)", (table,)).fetchall()
    if not found:
        raise ToolError(f"The {where} has no table {table}.")
    return [_Column(name, kind, bool(pk)) for name, kind, pk in found]


def _single_key(columns: list[_Column], table: str, where: str) -> str:
    keys = [column.name for column in columns if column.is_key]
    if len(keys) != 1:
        raise ToolError(f"The table {table} of the {where} must have a primary key of one column.")
    return keys[0]


def _require(name: str, columns: tuple[str, ...] | list[str], table: str, where: str) -> None:
    if name not in columns:
        raise ToolError(f"The table {table} of the {where} has no column {name}.")


def _check_keys(source: sqlite3.Connection, table: str, key: str) -> None:
    """A cursor needs keys that compare, and JSON can carry: integers and texts."""
    column = quoted(key)
    odd = source.execute(
        f"SELECT 1 FROM {quoted(table)} WHERE typeof({column}) NOT IN ('integer', 'text') LIMIT 1"  # noqa: S608 - quoted
    ).fetchone()
    if odd is not None:
        raise ToolError(f"The table {table} of the source has keys that are neither integers nor texts.")


def _check_unreferenced(source: sqlite3.Connection, table: str) -> None:
    """Moving a record away must not orphan, or cascade into, other tables of the source."""
    referring = source.execute(
        "SELECT m.name FROM sqlite_master AS m, pragma_foreign_key_list(m.name) AS f "
        "WHERE m.type = 'table' AND f.\"table\" = ? COLLATE NOCASE LIMIT 1",
        (table,),
    ).fetchone()
    if referring is not None:
        raise ToolError(
            f"The source's table {referring[0]} refers to {table}; records that are referred to cannot be moved."
        )
