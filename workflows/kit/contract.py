"""The contract between a task's workflow and whatever serves it: names, shapes, failure types.

Language-neutral and frozen once shipped: fields may be added, never renamed or given another meaning, and a reader
ignores what it does not know. Everything here is JSON on the wire (`json/plain` payloads), so a workflow in any
language can speak it. `docs/contract.md` is this module in prose.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

CONTRACT_VERSION: Final = 1

TASK_MEMO: Final = "mcp_task"
"""Memo key written once, by whoever starts the run: a `TaskMemo`. A run without it is not a task."""

VIEW_MEMO: Final = "mcp_view"
"""Memo key upserted by the workflow in the workflow task that changed it: a `TaskView`, or an `OmittedView`."""

VIEW_QUERY: Final = "mcp_task"
"""Query that answers a `TaskView`. Pure."""

UPDATE_SIGNAL: Final = "mcp_update"
"""Signal that delivers an `UpdateSignal`."""

STATUS_ATTRIBUTE: Final = "McpTaskStatus"
TOOL_ATTRIBUTE: Final = "McpTool"
OWNER_ATTRIBUTE: Final = "McpOwner"
SEARCH_ATTRIBUTES: Final = (STATUS_ATTRIBUTE, TOOL_ATTRIBUTE, OWNER_ATTRIBUTE)
"""Keyword search attributes, for lists only; visibility is eventually consistent, so they never answer tasks/get."""

TOOL_ERROR: Final = "mcp.ToolError"
"""Failure type of a declared tool error: the task is `completed` with `isError: true` and the failure's message."""

JSONRPC_ERROR: Final = "mcp.JsonRpcError"
"""Failure type of a JSON-RPC error: details[0] is `{code, message, data?}`; the task is `failed` with exactly that."""

EXPIRED: Final = "mcp.Expired"
"""Failure type of a run whose lifetime or answer window ended: the task is `failed`."""

BUG: Final = "mcp.Bug"
"""Failure type of anything that a tool did not mean to raise; its message is for developers, never for the model."""

MAX_VIEW_BYTES: Final = 64 * 1024
"""A view whose JSON is larger is left out of the memo (`OmittedView`): near 2 MiB the workflow task would fail for
ever.
"""

MAX_PAYLOAD_BYTES: Final = 1_900_000
"""Largest JSON of arguments, of one answer, and of a result. Temporal refuses a payload above 2 MiB (2,097,152 bytes),
and a workflow result above it would retry its workflow task for ever; the rest is room for an encrypting codec.
"""

MAX_DEPTH: Final = 128
"""Deepest nesting of arguments, answers, questions, results and checkpoints: JSON readers give up a little deeper."""

MAX_MESSAGE_CHARS: Final = 8_000
"""Longest status or error message. Longer ones are cut and say so: a failure of megabytes would be replaced by
Temporal.
"""

PAGE_CHANNEL: Final = "page"
"""The channel of an `Actor` who answered on a page of the bridge, out of band."""

LiveStatus = Literal["working", "input_required"]


class Wire(BaseModel):
    """A JSON object of the contract: camelCase names, absent rather than null, unknown members kept."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="allow",
        frozen=True,
        hide_input_in_errors=True,  # arguments and answers must not reach logs through a validation error
    )

    def to_json(self) -> dict[str, Any]:
        """This object as JSON-ready data, without the members that are not set."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Principal(Wire):
    """Who acts: an issuer, its stable subject, and the client acting for it where one is known."""

    issuer: str
    subject: str
    client: str | None = None

    @property
    def identity(self) -> str:
        """Issuer and subject as one text: who this is, whatever client acts."""
        return f"{self.issuer}\0{self.subject}"


class Pages(Wire):
    """The bridge's pages for answers out of band: the URL under which each question has its own, at
    `{url}/{task id}/{key}`, and whether what is entered there can be sealed for the worker.
    """

    url: str
    seals: bool | None = None


