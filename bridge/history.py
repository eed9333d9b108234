"""What happened to a task, in the words of its owner and of an auditor: a fold over the events of its runs.

Pure: events in, entries out. It tells who asked for what, who answered and when, which steps ran and how it ended;
never arguments, results, or what an answer said, so that whoever reviews a task need not be trusted with its data.

A key counts as asked when the workflow first published it, and as answered by the first answer that fits of somebody
who may give it, which is how the workflow itself decides. A workflow that publishes no views (docs/contract.md,
"Workflows of others") has no questions here, and every answer to it counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, Final

from bridge.describe import utc
from bridge.events import (
    AnswersCame,
    CancelRequested,
    Event,
    RunClosed,
    StepEnded,
    StepScheduled,
    StepStarted,
    ViewPublished,
)
from bridge.status import Terminal
from workflows.kit.answerers import may_answer
from workflows.kit.contract import Actor, Answerer, PageForm, Principal, TaskMemo, cut, timestamp
from workflows.kit.questions import ELICITATION, MAX_KEY_CHARS, answer_problem, check_request

HISTORY_VERSION: Final = 1

MAX_KEYS_TOLD: Final = 20
"""Of one delivery, whose keys are the sender's: beyond what was asked there may be any number of any length."""

_MAX_REFERENCE_CHARS: Final = 200

Entry = dict[str, Any]


@dataclass(frozen=True)
class _Known:
    """The task's state after the events so far. `open` is None while its open questions are not known."""

    status: str = "working"
    open: Mapping[str, Mapping[str, Any]] | None = None
    answerers: Mapping[str, Answerer] = field(default_factory=dict)
    page_forms: Mapping[str, PageForm] = field(default_factory=dict)


