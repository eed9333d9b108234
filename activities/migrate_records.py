"""The steps of `migrate_records`: each opens both databases in a thread, so that the worker's loop stays free.

Every step may be killed anywhere and run again; `migration_store` says why. Databases are files below the folder
that the worker's operator names in `MCP_TASKS_MIGRATE_ROOT`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from temporalio import activity

from workflows import migrate_records as signatures
from workflows.migrate_records import (
    MAX_QUESTIONS,
    MigrateArgs,
    MoveReport,
    MoveRequest,
    SettleRequest,
    Survey,
    Tally,
)

from .folders import root_folder
from .migration_schema import told
from .migration_store import MigrationStore, open_store
from .signature import implements
from .steps import Step, in_thread

T = TypeVar("T")

ROOT_VARIABLE: Final = "MCP_TASKS_MIGRATE_ROOT"

RECORDS_PER_STEP: Final = 10_000
"""Records moved by one activity: many batches with a heartbeat each, but only a few events in the history."""


@implements(signatures.survey_migration)
async def survey_migration(request: MigrateArgs) -> Survey:
    """Check that the databases fit, prepare them, and count.

    Raises:
        ToolError: The migration cannot work; nothing was moved.
    """
    step = Step(message="Comparing the databases")
    return await _with_store(request, lambda store: Survey(records=store.count()), step)


@implements(signatures.move_records)
async def move_records(request: MoveRequest) -> MoveReport:
    """Move batch after batch; see the signature.

    Raises:
        ToolError: The migration cannot go on; every record is in one of the databases.
    """
    step = Step(done=request.done, total=max(request.total, request.done), message="Moving records")

    def move(store: MigrationStore) -> MoveReport:
        report = MoveReport(after=request.after, seen=0, ambiguous=[], finished=False)
        while not report.finished and not report.ambiguous and report.seen < RECORDS_PER_STEP:
            step.check()
            batch = store.move_batch(report.after, most_ambiguous=MAX_QUESTIONS)
            report.after, report.seen = batch.after, report.seen + batch.seen
            report.ambiguous, report.finished = batch.ambiguous, batch.finished
            step.done = request.done + report.seen
            step.message = f"{step.done:.0f} of {request.total} records"
        return report

    return await _with_store(request.migration, move, step)


@implements(signatures.settle_records)
async def settle_records(request: SettleRequest) -> None:
    """Carry out decisions.

    Raises:
        ToolError: The migration cannot go on; every record is in one of the databases.
    """
    step = Step(message="Moving the records that were asked about")
    await _with_store(request.migration, lambda store: store.settle(request.decisions), step)


@implements(signatures.tally_migration)
async def tally_migration(request: MigrateArgs) -> Tally:
    """Count this task's ledger."""
    return await _with_store(request, MigrationStore.tally, Step(message="Counting"))


async def _with_store(migration: MigrateArgs, work: Callable[[MigrationStore], T], step: Step) -> T:
    """Do `work` in a thread, on a store that is ready for this activity's task."""
    task = activity.info().workflow_id
    assert task is not None  # noqa: S101 - these activities are only ever called by a workflow

    def run() -> T:
        root = root_folder(ROOT_VARIABLE)
        with told(), open_store(root, migration, task=task) as store:
            return work(store)

    return await in_thread(run, step)
