"""The task workflow: one chain of runs is one MCP task.

The author writes `execute` as straight-line code; this base class owns everything that must be true of every task: the
view and its publication, the questions and their answers, the one cancel, the durable timers, and how the run ends.
State changes in one place each and is published once per turn of the workflow loop, so query and memo cannot disagree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, Generic, Literal, NoReturn, TypeVar

from pydantic import BaseModel, Field, ValidationError
from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributePair
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception

from .answerers import Answer
from .asking import SETTLE, Asking, call_later
from .body import Body, what_it_says
from .contract import (
    BUG,
    EXPIRED,
    JSONRPC_ERROR,
    MAX_VIEW_BYTES,
    STATUS_ATTRIBUTE,
    UPDATE_SIGNAL,
    VIEW_MEMO,
    VIEW_QUERY,
    LiveStatus,
    OmittedView,
    Progress,
    TaskView,
    UpdateSignal,
    Wire,
    cut,
    progress_report,
)
from .declaration import Declaration
from .errors import ToolError
from .questions import CarriedQuestion, Giver
from .results import call_tool_result, loggable, storable, storable_json, text_of

ArgumentsT = TypeVar("ArgumentsT")
ResultT = TypeVar("ResultT")

KEPT_PROGRESS: Final = 16
"""Progress reports in a view: enough for a caller that reads every few workflow tasks to miss none."""

KEPT_PROGRESS_CHARS: Final = 4_000
"""Of their messages together, so that progress alone never makes a view too large to be published."""

_STATUS: Final = SearchAttributeKey.for_keyword(STATUS_ATTRIBUTE)


class Resumed(Wire):
    """What a run that continues as new hands to the next, beside the memo, which Temporal carries."""

    v: Literal[1] = 1
    state: Any = None
    questions: list[CarriedQuestion] = Field(default_factory=list)
    names: list[str] = Field(default_factory=list)
    offers: dict[str, Any] = Field(default_factory=dict)
    offered_by: dict[str, Answer] = Field(default_factory=dict)
    spent: list[str] = Field(default_factory=list)
    progress: list[Progress] = Field(default_factory=list)
    changed_at: datetime
    awaits_handle: bool = False


class _ContinueAsNew(BaseException):
    """Leaves the author's code at a checkpoint; a BaseException so that no `except Exception` of a tool holds it
    back.
    """


class Task(Asking, Generic[ArgumentsT, ResultT]):
    """Base of every tool. Derive from `Task[Arguments, Result]`, decorate with `@tool`, implement `execute`.

    `State` names the pydantic model of a tool written as a loop with checkpoints; `state` is the last one, or None at
    the start.
    """

    is_task_base: ClassVar[bool] = True
    declaration: ClassVar[Declaration]
    State: ClassVar[type[BaseModel] | None] = None

    state: Any = None

    def __init__(self) -> None:
        """Set up before any signal: Temporal delivers signals of the first workflow task before `run` starts."""
        super().__init__()
        self._early: list[UpdateSignal] | None = []
        self._phase: Literal["before_handle"] | None = None
        self._awaits_handle = self.memo is not None and bool(self.memo.handle_awaited)
        self._progress: list[Progress] = []
        self._changed_at = self.memo.created_at if self.memo else workflow.now()
        self._unpublished = False
        self._published_keys: tuple[str, ...] = ()
        # What a run does is set by what it was started with: those of before replay as they were
        self._publishes_all = self.memo is not None and bool(self.memo.publish_views)
        self._more_to_show = False
        self._stop: Literal["cancel", "lifetime", "answer_window"] | None = None
        self._window_timer: asyncio.TimerHandle | None = None
        self._body: Body[Any] | None = None

    # What authors implement and call

    async def execute(self, arguments: ArgumentsT) -> ResultT:
        """Do the work. A cancel arrives as `asyncio.CancelledError` (or an activity's error caused by one); unwind,
        then re-raise it to end `cancelled`, return to end `completed`, or raise `ToolError` or `JsonRpcError`.
        """
        raise NotImplementedError

    async def before_handle(self, arguments: ArgumentsT) -> None:
        """Override to ask, before a task handle is given out, what must be known first (core MRTR; Tasks extension,
        "Creation").
        """

    def progress(self, progress: float, *, total: float | None = None, message: str | None = None) -> None:
        """Say how far the work is; `progress` must grow. Costs an event of the run's history; what one step of the code
        reports, up to its next await, is one.
        """
        report = progress_report(progress, total, message)
        if report is not None:
            self._progress = _latest([*self._progress, report])
            self._shows_more()

    async def checkpoint(self, state: BaseModel) -> None:
        """Mark a point of a loop from which `state` alone is enough to go on.

        When Temporal suggests it, the run continues as new here: `execute` starts again with the same arguments and
        `self.state` set. Open questions keep their keys when they are asked again; a cancel is never lost on the way.
        """
        self.state = state
        if self._stop is not None or not workflow.info().is_continue_as_new_suggested():
            return
        # A cancel that came in the same activation as what led here may not be known yet; one that comes with this
        # timer is known when it fires, if not yet delivered. The next run would never hear of either.
        await workflow.sleep(SETTLE)
        if workflow.cancellation_reason() is None:
            raise _ContinueAsNew

    # What the contract promises

    @workflow.query(name=VIEW_QUERY)
    def view(self) -> dict[str, Any]:
        """The live view (`TaskView`), as JSON. A query may ride on the workflow task that ends the run."""
        ended = self._body is not None and self._body.task.done()
        return self._view().model_copy(update={"ended": True} if ended else {}).to_json()

    @workflow.signal(name=UPDATE_SIGNAL)
    def deliver_update(self, update: Any = None, *_: Any) -> None:
        """Take answers (`UpdateSignal`). Whatever is sent, this never fails: it would fail the workflow task, for
        ever.
        """
        try:
            signal = UpdateSignal.model_validate(update)
        except ValidationError:
            workflow.logger.warning("update.malformed")
            return
        if self._early is not None:
            self._early.append(signal)
        else:
            self._deliver(signal)

    async def run_task(self, arguments: Any, resumed: Any) -> Any:
        """The whole run; `@tool` makes it the workflow's run method."""
        resume = None if resumed is None else Resumed.model_validate(resumed)
        self._begin(resume)
        self._body = body = Body(self._author_code(arguments, first=resume is None))
        lifetime = self._lifetime_timer()
        if self._published_keys:
            self._arm_window()
        self._shows_more()
        await self._until_done(body)
        if lifetime:
            lifetime.cancel()
        self._disarm_window()
        return self._outcome(body, arguments)

    # How it works

    def _begin(self, resume: Resumed | None) -> None:
        early, self._early = self._early or [], None
        if resume is not None:
            self._questions.resume(resume.questions, resume.names, resume.offers, resume.offered_by)
            self._spent = set(resume.spent)
            self._progress = resume.progress
            self._changed_at = resume.changed_at
            self._awaits_handle = resume.awaits_handle
            if self.State is not None and resume.state is not None:
                self.state = self.State.model_validate(resume.state)
        elif self.memo and self.memo.delivery == "task" and self.declaration.asks_before_handle:
            self._phase = "before_handle"
        self._published_keys = tuple(self._questions.outstanding())
        for signal in early:
            self._deliver(signal)

    async def _author_code(self, raw: Any, *, first: bool) -> ResultT:
        try:
            arguments = self.declaration.arguments.validate_python(raw)
        except ValidationError as error:
            reasons = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            raise ToolError(f"Invalid arguments: {reasons}") from None
        if first:
            await self.before_handle(arguments)
            if self._phase is not None:
                self._phase = None
                if not self._awaits_handle:
                    self._disarm_window()
                self._shows_more()
        return await self.execute(arguments)

    async def _until_done(self, body: Body[Any]) -> None:
        while not body.task.done():
            try:
                await asyncio.shield(body.task)
            except asyncio.CancelledError:
                if body.task.cancelled():
                    return  # its last step swallowed the cancel: asyncio marks the task, but the work is done
                if self._stop == "cancel" or workflow.cancellation_reason() is None:
                    raise  # not a cancel: the run is being evicted from the worker's cache
                self._end_work("cancel")

    def _end_work(self, why: Literal["cancel", "lifetime", "answer_window"]) -> None:
        """Cancel the author's code, once: whatever else ends later, the unwinding is left in peace."""
        if self._stop is None and self._body is not None:
            self._body.stop()
        if self._stop is None or why == "cancel":
            self._stop = why

    def _outcome(self, body: Body[Any], arguments: Any) -> Any:
        error = None if body.error is None else what_it_says(body.error)
        if (expiry := _EXPIRY.get(self._stop or "")) and not body.stop_unseen:
            self._raise_expired(expiry, error)
        if error is None:
            try:
                return call_tool_result(body.value)
            except ToolError:
                raise
            except (TypeError, ValueError, RecursionError) as unusable:
                self._raise_bug(unusable)
        if isinstance(error, _ContinueAsNew):
            self._continue_as_new(arguments)
        if isinstance(error, FailureError):
            raise storable(error, workflow.payload_converter())
        if self._stop == "cancel" and is_cancelled_exception(error):
            raise error
        self._raise_bug(error)

    def _raise_expired(self, expiry: str, error: BaseException | None) -> NoReturn:
        """Expired; but what the author has to say about an unwinding that broke must not be lost."""
        if isinstance(error, ApplicationError) and error.type == JSONRPC_ERROR:
            raise storable(error, workflow.payload_converter())
        told = f"{expiry} {error.message}" if isinstance(error, ToolError) else expiry
        raise ApplicationError(cut(told), type=EXPIRED, non_retryable=True)

    def _raise_bug(self, error: BaseException) -> NoReturn:
        """Fail the run for good with what a developer needs, flat and bounded (a long chain of causes could not be
        stored).
        """
        workflow.logger.error("tool.bug", exc_info=loggable(error))
        raise ApplicationError(cut(f"{type(error).__name__}: {text_of(error)}"), type=BUG, non_retryable=True) from None

    def _continue_as_new(self, arguments: Any) -> NoReturn:
        """Temporal hands on the memo that the run was started with, not what was upserted since; and what the last turn
        brought is not published yet.
        """
        requests = self._questions.outstanding()
        if tuple(requests) != self._published_keys:
            self._changed_at = workflow.now()
        status: LiveStatus = "input_required" if requests else "working"
        attributes = workflow.info().typed_search_attributes
        published = attributes.get(_STATUS)
        state = self.state.model_dump(mode="json", by_alias=True) if isinstance(self.state, BaseModel) else None
        resumed = Resumed(
            state=state,
            questions=self._questions.carried(),
            names=sorted(self._questions.names),
            offers=self._questions.offers,
            offered_by=self._questions.offered_by,
            spent=sorted(self._spent),
            progress=self._progress,
            changed_at=self._changed_at,
            awaits_handle=self._awaits_handle,
        ).to_json()
        try:
            carried = storable_json(resumed)
        except (TypeError, ValueError) as unusable:
            self._raise_bug(ValueError(f"a checkpoint that cannot be kept: {unusable}"))
        workflow.continue_as_new(
            args=[arguments, carried],
            memo={**workflow.memo(), VIEW_MEMO: self._snapshot()},
            search_attributes=attributes.updated(SearchAttributePair(_STATUS, status)) if published else None,
        )

    def _deliver(self, signal: UpdateSignal) -> None:
        if signal.handle:
            self._awaits_handle = False
            self._disarm_window()
        giver = Giver(signal.actor, signal.at or workflow.now())
        delivered = self._questions.deliver(signal.responses, giver, offered=signal.offered)
        for key in delivered.refused:
            workflow.logger.warning("answer.refused", extra={"key": cut(key, 200), "reason": "not theirs to give"})
        if delivered.changed or (delivered.carried and self._publishes_all):
            self._disarm_window()  # each round renews the answer window
            self._changed()

    def _changed(self) -> None:
        """Note that the questions may have changed; what there is to see is published once this turn of the loop is
        over.
        """
        if not self._unpublished:
            self._unpublished = True
            asyncio.get_running_loop().call_soon(self._publish)

    def _shows_more(self) -> None:
        """Note that the view may have changed in something else. Questions that come with it, even of tasks that this
        turn of the loop only starts, are published together with it.
        """
        # An author's `finally` may run outside of its loop, even in another run's, when the run is dropped from memory
        if self._publishes_all and workflow.in_workflow() and workflow.instance() is self:
            self._more_to_show = True
            asyncio.get_running_loop().call_soon(self._changed)

    def _publish(self) -> None:
        self._unpublished = False
        if self._body is not None and self._body.task.done():
            return  # the close event says it all
        requests = self._questions.outstanding()
        if requests:
            self._arm_window()
        else:
            self._disarm_window()
        asked = tuple(requests) != self._published_keys
        if asked:
            self._published_keys = tuple(requests)
            self._changed_at = workflow.now()
        if asked or self._more_to_show:  # not by what is in the view: one that says more must not be published more
            self._more_to_show = False
            workflow.upsert_memo({VIEW_MEMO: self._snapshot()})
        if asked:
            self._publish_status("input_required" if requests else "working")

    def _view(self) -> TaskView:
        requests = self._questions.outstanding()
        return TaskView(
            status="input_required" if requests else "working",
            phase=self._phase,
            status_message=self._progress[-1].message if self._progress else None,
            input_requests=requests or None,
            answerers=self._questions.answerers() or None,
            page_forms=self._questions.page_forms() or None,
            progress=self._progress or None,
            changed_at=self._changed_at,
            published=self._publishes_all or None,
        )

    def _snapshot(self) -> dict[str, Any]:
        view = self._view().to_json()
        size = len(workflow.payload_converter().to_payload(view).data)
        return view if size <= MAX_VIEW_BYTES else OmittedView().to_json()

    def _publish_status(self, status: LiveStatus) -> None:
        """A key is upserted only if the run was started with it: an unregistered one fails the workflow task for
        ever.
        """
        published = workflow.info().typed_search_attributes.get(_STATUS)
        if published is not None and published != status:
            workflow.upsert_search_attributes([_STATUS.value_set(status)])

    def _lifetime_timer(self) -> asyncio.TimerHandle | None:
        if self.memo is None or self.memo.lifetime_ms is None:
            return None
        left = self.memo.created_at + timedelta(milliseconds=self.memo.lifetime_ms) - workflow.now()
        return call_later(max(left, SETTLE), lambda: self._end_work("lifetime"))

    def _arm_window(self) -> None:
        """A question of a caller that holds no handle may not wait for ever: nobody could address the run."""
        if self.memo is None or self.memo.answer_window_ms is None or self._window_timer is not None:
            return
        if self.memo.delivery == "result" or self._phase is not None or self._awaits_handle:
            window = timedelta(milliseconds=self.memo.answer_window_ms)
            self._window_timer = call_later(window, lambda: self._end_work("answer_window"))

    def _disarm_window(self) -> None:
        if self._window_timer is not None:
            self._window_timer.cancel()
            self._window_timer = None

    @classmethod
    def overrides_before_handle(cls) -> bool:
        """Whether the tool has questions before a handle is given."""
        return cls.before_handle is not Task.before_handle


def _latest(reports: list[Progress]) -> list[Progress]:
    """The latest of them, in bounds."""
    kept = reports[-KEPT_PROGRESS:]
    while len(kept) > 1 and sum(len(report.message or "") for report in kept) > KEPT_PROGRESS_CHARS:
        kept = kept[1:]
    return kept


_EXPIRY: Final[Mapping[str, str]] = {
    "lifetime": "The task's lifetime ended.",
    "answer_window": "Nobody answered in time.",
}