class TaskMemo(Wire):
    """What is known when a run starts. Never tokens or secrets: a memo is readable by everybody who may list workflows.

    `delivery` says how the caller gets the outcome: as a `task` whose handle it holds, or as the `result` of a call
    that it waits for. While no handle was given, a question waits at most `answer_window_ms`; with `handle_awaited` the
    caller of a task is given it later than at the start, and a signal says when. `lifetime_ms` counts from
    `created_at`. With `publish_views` the workflow publishes every change of its view if it can, not only those of its
    questions, and says so in the view (`published`).
    """

    v: Literal[1] = 1
    tool: str
    owner: Principal
    arguments_digest: str
    created_at: datetime
    era: str
    client_capabilities: dict[str, Any]
    delivery: Literal["task", "result"]
    lifetime_ms: int | None = None
    answer_window_ms: int | None = None
    handle_awaited: bool | None = None
    poll_interval_ms: int | None = None
    pages: Pages | None = None
    publish_views: bool | None = None


class Progress(Wire):
    """One progress report of the author; `progress` grows with each."""

    progress: float
    total: float | None = None
    message: str | None = None


def progress_report(progress: float, total: float | None, message: str | None) -> Progress | None:
    """A report of bounded length; None if there is nothing that JSON could say, which has no NaN and no infinities."""
    if not math.isfinite(progress):
        return None
    known_total = total if total is not None and math.isfinite(total) else None
    return Progress(progress=progress, total=known_total, message=None if message is None else cut(message, 1_000))


class Answerer(Wire):
    """Who may answer a question: anybody but the task's owner (`who` is `not_owner`), or a member of `group` (`who` is
    `group`). A `who` that a reader does not know means that nobody may.
    """

    who: str
    group: str | None = None


class PageForm(Wire):
    """What the bridge's page asks for a question in URL mode: `form` is a schema as a form's `requestedSchema` is one,
    whose secret properties say `writeOnly`. With `sealed` the answer goes sealed to the worker.
    """

    form: dict[str, Any]
    sealed: bool | None = None


class TaskView(Wire):
    """What a live task looks like now; the query's answer, and the memo's snapshot.

    `changed_at` moves with `status` and `input_requests` only. `phase` is set while no handle may be given yet.
    `progress` holds the latest reports, oldest first, for a caller that waits for them. `answerers` says, by key, who
    may answer a question; one that is not there may be answered by whoever may answer for the task. `page_forms`, by
    key, are for questions in URL mode that are answered on a page of the bridge, and by no client. `ended`: the run has
    closed its questions and is about to end, or has; what it shows is no state that the task was ever in. `published`:
    every change of this view is published in the workflow task that brings it, so nobody need query for it.
    """

    v: Literal[1] = 1
    status: LiveStatus
    phase: Literal["before_handle"] | None = None
    status_message: str | None = None
    input_requests: dict[str, dict[str, Any]] | None = None
    answerers: dict[str, Answerer] | None = None
    page_forms: dict[str, PageForm] | None = None
    poll_interval_ms: int | None = None
    progress: list[Progress] | None = None
    changed_at: datetime
    ended: bool | None = None
    published: bool | None = None


class OmittedView(Wire):
    """Stands in the memo for a view of more than `MAX_VIEW_BYTES`: ask the query."""

    v: Literal[1] = 1
    omitted: Literal[True] = True


class Actor(Principal):
    """Who answered, and over which channel (`http`, `stdio`, `page`). `groups` are those of theirs that the task's open
    questions name, and no others.
    """

    channel: str
    groups: list[str] | None = None


class UpdateSignal(Wire):
    """Answers by key. The first answer to a key wins; unknown and answered keys are ignored, and so is an answer of an
    `actor` who may not give it.

    With `offered`, answers to questions that are not asked yet are kept for the first question of that name (core MRTR:
    a call may bring its answers along). `handle` says that the caller is being given the task's handle.
    """

    v: Literal[1] = 1
    responses: dict[str, Any]
    actor: Actor | None = None
    at: datetime | None = None
    offered: bool = False
    handle: bool = False


class JsonRpcErrorDetail(Wire):
    """details[0] of an `mcp.JsonRpcError` failure."""

    code: int
    message: str
    data: Any = None


def timestamp(moment: datetime) -> str:
    """`moment` as RFC 3339 in UTC with microseconds, e.g. `2026-07-28T10:30:00.000000Z`."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def cut(message: str, limit: int = MAX_MESSAGE_CHARS) -> str:
    """`message` if it has at most `limit` characters, else so much of it with a mark that says how long it was.

    Lone surrogates, which are no text and could not be stored, become question marks.
    """
    if not message.isascii():
        message = message.encode("utf-8", "replace").decode()
    if len(message) <= limit:
        return message
    mark = f"… (cut, {len(message)} characters)"
    return message[: limit - len(mark)] + mark
