"""Acknowledged means gone: after a bridge acknowledged an update, no later read at it shows its key as open, and none
takes back what it has shown. Another bridge, which watches tasks that are read this often, may be behind for a moment.

In the manner in which such reads go wrong: slow workflow tasks, timers, heartbeats, a worker that keeps three runs in
memory and replays the others, runs that continue as new every few questions, answers that race each other through two
bridges, and readers all the while. A read that meets no worker in time may be vague, never ask again what was answered.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from bridge.dev_server import temporal_binary
from bridge.watch import STALE_SECONDS
from tests.cases.client import TERMINAL, McpClient, accept
from tests.cases.counts import counts
from tests.cases.stack import Programs, program_environment
from tests.encryption import CONVERTER
from tests.fixtures.stress import ACTIVITIES, TASKS
from workflows.kit.contract import SEARCH_ATTRIBUTES

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODULE: Final = "tests.fixtures.stress"
STICKY_CACHE: Final = 3
READERS: Final = 3
"""Per task and bridge, so that queries are shared."""

SUGGEST_CONTINUE_AS_NEW: Final = 60
"""Events after which the server suggests to continue as new; a round takes about 40."""

CHANCE: Final = random.Random(5)  # noqa: S311 - delays, not secrets


@dataclass
class Watched:
    """One task, and what is known of it: per bridge, the keys whose update it has acknowledged, and when; the keys that
    it has shown, and those that it no longer shows.
    """

    task_id: str
    acknowledged: tuple[dict[str, float], dict[str, float]] = field(default_factory=lambda: ({}, {}))
    shown: tuple[set[str], set[str]] = field(default_factory=lambda: (set(), set()))
    gone: tuple[set[str], set[str]] = field(default_factory=lambda: (set(), set()))
    answered: dict[str, str] = field(default_factory=dict)
    over: bool = False


@dataclass
class Findings:
    """What all readers and answerers counted, and whatever of it must not be, in words."""

    tally: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


@counts("tasks,rounds,wanted", cut=(3, 6, 500), full=(6, 20, 5000))
async def test_no_read_shows_a_question_whose_answer_was_acknowledged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tasks: int, rounds: int, wanted: int
) -> None:
    findings = Findings()
    tally = findings.tally
    async with _stack(tmp_path) as (programs, environment):
        bridges = [await programs.bridge(MODULE), await programs.bridge(MODULE)]
        async with McpClient(bridges[0].url) as one, McpClient(bridges[1].url) as two:
            clients = (one, two)
            kinds = ("stress_rounds", "stress_aside")
            watched = [Watched(await one.start(kinds[n % 2], {"rounds": rounds * (1 + n % 2)})) for n in range(tasks)]
            readers = [_read(clients[n % 2], n % 2, task, findings) for n in range(2 * READERS) for task in watched]
            await asyncio.gather(*readers, *(_answer(clients, task, findings) for task in watched))
            results = [(await one.finished(task.task_id))["result"]["structuredContent"] for task in watched]
            for task in watched:
                run = await environment.client.get_workflow_handle(task.task_id).describe()
                tally["continued as new"] += run.raw_description.workflow_execution_info.first_run_id != run.run_id
    with capsys.disabled():
        sys.stdout.write(f"\nstress: {', '.join(f'{count} {what}' for what, count in sorted(tally.items()))}\n")
    assert not findings.wrong, "\n".join(findings.wrong)
    assert tally["reads after an acknowledgement"] >= wanted
    assert tally["continued as new"] == tasks
    for task, result in zip(watched, results, strict=True):
        given = result["answers"] or result["aside"]
        assert len(given) == len(set(given)) == len(task.answered)
        assert all(text in task.answered[text.rpartition(" ")[0]] for text in given)


async def _answer(clients: tuple[McpClient, McpClient], task: Watched, findings: Findings) -> None:
    """Answer whatever the task asks, each question by two racing updates through different bridges."""
    while not task.over:
        reply = await CHANCE.choice(clients).get(task.task_id)
        if reply.code is not None:
            findings.wrong.append(f"a read before an answer: {reply.status} {reply.message}")
            continue
        open_keys = [key for key in reply.result.get("inputRequests", {}) if key not in task.answered]
        for key in open_keys:
            task.answered[key] = f"{key} a, {key} b"
            await asyncio.gather(
                *(_update(clients[n], n, task, key, "ab"[n], findings) for n in CHANCE.sample((0, 1), 2))
            )
            await asyncio.sleep(CHANCE.uniform(0, 0.05))
        task.over = reply.result["status"] in TERMINAL
        await asyncio.sleep(0.02)


async def _update(client: McpClient, number: int, task: Watched, key: str, mark: str, findings: Findings) -> None:
    await asyncio.sleep(CHANCE.uniform(0, 0.01))
    reply = await client.update(task.task_id, {key: accept(text=f"{key} {mark}")})
    findings.tally["updates"] += 1
    if reply.code is None:
        task.acknowledged[number][key] = time.monotonic()
    else:
        findings.wrong.append(f"an update of {key}: {reply.status} {reply.message}")


async def _read(client: McpClient, number: int, task: Watched, findings: Findings) -> None:
    """Read the task over and over; what was acknowledged before a read was sent may not be asked in it."""
    while not task.over:
        here, shown, gone = set(task.acknowledged[number]), set(task.shown[number]), set(task.gone[number])
        long_ago = time.monotonic() - STALE_SECONDS
        there = {key for key, at in task.acknowledged[1 - number].items() if at < long_ago}
        reply = await client.get(task.task_id)
        if reply.code is not None:
            findings.wrong.append(f"a read: {reply.status} {reply.message}")
            continue
        asked: set[str] = set(reply.result.get("inputRequests", {}))
        findings.tally["reads"] += 1
        findings.tally["reads after an acknowledgement"] += bool(here)
        for what, keys in {
            "asked again where it was acknowledged": asked & here,
            "asked again where it was gone": asked & gone,
            "asked long after the other bridge acknowledged it": asked & there - here,
        }.items():
            if keys:
                findings.wrong.append(f"{what}: {keys} by bridge {number} of {task}: {reply.result}")
        task.shown[number].update(asked)
        # Not of what is shown by now: this read may have been sent before, and answered after, the one that showed it
        task.gone[number].update(shown - asked)
        await asyncio.sleep(CHANCE.uniform(0, 0.02))


@asynccontextmanager
async def _stack(folder: Path) -> AsyncIterator[tuple[Programs, WorkflowEnvironment]]:
    """A Temporal whose runs soon continue as new, and one worker with a small cache in this process."""
    options: list[str] = [
        "--dynamic-config-value",
        f"limit.historyCount.suggestContinueAsNew={SUGGEST_CONTINUE_AS_NEW}",
    ]
    for name in SEARCH_ATTRIBUTES:
        options += ["--search-attribute", f"{name}=Keyword"]
    restrictions = SandboxRestrictions.default.with_passthrough_modules("workflows.kit")
    async with await WorkflowEnvironment.start_local(
        data_converter=CONVERTER,
        dev_server_existing_path=temporal_binary(),
        dev_server_extra_args=options,
    ) as environment:
        temporal = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TEMPORAL_")},
            "TEMPORAL_ADDRESS": environment.client.service_client.config.target_host,
            "TEMPORAL_CONFIG_FILE": os.devnull,
        }
        programs = Programs(environment=program_environment(folder, temporal))
        worker = Worker(
            environment.client,
            task_queue="mcp-tasks",
            workflows=TASKS,
            activities=ACTIVITIES,
            workflow_runner=SandboxedWorkflowRunner(restrictions),
            max_cached_workflows=STICKY_CACHE,
            max_heartbeat_throttle_interval=timedelta(milliseconds=20),
            default_heartbeat_throttle_interval=timedelta(milliseconds=20),
        )
        async with worker:
            try:
                yield programs, environment
            finally:
                await programs.close()
