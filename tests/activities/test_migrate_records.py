"""The steps of `migrate_records` on real SQLite files."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.migrate_records import (
    ROOT_VARIABLE,
    move_records,
    settle_records,
    survey_migration,
    tally_migration,
)
from tests.activities.migration_data import SOURCE, TARGET, arrived, left, make_databases, migration, query
from workflows.kit.errors import ToolError
from workflows.migrate_records import Decision, Key, MoveReport, MoveRequest, SettleRequest, Tally


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    make_databases(tmp_path)
    return tmp_path


async def move(env: ActivityEnvironment, after: Key | None = None, **changes: Any) -> MoveReport:
    return await env.run(move_records, MoveRequest(migration=migration(**changes), after=after, done=0, total=7))


async def test_records_that_match_one_owner_move_and_are_linked(env: ActivityEnvironment, folder: Path) -> None:
    report = await move(env, batch_size=100)
    assert arrived(folder) == [("Ada", 10), ("Bob", 20), ("Dan", None), ("Gil", 10)]
    assert left(folder) == ["Cyd", "Eve", "Fay"]
    assert (report.seen, report.finished) == (7, True)


async def test_records_that_match_several_owners_are_offered_with_them(env: ActivityEnvironment, folder: Path) -> None:
    report = await move(env, batch_size=100)
    assert [asked.record for asked in report.ambiguous] == [3, 6]
    assert [(owner.key, owner.label) for owner in report.ambiguous[0].candidates] == [
        (30, "Twins North"),
        (31, "Twins South"),
    ]


async def test_a_step_stops_to_ask_when_a_batch_has_something_ambiguous(env: ActivityEnvironment, folder: Path) -> None:
    report = await move(env)
    assert (report.after, report.seen, report.finished) == (3, 3, False)


async def test_decisions_are_carried_out_once(env: ActivityEnvironment, folder: Path) -> None:
    report = await move(env, batch_size=100)
    cyd, fay = report.ambiguous
    decisions = [
        Decision(record=cyd.record, digest=cyd.digest, owner=31),
        Decision(record=fay.record, digest=fay.digest, owner=None),
    ]
    for _ in range(2):
        await env.run(settle_records, SettleRequest(migration=migration(), decisions=decisions))
    assert ("Cyd", 31) in arrived(folder)
    assert left(folder) == ["Eve", "Fay"]
    tally = await env.run(tally_migration, migration())
    assert tally == Tally(moved=5, unlinked=1, skipped=1, already_there=0, refused=1)


async def test_a_record_that_changed_while_it_was_asked_about_stays(env: ActivityEnvironment, folder: Path) -> None:
    report = await move(env, batch_size=100)
    query(folder / SOURCE, "UPDATE contacts SET name = 'Cydney' WHERE id = 3")
    cyd = report.ambiguous[0]
    decision = Decision(record=3, digest=cyd.digest, owner=31)
    await env.run(settle_records, SettleRequest(migration=migration(), decisions=[decision]))
    assert "Cydney" in left(folder)
    assert (await env.run(tally_migration, migration())).refused == 2


async def test_an_owner_that_went_away_while_it_was_asked_about_is_not_linked_to(
    env: ActivityEnvironment, folder: Path
) -> None:
    report = await move(env, batch_size=100)
    query(folder / TARGET, "DELETE FROM accounts WHERE id = 31")
    decision = Decision(record=3, digest=report.ambiguous[0].digest, owner=31)
    await env.run(settle_records, SettleRequest(migration=migration(), decisions=[decision]))
    assert "Cyd" in left(folder)


async def test_a_key_that_the_source_uses_again_is_a_new_record(env: ActivityEnvironment, folder: Path) -> None:
    await move(env, batch_size=100)
    query(folder / SOURCE, "INSERT INTO contacts VALUES (7, 'Hal', 'hal@acme.example')")
    other = ActivityEnvironment()
    other.info = _info(other, "another-task")
    await move(other, batch_size=100)
    assert {("Gil", 10), ("Hal", 10)} <= set(arrived(folder))
    assert "Hal" not in left(folder)


async def test_another_source_file_with_the_same_keys_is_not_taken_for_the_first(
    env: ActivityEnvironment, folder: Path
) -> None:
    await move(env, batch_size=100)
    (folder / SOURCE).unlink()
    with closing(sqlite3.connect(folder / SOURCE)) as source, source:
        source.execute("CREATE TABLE contacts (id INTEGER PRIMARY KEY, name TEXT, email TEXT)")
        source.execute("INSERT INTO contacts VALUES (1, 'Ivy', 'ivy@acme.example')")
    other = ActivityEnvironment()
    other.info = _info(other, "another-task")
    await move(other, batch_size=100)
    assert ("Ivy", 10) in arrived(folder)


async def test_a_target_without_numbered_keys_keeps_the_records_own(env: ActivityEnvironment, folder: Path) -> None:
    with closing(sqlite3.connect(folder / SOURCE)) as source, source:
        source.execute("CREATE TABLE people (code TEXT PRIMARY KEY, email TEXT)")
        source.executemany("INSERT INTO people VALUES (?, ?)", [("a-1", "x@acme.example"), ("b-2", None)])
    query(folder / TARGET, "CREATE TABLE people (code TEXT PRIMARY KEY, email TEXT, account_id)")
    report = await move(env, table="people", batch_size=1)
    assert query(folder / TARGET, "SELECT code, account_id FROM people ORDER BY code") == [("a-1", 10), ("b-2", None)]
    assert report.finished


async def test_a_survey_counts_and_moves_nothing(env: ActivityEnvironment, folder: Path) -> None:
    assert (await env.run(survey_migration, migration())).records == 7
    assert len(left(folder)) == 7


async def test_a_locked_database_is_left_to_a_retry(
    env: ActivityEnvironment, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.migration_schema.LOCK_SECONDS", 0.01)
    with closing(sqlite3.connect(folder / TARGET, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            await move(env)
    assert len(left(folder)) == 7


async def test_moving_heartbeats_how_many_records_are_done(
    env: ActivityEnvironment, folder: Path, heartbeats: list[dict[str, Any]]
) -> None:
    await move(env, batch_size=100)
    assert heartbeats[-1] == {"progress": 7.0, "total": 7.0, "message": "7 of 7 records"}


CONTACTS = "CREATE TABLE contacts (id INTEGER PRIMARY KEY, name TEXT, email TEXT UNIQUE {}, account_id INTEGER)"


@pytest.mark.parametrize("resolution", ["IGNORE", "REPLACE", "ROLLBACK", "FAIL"])
async def test_a_record_that_conflicts_is_refused_whatever_the_target_does_with_conflicts(
    env: ActivityEnvironment, folder: Path, resolution: str
) -> None:
    query(folder / TARGET, "DROP TABLE contacts")
    query(folder / TARGET, CONTACTS.format(f"ON CONFLICT {resolution}"))
    query(folder / TARGET, "INSERT INTO contacts VALUES (99, 'Eva', 'eve@acme.example', 10)")
    await move(env, batch_size=100)
    assert "Eve" in left(folder)
    assert query(folder / TARGET, "SELECT name FROM contacts WHERE id = 99") == ["Eva"]
    assert arrived(folder) == [("Ada", 10), ("Bob", 20), ("Dan", None), ("Gil", 10)]
    tally = await env.run(tally_migration, migration())
    assert (tally.moved, tally.refused) == (4, 1)


TARGET_TRIGGERS = {
    "ignored": "BEFORE INSERT ON contacts WHEN NEW.name = 'Ada'"
    " BEGIN INSERT INTO seen VALUES (NEW.name); SELECT RAISE(IGNORE); END",
    "failed": "BEFORE INSERT ON contacts WHEN NEW.name = 'Ada'"
    " BEGIN INSERT INTO seen VALUES (NEW.name); SELECT RAISE(FAIL, ''); END",
    "deleted again": "AFTER INSERT ON contacts WHEN NEW.name = 'Ada'"
    " BEGIN INSERT INTO seen VALUES (NEW.name); DELETE FROM contacts WHERE id = NEW.id; END",
}


@pytest.mark.parametrize("trigger", list(TARGET_TRIGGERS.values()), ids=list(TARGET_TRIGGERS))
async def test_a_record_that_a_trigger_of_the_target_drops_stays_and_leaves_no_trace(
    env: ActivityEnvironment, folder: Path, trigger: str
) -> None:
    query(folder / TARGET, "CREATE TABLE seen (name TEXT)")
    query(folder / TARGET, f"CREATE TRIGGER dropping {trigger}")
    await move(env, batch_size=100)
    assert left(folder) == ["Ada", "Cyd", "Eve", "Fay"]
    assert query(folder / TARGET, "SELECT * FROM seen") == []
    assert (await env.run(tally_migration, migration())).moved == 3


async def test_a_trigger_of_the_target_that_takes_back_the_batch_ends_the_migration(
    env: ActivityEnvironment, folder: Path
) -> None:
    trigger = "BEFORE INSERT ON contacts WHEN NEW.name = 'Dan' BEGIN SELECT RAISE(ROLLBACK, ''); END"
    query(folder / TARGET, f"CREATE TRIGGER ending {trigger}")
    with pytest.raises(ToolError, match="does not let the record 4 in; its batch was not moved"):
        await move(env, batch_size=100)
    assert (len(left(folder)), arrived(folder)) == (7, [])


SOURCE_TRIGGERS = {
    "ignored": "BEFORE DELETE ON contacts BEGIN UPDATE contacts SET name = 'gone ' || name; SELECT RAISE(IGNORE); END",
    "refused": "BEFORE DELETE ON contacts BEGIN SELECT RAISE(ABORT, 'kept'); END",
    "rolled back": "BEFORE DELETE ON contacts BEGIN SELECT RAISE(ROLLBACK, 'kept'); END",
    "back again": "AFTER DELETE ON contacts BEGIN INSERT INTO contacts VALUES (OLD.id, OLD.name, OLD.email); END",
}


@pytest.mark.parametrize("trigger", list(SOURCE_TRIGGERS.values()), ids=list(SOURCE_TRIGGERS))
async def test_a_record_that_the_source_does_not_let_go_of_is_not_moved(
    env: ActivityEnvironment, folder: Path, trigger: str
) -> None:
    query(folder / SOURCE, f"CREATE TRIGGER keeping {trigger}")
    other = ActivityEnvironment()
    other.info = _info(other, "another-task")
    for each in (env, other):
        with pytest.raises(ToolError, match="The source does not let go of the record 1; this batch was not moved"):
            await move(each, batch_size=100)
    assert left(folder) == ["Ada", "Bob", "Cyd", "Dan", "Eve", "Fay", "Gil"]
    assert arrived(folder) == []


@pytest.mark.parametrize("resumed_as", ["contacts", "CONTACTS"])
async def test_a_migration_of_another_table_leaves_a_broken_one_to_be_resumed(
    env: ActivityEnvironment, folder: Path, resumed_as: str
) -> None:
    for path, link in ((SOURCE, ""), (TARGET, ", account_id")):
        query(folder / path, f"CREATE TABLE orders (id INTEGER PRIMARY KEY, email TEXT{link})")
    query(folder / SOURCE, "INSERT INTO orders VALUES (1, 'new@acme.example')")
    query(folder / SOURCE, "CREATE TABLE kept AS SELECT * FROM contacts WHERE id IN (1, 2)")
    await move(env, batch_size=2)
    # as if killed between the commit of the target and that of the source
    query(folder / SOURCE, "INSERT INTO contacts SELECT * FROM kept")
    query(folder / TARGET, "UPDATE mcp_migration_ledger SET cleared = 0 WHERE record IN (1, 2)")

    other = ActivityEnvironment()
    other.info = _info(other, "another-task")
    await move(other, table="orders")
    assert query(folder / SOURCE, "SELECT * FROM orders") == []
    assert query(folder / TARGET, "SELECT email FROM orders") == ["new@acme.example"]

    await move(env, table=resumed_as, batch_size=100)
    assert left(folder) == ["Cyd", "Eve", "Fay"]
    assert arrived(folder) == [("Ada", 10), ("Bob", 20), ("Dan", None), ("Gil", 10)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": "../elsewhere.db"}, "outside of what this tool may touch"),
        ({"source": "/etc/hostname"}, "outside of what this tool may touch"),
        ({"source": "a\0b"}, "cannot be used as a path"),
        ({"source": "none.db"}, "There is no database none.db"),
        ({"target": SOURCE}, "the same database"),
        ({"table": 'no"such'}, 'The source has no table no"such'),
        ({"match_column": "phone"}, "of the source has no column phone"),
        ({"link_column": "owner"}, "of the target has no column owner"),
        ({"owner_table": "companies"}, "The target has no table companies"),
        ({"owner_label": "title"}, "of the target has no column title"),
    ],
)
async def test_what_cannot_work_is_a_tool_error_that_says_what(
    env: ActivityEnvironment, folder: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ToolError, match=message):
        await env.run(survey_migration, migration(**changes))


async def test_a_link_out_of_the_data_folder_is_refused(
    env: ActivityEnvironment, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    make_databases(elsewhere)
    (folder / "link.db").symlink_to(elsewhere / SOURCE)
    with pytest.raises(ToolError, match="outside"):
        await env.run(survey_migration, migration(source="link.db"))


async def test_records_that_others_refer_to_are_not_moved(env: ActivityEnvironment, folder: Path) -> None:
    query(folder / SOURCE, "CREATE TABLE calls (contact INTEGER REFERENCES contacts (id) ON DELETE CASCADE)")
    with pytest.raises(ToolError, match="table calls refers to contacts"):
        await env.run(survey_migration, migration())


async def test_a_file_that_is_no_database_is_a_tool_error(env: ActivityEnvironment, folder: Path) -> None:
    (folder / "text.db").write_text("not a database, but long enough to look at " * 50)
    with pytest.raises(ToolError, match="not a database"):
        await env.run(survey_migration, migration(source="text.db"))


async def test_a_worker_without_a_data_folder_says_so(
    env: ActivityEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ROOT_VARIABLE, raising=False)
    with pytest.raises(ToolError, match=ROOT_VARIABLE):
        await env.run(survey_migration, migration())


def _info(env: ActivityEnvironment, task: str) -> Any:
    return replace(env.info, workflow_id=task)
