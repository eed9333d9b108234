"""Two small real databases, and what a migration between them must come to."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from workflows.migrate_records import MigrateArgs

SOURCE: Final = "old.db"
TARGET: Final = "new.db"

CONTACTS: Final = (
    (1, "Ada", "ada@acme.example"),
    (2, "Bob", "bob@UMBRELLA.example "),
    (3, "Cyd", "cyd@twins.example"),  # two accounts
    (4, "Dan", "dan@nowhere.example"),  # no account
    (5, "Eve", "eve@acme.example"),  # the target has her address already
    (6, "Fay", "fay@twins.example"),  # two accounts
    (7, "Gil", "gil@acme.example"),
)
ACCOUNTS: Final = (
    (10, "Acme", "acme.example"),
    (20, "Umbrella", "umbrella.example"),
    (30, "Twins North", "twins.example"),
    (31, "Twins South", "twins.example"),
)


def make_databases(folder: Path, *, journal: str = "delete", copies: int = 1) -> None:
    """Both databases in `folder`; with `copies`, that many times the contacts (their addresses numbered)."""
    with closing(sqlite3.connect(folder / SOURCE)) as source, source:
        source.execute(f"PRAGMA journal_mode = {journal}")
        source.execute("CREATE TABLE contacts (id INTEGER PRIMARY KEY, name TEXT, email TEXT)")
        for copy in range(copies):
            source.executemany(
                "INSERT INTO contacts VALUES (?, ?, ?)",
                [(id_ + copy * 100, name, email if not copy else f"{copy}-{email}") for id_, name, email in CONTACTS],
            )
    with closing(sqlite3.connect(folder / TARGET)) as target, target:
        target.execute(f"PRAGMA journal_mode = {journal}")
        target.execute("CREATE TABLE accounts (id INTEGER PRIMARY KEY, name TEXT, domain TEXT)")
        target.executemany("INSERT INTO accounts VALUES (?, ?, ?)", ACCOUNTS)
        target.execute(
            "CREATE TABLE contacts (id INTEGER PRIMARY KEY, name TEXT, email TEXT UNIQUE,"
            " account_id INTEGER REFERENCES accounts (id))"
        )
        target.execute("INSERT INTO contacts (name, email, account_id) VALUES ('Eva', 'eve@acme.example', 10)")


def migration(**changes: Any) -> MigrateArgs:
    """The arguments for these databases."""
    return MigrateArgs(**{"source": SOURCE, "target": TARGET, "batch_size": 3, **changes})


def query(path: Path, sql: str, *values: object) -> list[Any]:
    """Rows of a database; of a single column, its values."""
    with closing(sqlite3.connect(path)) as connection, connection:
        rows = connection.execute(sql, values).fetchall()
    return [row[0] if len(row) == 1 else row for row in rows]


def left(folder: Path) -> list[str]:
    """Who is still in the source, by name."""
    return query(folder / SOURCE, "SELECT name FROM contacts ORDER BY id")


def arrived(folder: Path) -> list[tuple[str, int | None]]:
    """Who has come to the target, and the account of each; without the one that was always there."""
    return query(folder / TARGET, "SELECT name, account_id FROM contacts WHERE name <> 'Eva' ORDER BY name")
