"""`migrate_records`: move the records of one SQLite table into another database, linking each to the target it
belongs to.

Every record arrives exactly once, whatever is killed when: the target database keeps a ledger, written in the
transaction that inserts the record, and the source lets go of a record only after that commit
(`activities/migration_store.py`). The workflow holds a cursor and counts; it is a loop with checkpoints, so
millions of records do not grow its history. At most `MAX_QUESTIONS` records are asked about at a time.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field
from temporalio import activity, workflow
from temporalio.common import RetryPolicy

from .kit import Declined, Task, tool

MAX_QUESTIONS: Final = 5
"""Records asked about at once: a person can look at a handful, and each is a part of the view and of the memo."""

MAX_CANDIDATES: Final = 20
"""Targets offered in one question."""

SKIP: Final = "skip"

STEP: Final = workflow.ActivityConfig(
    start_to_close_timeout=timedelta(minutes=10),
    heartbeat_timeout=timedelta(seconds=15),  # above the 5 s that a transaction may wait for a lock
    retry_policy=RetryPolicy(
        maximum_interval=timedelta(seconds=10), maximum_attempts=30
    ),  # a busy database, for minutes
    cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,  # a batch ends first
)

Key = int | str
"""A record's primary key."""

Name = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^\x00]+$")]


class MigrateArgs(BaseModel):
    """What to move, and how to find where each record belongs."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    source: str = Field(
        min_length=1, max_length=500, description="SQLite file to move from, below the worker's data folder."
    )
    target: str = Field(
        min_length=1, max_length=500, description="SQLite file to move to, below the worker's data folder."
    )
    table: Name = Field(default="contacts", description="Table to move; both databases have it.")
    match_column: Name = Field(
        default="email", description="Column that says where a record belongs; of an e-mail address, the domain counts."
    )
    owner_table: Name = Field(
        default="accounts", description="Table of the target database whose rows records belong to."
    )
    owner_match: Name = Field(
        default="domain", description="Column of the owner table that is compared, ignoring case."
    )
    owner_label: Name = Field(default="name", description="Column of the owner table that people know a row by.")
    link_column: Name = Field(default="account_id", description="Column of the moved table that holds the owner's key.")
    batch_size: int = Field(default=200, ge=1, le=1000, description="Records moved in one transaction.")


class MigrateResult(BaseModel):
    """What happened to the records. `moved` includes `unlinked`; what was skipped or refused is still in the source."""

    moved: int = Field(description="Records that this migration put into the target and removed from the source.")
    unlinked: int = Field(description="Of the moved ones: those that match no owner.")
    skipped: int = Field(description="Records that a person chose to leave in the source.")
    asked: int = Field(description="Records that matched several owners, so that a person was asked.")
    already_there: int = Field(
        description="Records that an earlier, broken migration had brought; only removed from the source."
    )
    refused: int = Field(
        description="Records left in the source: the target's rules refuse them, or they changed meanwhile."
    )


class Survey(BaseModel):
    """What the migration starts from."""

    records: int


class Candidate(BaseModel):
    """A row of the owner table that a record may belong to."""

    key: Key
    label: str


class Ambiguous(BaseModel):
    """A record that matches several owners; `digest` is that of its content when it was read."""

    record: Key
    digest: str
    label: str
    candidates: list[Candidate]
    matches: int


class MoveRequest(BaseModel):
    """Move what comes after the key `after` (None: from the beginning)."""

    migration: MigrateArgs
    after: Key | None
    done: int
    total: int


class MoveReport(BaseModel):
    """How far a step came: everything up to `after` was looked at, except what is `ambiguous`."""

    after: Key | None
    seen: int
    ambiguous: list[Ambiguous]
    finished: bool


class Decision(BaseModel):
    """A person's choice for one record: an owner's key, or None to skip it."""

    record: Key
    digest: str
    owner: Key | None


class SettleRequest(BaseModel):
    """Carry out decisions."""

    migration: MigrateArgs
    decisions: list[Decision]


class Tally(BaseModel):
    """This task's ledger, counted."""

    moved: int
    unlinked: int
    skipped: int
    already_there: int
    refused: int


class MigrationState(BaseModel):
    """Enough to go on from a checkpoint."""

    total: int
    after: Key | None = None
    seen: int = 0
    asked: int = 0


@activity.defn
async def survey_migration(request: MigrateArgs) -> Survey:
    """Check that the migration can work, name the source for good, and count its records."""
    raise NotImplementedError


@activity.defn
async def move_records(request: MoveRequest) -> MoveReport:
    """Move batches until there are enough ambiguous records to ask about, no records, or a step's worth was done."""
    raise NotImplementedError


@activity.defn
async def settle_records(request: SettleRequest) -> None:
    """Carry out what people decided."""
    raise NotImplementedError


@activity.defn
async def tally_migration(request: MigrateArgs) -> Tally:
    """Count what the ledger says this task did."""
    raise NotImplementedError


@tool(
    name="migrate_records",
    title="Migrate records",
    description=(
        "Moves the records of a table from one SQLite database to another and links each to the row it belongs to. "
        "Asks a person when a record matches several rows. Every record arrives exactly once, also after a crash."
    ),
    annotations={"destructiveHint": True, "idempotentHint": True, "openWorldHint": False},
    client_capabilities={"elicitation": {}},
)
class MigrateRecords(Task[MigrateArgs, MigrateResult]):
    """A cursor over the source; see the module."""

    State = MigrationState
    state: MigrationState | None

    async def execute(self, arguments: MigrateArgs) -> MigrateResult:
        """Move step by step, ask about what is ambiguous, and report what the ledger says."""
        state = self.state
        if state is None:
            survey = await workflow.execute_activity(survey_migration, arguments, **STEP)
            state = MigrationState(total=survey.records)
        finished = False
        while not finished:
            self.progress(
                state.seen, total=max(state.total, state.seen), message=f"{state.seen} of {state.total} records"
            )
            request = MoveRequest(migration=arguments, after=state.after, done=state.seen, total=state.total)
            report = await workflow.execute_activity(move_records, request, **STEP)
            if report.ambiguous:
                decisions = await asyncio.gather(*(self._decide(record) for record in report.ambiguous))
                settle = SettleRequest(migration=arguments, decisions=decisions)
                await workflow.execute_activity(settle_records, settle, **STEP)
            state = state.model_copy(
                update={
                    "after": report.after,
                    "seen": state.seen + report.seen,
                    "asked": state.asked + len(report.ambiguous),
                }
            )
            finished = report.finished
            if not finished:
                await self.checkpoint(state)
        tally = await workflow.execute_activity(tally_migration, arguments, **STEP)
        return MigrateResult(asked=state.asked, **tally.model_dump())

    async def _decide(self, record: Ambiguous) -> Decision:
        """Ask which owner a record belongs to. Whoever does not say leaves it where it is."""
        options = {str(index): f"{owner.label} ({owner.key})" for index, owner in enumerate(record.candidates)}
        options[SKIP] = "Leave this record in the source"
        shown = "" if record.matches == len(record.candidates) else f"; the first {len(record.candidates)} are offered"
        message = f"{record.label} matches {record.matches} rows{shown}. Which one does it belong to?"
        try:
            choice = await self.choose(message, options, title="Belongs to")
        except Declined:
            choice = SKIP
        owner = None if choice == SKIP else record.candidates[int(choice)].key
        return Decision(record=record.record, digest=record.digest, owner=owner)
