"""Every way in which a migration ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from activities import migrate_records as steps
from tests.activities.migration_data import SOURCE, arrived, left, make_databases, migration, query
from tests.workflows_shipped.driver import Driver, Run, option
from workflows.kit.contract import TOOL_ERROR

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(steps.ROOT_VARIABLE, str(tmp_path))
    make_databases(tmp_path)
    return tmp_path


async def start(driver: Driver, **changes: Any) -> Run:
    return await driver.start("migrate_records", migration(**changes))


async def test_a_migration_without_questions_completes(driver: Driver, folder: Path) -> None:
    query(folder / SOURCE, "DELETE FROM contacts WHERE email LIKE '%twins%'")
    result = await (await start(driver)).result(record="migrate_records.completed")
    assert result == {"moved": 4, "unlinked": 1, "skipped": 0, "asked": 0, "already_there": 0, "refused": 1}
    assert left(folder) == ["Eve"]


async def test_a_chosen_owner_is_linked_and_a_skipped_record_stays(driver: Driver, folder: Path) -> None:
    run = await start(driver, batch_size=100)
    for key, params in (await run.questions(2)).items():
        label = "Twins South (31)" if "cyd@" in params["message"] else "Leave this record"
        await run.accept(key, choice=option(params, label))
    result = await run.result(record="migrate_records.answered")
    assert result == {"moved": 5, "unlinked": 1, "skipped": 1, "asked": 2, "already_there": 0, "refused": 1}
    assert ("Cyd", 31) in arrived(folder)
    assert left(folder) == ["Eve", "Fay"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_question_that_is_declined_leaves_its_record(driver: Driver, folder: Path, action: str) -> None:
    run = await start(driver, batch_size=100)
    await run.respond({key: {"action": action} for key in await run.questions(2)})
    assert (await run.result(record=f"migrate_records.{action}"))["skipped"] == 2
    assert left(folder) == ["Cyd", "Eve", "Fay"]


async def test_at_most_five_questions_are_open_at_once(driver: Driver, tmp_path: Path, folder: Path) -> None:
    query(folder / SOURCE, "UPDATE contacts SET email = name || '@twins.example'")
    run = await start(driver, batch_size=100)
    first = await run.questions(5)
    await run.respond({key: {"action": "decline"} for key in first})
    second = await run.questions(2)
    assert not first.keys() & second.keys()
    await run.respond({key: {"action": "decline"} for key in second})
    assert (await run.result())["asked"] == 7


async def test_a_cancelled_migration_keeps_what_was_moved_and_the_rest(driver: Driver, folder: Path) -> None:
    run = await start(driver, batch_size=100)
    await run.questions(2)
    await run.handle.cancel()
    await run.cancelled(record="migrate_records.cancelled")
    assert left(folder) == ["Cyd", "Eve", "Fay"]
    assert len(arrived(folder)) == 4


async def test_a_migration_that_cannot_work_is_a_tool_error(driver: Driver, folder: Path) -> None:
    failure = await (await start(driver, source="none.db")).failure(record="migrate_records.tool_error")
    assert (failure.type, failure.message) == (TOOL_ERROR, "There is no database none.db.")


async def test_a_long_migration_continues_as_new_and_loses_nothing(
    driver: Driver, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "RECORDS_PER_STEP", 1)
    query(folder / SOURCE, "DELETE FROM contacts")
    for number in range(1, 41):
        query(folder / SOURCE, "INSERT INTO contacts VALUES (?, ?, ?)", number, f"N{number}", f"{number}@acme.example")
    run = await start(driver, batch_size=1)
    result = await run.result(record="migrate_records.continued")
    assert result["moved"] == len(arrived(folder)) == 40
    described = await run.handle.describe()
    assert described.run_id != run.handle.first_execution_run_id
