"""None of the transitions of many subscribed tasks is missed or out of order, with a bridge restart in the middle.

Each task asks its questions one after the other, and each answer is one transition: to the next question, or to the
end. Subscribers listen at one bridge (several streams, each with a share of the tasks); answers are given, and the
truth is read, through another. Halfway all pause until the streams have told everything; then answers flow again, and
the bridge of the streams dies under them and is started again at its port, where the subscribers listen anew.

Asserted of each task, with its truth being the sequence of its questions' keys in the order in which another bridge
read them, and then its end as tasks/get gives it (`completed`):
1. From the first state told until the pause, with a stream up all the time: exactly the truth up to there. Nothing
   missed, doubled or swapped. (The first answers are given when the first state of each task was told.)
2. From the pause to the death of the stream: it goes on by the truth, without a gap, as far as it came.
3. After the restart: first the newest state, which is none older than what had been read before the new listen was
   sent, and none older than what the first stream had told; from there to the end again exactly the truth.
4. The end is told once, equal to what tasks/get says, and nothing after it.

So what no listener could see is only what came and went while no stream was up. How many those were is printed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.cases.client import TERMINAL, McpClient, accept
from tests.cases.counts import counts
from tests.cases.stack import Process, Stack
from tests.cases.subscribers import HttpSubscriber, http_subscriber
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

STREAMS: Final = 5
AT_ONCE: Final = 8
"""Tasks that are being answered at a time; the others have their turn in between."""


@dataclass
class Told:
    """One task, what it went through, and what was told of it before and after the restart."""

    task_id: str
    truth: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)


def state(task: dict[str, Any]) -> str | None:
    """The key of the one open question, or the terminal status; None while the task is between two questions."""
    if task["status"] in TERMINAL:
        return str(task["status"])
    return next(iter(task.get("inputRequests", {})), None)


def account(streams: Sequence[HttpSubscriber], task_id: str) -> list[str]:
    """The states that were told of a task, in order, on the one stream that has it."""
    told = [state(task) for stream in streams for task in stream.tasks(task_id)]
    return [one for one in told if one is not None]


async def answer(client: McpClient, task: Told, upto: int) -> None:
    """Answer, until the truth of the task has `upto` states."""

    async def moved_on() -> dict[str, Any] | None:
        got = (await client.get(task.task_id)).result
        return got if (now := state(got)) is not None and now not in task.truth else None

    while len(task.truth) < upto:
        if task.truth:
            reply = await client.update(task.task_id, {task.truth[-1]: accept(text=f"{len(task.truth)}")})
            assert reply.code is None
        got = await eventually(moved_on, what="the next state", within=60)
        task.truth.append(str(state(got)))
        if got["status"] in TERMINAL:
            task.end = got


async def answer_all(client: McpClient, tasks: Sequence[Told], upto: int) -> None:
    """The same for all tasks, a few at a time and a few states each, so that all move on together."""
    few = asyncio.Semaphore(AT_ONCE)

    async def one(task: Told, until: int) -> None:
        async with few:
            await answer(client, task, until)

    for until in range(len(tasks[0].truth) + 1, upto + 1):
        await asyncio.gather(*(one(task, until) for task in tasks))


async def listen_to(streams: AsyncExitStack, client: McpClient, tasks: Sequence[Told]) -> list[HttpSubscriber]:
    """Streams that share the tasks."""
    shares = [[task.task_id for task in tasks[number::STREAMS]] for number in range(STREAMS)]
    return [await streams.enter_async_context(http_subscriber(client, share)) for share in shares]


async def all_told(streams: Sequence[HttpSubscriber], tasks: Sequence[Told]) -> None:
    """Wait until the streams have told of each task what it went through, all of it and nothing else."""

    async def agree() -> bool:
        return all(account(streams, task.task_id) == task.truth for task in tasks)

    try:
        await eventually(agree, what="all transitions", within=30)
    except AssertionError:
        told = {task.task_id: (task.truth, account(streams, task.task_id)) for task in tasks}
        raise AssertionError(f"truth and told: {[pair for pair in told.values() if pair[0] != pair[1]]}") from None


@counts("count,questions", cut=(40, 6), full=(100, 10))
@pytest.mark.parametrize("how", ["killed", pytest.param("stopped", marks=pytest.mark.full)])
async def test_no_transition_is_missed_or_out_of_order_with_a_restart_in_the_middle(
    client: McpClient,
    stack: Stack,
    worker: Process,
    capsys: pytest.CaptureFixture[str],
    how: str,
    count: int,
    questions: int,
) -> None:
    serving = await stack.bridge()
    port = int(serving.url.rsplit(":", 1)[1].split("/")[0])
    tasks = [Told(await client.start("ask", {"n": questions})) for _ in range(count)]
    half, meanwhile, whole = 1 + questions // 2, 3 + questions // 2, 1 + questions
    async with McpClient(serving.url) as subscriber, AsyncExitStack() as opened:
        await answer_all(client, tasks, 1)
        streams = await listen_to(opened, subscriber, tasks)
        await all_told(streams, tasks)
        await answer_all(client, tasks, half)
        await all_told(streams, tasks)
        going_on = asyncio.create_task(answer_all(client, tasks, meanwhile))

        async def under_way() -> bool:
            return sum(len(task.truth) for task in tasks) >= count * half + count // 2

        await eventually(under_way, what="transitions after the pause", within=60)
        await (serving.kill() if how == "killed" else serving.stop())
        await asyncio.wait_for(asyncio.gather(*(stream.reading for stream in streams)), 30)
        for task in tasks:
            task.before = account(streams, task.task_id)
    restarted = await stack.bridge(port=port)
    async with McpClient(restarted.url) as subscriber, AsyncExitStack() as opened:
        read = {task.task_id: len(task.truth) for task in tasks}
        streams = await listen_to(opened, subscriber, tasks)
        await going_on
        await answer_all(client, tasks, whole)
        for number, task in enumerate(tasks):
            assert await streams[number % STREAMS].ended(task.task_id) == task.end
        await client.alive()  # a further moment, in which nothing more may come
        for task in tasks:
            task.after = account(streams, task.task_id)
    await restarted.kill()
    unseen = sum(check(task, half, read[task.task_id]) for task in tasks)
    with capsys.disabled():
        told = sum(len(set(task.before + task.after)) - 1 for task in tasks)
        sys.stdout.write(f"\ntransitions: {count * questions}, told: {told}, while no stream was up: {unseen}\n")


def check(task: Told, half: int, read: int) -> int:
    """The four assertions of this module; returns how many states came and went while no stream was up."""
    assert len(task.truth) == len(set(task.truth)), "every state is one of its own"
    assert task.truth[-1] == "completed"
    assert task.before[:half] == task.truth[:half]
    assert task.before == task.truth[: len(task.before)]
    joined = task.truth.index(task.after[0])
    assert task.after == task.truth[joined:]
    assert joined >= max(read, len(task.before)) - 1
    return max(0, joined - len(task.before))