class History:
    """The entries of one task, in the order in which things happened."""

    def __init__(self, memo: TaskMemo) -> None:
        created = {"tool": memo.tool, "by": _principal(memo.owner), "argumentsDigest": memo.arguments_digest}
        self.entries: list[Entry] = [_entry("created", memo.created_at) | created]
        self._owner = memo.owner
        self.told_chars = 0
        """Length of all messages so far: the only part of an entry whose length is the author's."""
        self._known = self._at_start = _Known()
        self._steps: dict[int, StepScheduled] = {}
        self._attempts: dict[int, StepStarted] = {}
        self._taken: set[tuple[int, datetime]] = set()
        self._copied: set[tuple[int, datetime]] = set()

    def take(self, event: Event) -> None:
        """Work in the next event of the run."""
        entries = self._told_by(event)
        self._taken.add((event.id, event.at))
        if (event.id, event.at) not in self._copied:
            self.entries += entries
            self.told_chars += sum(len(entry.get("message", "")) for entry in entries)

    def next_run(self, *, by_reset: bool) -> None:
        """The events of the next run follow. One that was made by a reset repeats those before the point to which the
        task was set back; what was open there is open again.
        """
        if by_reset:
            self._known, self._copied = self._at_start, self._taken
        else:
            self._at_start, self._copied = self._known, set()
        self._taken = set()
        self._steps.clear()
        self._attempts.clear()

    def end(self, state: Terminal) -> None:
        """The task ended; nothing follows."""
        ended = _entry("ended", state.closed_at) | {"status": state.status}
        if state.result is not None and state.result.get("isError") is True:
            ended["isError"] = True
        self.entries.append(ended)

    def to_json(self, task_id: str, *, truncated: bool) -> dict[str, Any]:
        """The whole as JSON data; `truncated` says that events are missing."""
        return {"v": HISTORY_VERSION, "taskId": task_id, "truncated": truncated, "entries": self.entries}

    def _told_by(self, event: Event) -> list[Entry]:
        match event:
            case ViewPublished():
                return self._viewed(event)
            case AnswersCame():
                return self._answered(event)
            case CancelRequested():
                return [_entry("cancel_requested", event.at) | {"by": cut(event.by, _MAX_REFERENCE_CHARS)}]
            case StepScheduled():
                self._steps[event.id] = event
                return [_entry("step_scheduled", event.at) | {"step": event.step, "stepId": event.id}]
            case StepStarted():
                self._attempts[event.scheduled] = event
                return []
            case StepEnded():
                return [self._step_ended(event)]
            case RunClosed(by_reset=True):
                return [_entry("set_back", event.at)]
            case _:
                return []

    def _viewed(self, event: ViewPublished) -> list[Entry]:
        before = self._known
        if event.view is None:  # only questions make a view so large
            status, asked = "input_required", None
            told_before = before.status == status and before.open is None
            entries = [] if told_before else [_entry("asked", event.at)]
        else:
            asked = event.view.input_requests or {}
            status = "input_required" if event.view.status == "input_required" and asked else "working"
            gone = [key for key in before.open or {} if key not in asked]
            entries = [_entry("withdrawn", event.at) | {"key": key} for key in gone]
            new = [(key, request) for key, request in asked.items() if key not in (before.open or {})]
            entries += [_entry("asked", event.at) | _question(key, request) for key, request in new]
        if status != before.status:
            entries.append(_entry("status_changed", event.at) | {"status": status})
        answerers = (event.view.answerers if event.view else None) or {}
        self._known = _Known(status, asked, answerers, (event.view.page_forms if event.view else None) or {})
        return entries

    def _answered(self, event: AnswersCame) -> list[Entry]:
        update, still_open = event.update, self._known.open
        answerers, page_forms = self._known.answerers, self._known.page_forms
        by: Entry = {}
        if update.actor is not None:
            by = {"by": _principal(update.actor), "channel": update.actor.channel}
        if still_open is None:
            taken = dict(islice(update.responses.items(), MAX_KEYS_TOLD))
        else:
            taken = {
                key: answer
                for key, answer in update.responses.items()
                if key in still_open
                and may_answer(answerers.get(key), self._owner, update.actor)
                and _fits(still_open[key], page_forms.get(key), answer, update.actor)
            }
            still_open = {key: request for key, request in still_open.items() if key not in taken}
            self._known = _Known(self._known.status, still_open, answerers, page_forms)
        entries = [_entry("answered", event.at) | _answer(key, answer) | by for key, answer in taken.items()]
        if update.handle:
            entries.append(_entry("handle_given", event.at) | by)
        left = [key for key in update.responses if key not in taken]
        if left:
            what = "answers_offered" if update.offered else "answers_ignored"
            entries.append(_entry(what, event.at) | {"keys": _keys(left), "count": len(left)} | by)
        return entries

    def _step_ended(self, event: StepEnded) -> Entry:
        scheduled, started = self._steps.pop(event.scheduled, None), self._attempts.pop(event.scheduled, None)
        entry = _entry(f"step_{event.end}", event.at)
        entry |= {"step": scheduled.step if scheduled else "", "stepId": event.scheduled}
        if started is not None:
            entry |= {"attempts": started.attempts, "startedAt": timestamp(started.at)}
        return entry


def _entry(event: str, at: datetime) -> Entry:
    return {"at": timestamp(utc(at)), "event": event}


def _principal(principal: Principal) -> Entry:
    """`principal` without what else a signal may have carried."""
    named = {"issuer": principal.issuer, "subject": principal.subject, "client": principal.client}
    return {name: value for name, value in named.items() if value is not None}


def _fits(request: Mapping[str, Any], page: PageForm | None, answer: Any, actor: Actor | None) -> bool:
    """Whether the answer can be used; a question that MCP does not define takes what its workflow takes."""
    try:
        check_request(request)
    except (AttributeError, KeyError, TypeError):
        return True
    return answer_problem(request, page, answer, actor) is None


def _question(key: str, request: Mapping[str, Any]) -> Entry:
    """A question. What a person is asked is told; what a model is asked (sampling) is the task's data."""
    method, params = str(request.get("method", "")), request.get("params")
    message = params.get("message") if isinstance(params, Mapping) else None
    told: Entry = {"key": key, "method": method}
    return told | {"message": cut(message)} if method == ELICITATION and isinstance(message, str) else told


def _answer(key: str, answer: Any) -> Entry:
    """An answer without what it says."""
    action = answer.get("action") if isinstance(answer, Mapping) else None
    told: Entry = {"key": cut(key, MAX_KEY_CHARS)}
    return told | {"action": action} if action in ("accept", "decline", "cancel") else told


def _keys(keys: Iterable[str]) -> list[str]:
    return [cut(key, MAX_KEY_CHARS) for key in islice(keys, MAX_KEYS_TOLD)]
