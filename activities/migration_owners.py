"""Which rows of the target a record may belong to, and how that is asked.

The comparison ignores case and takes the domain of an e-mail address, which no index of the target knows; so the
owners are read once per step and compared in memory.
"""

from __future__ import annotations

import sqlite3
from functools import cached_property
from typing import NamedTuple

from workflows.migrate_records import MAX_CANDIDATES, Ambiguous, Candidate, Key, MigrateArgs

from .migration_schema import Shape, quoted


class Owner(NamedTuple):
    """A row of the owner table."""

    key: Key
    label: str


class Owners:
    """The owner table, as one step sees it."""

    def __init__(self, target: sqlite3.Connection, migration: MigrateArgs, shape: Shape) -> None:
        """Read from `target` when first asked."""
        self._target = target
        self._migration = migration
        self._key = quoted(shape.owner_key)
        self._match_at = shape.columns.index(migration.match_column)

    def of(self, row: tuple[object, ...]) -> list[Owner]:
        """Every owner that a record matches."""
        return self._by_name.get(normalised(row[self._match_at]), [])

    def exists(self, key: Key) -> bool:
        """Whether an owner is there now."""
        table = quoted(self._migration.owner_table)
        return self._target.execute(f"SELECT 1 FROM {table} WHERE {self._key} = ?", (key,)).fetchone() is not None  # noqa: S608

    def question(self, key: Key, row: tuple[object, ...], owners: list[Owner], digest: str) -> Ambiguous:
        """What to ask about a record that matches several."""
        return Ambiguous(
            record=key,
            digest=digest,
            label=f"The record {shown(key)} ({shown(row[self._match_at])})",
            candidates=[Candidate(key=owner.key, label=owner.label) for owner in owners[:MAX_CANDIDATES]],
            matches=len(owners),
        )

    @cached_property
    def _by_name(self) -> dict[str, list[Owner]]:
        m = self._migration
        select = f"SELECT {self._key}, {quoted(m.owner_match)}, {quoted(m.owner_label)} FROM {quoted(m.owner_table)}"  # noqa: S608
        found: dict[str, list[Owner]] = {}
        for key, match, label in self._target.execute(f"{select} ORDER BY 1"):
            if name := normalised(match):
                found.setdefault(name, []).append(Owner(key, shown(label)))
        return found


def normalised(value: object) -> str:
    """What two values are compared by: without case and outer blanks; of an e-mail address, the domain. Empty
    matches nothing."""
    return str(value if value is not None else "").strip().casefold().rpartition("@")[2]


def shown(value: object) -> str:
    """A value in a question: one line, and short."""
    text = "".join(char if char.isprintable() else " " for char in str(value))
    return text if len(text) <= 80 else f"{text[:80]}…"
