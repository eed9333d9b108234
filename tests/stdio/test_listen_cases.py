"""What only stdio has of the listen halves: many subscriptions on one pipe (PE-01, TR-13), and its ends (TR-14).

The client takes each line for one message, so whatever else came on the pipe would fail every test here. What holds of
both transports is in tests/cases/test_listen_*.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from bridge.dev_server import free_port
from tests.cases.client import accept
from tests.cases.listening import SUBSCRIPTION
from tests.cases.stack import Stack
from tests.cases.subscribers import PipeSubscriber, listen_params, pipe_subscriber, same_id
from tests.stdio.client import StdioClient, call, cancelled, line_of, parsed, request, start_process, stdio_client
from tests.wire import Wire

pytestmark = pytest.mark.asyncio(loop_scope="session")

TASKS: Final = ("--tasks", "tests.fixtures.cases")


@pytest_asyncio.fixture(loop_scope="session")
async def later(stack: Stack) -> AsyncIterator[StdioClient]:
    """A process that comes after the one under test."""
    async with stdio_client(stack.environment) as client:
        yield client


# PE-01


async def test_ids_that_look_alike_are_four_subscriptions_and_a_cancel_ends_one(server: StdioClient) -> None:
    task_id = await server.start("slow", {"seconds": 60})
    ids: list[Any] = [7, "7", "007", "1_000"]
    listening = {json.dumps(an_id): await pipe_subscriber(server, [task_id], id=an_id) for an_id in ids}
    for subscriber in listening.values():
        await subscriber.told(task_id)
    await server.send(cancelled("007"))
    await server.alive()  # the cancel has been taken
    ended = listening.pop('"007"')
    before = list(ended.messages)
    await server.result(request("tasks/cancel", {"taskId": task_id}))
    for subscriber in listening.values():
        assert (await subscriber.ended(task_id))["status"] == "cancelled"
    server.end_input()
    assert await server.status() == 0
    for subscriber in listening.values():
        response = subscriber.messages[-1]
        assert same_id(response["id"], subscriber.id)
        assert same_id(response["result"]["_meta"][SUBSCRIPTION], subscriber.id)
    assert ended.messages == before
    responses = Counter(json.dumps(message["id"]) for message in server.messages if "method" not in message)
    assert all(responses[json.dumps(an_id)] == (an_id != "007") for an_id in ids)


async def test_an_id_may_be_used_again_once_its_subscription_was_cancelled(server: StdioClient) -> None:
    task_id = await server.start("ask", {"n": 1})
    await pipe_subscriber(server, [task_id], id="again")
    await server.send(cancelled("again"))
    await server.alive()
    server.messages.clear()
    subscriber = await pipe_subscriber(server, [task_id], id="again")
    await subscriber.told(task_id, "input_required")
    await server.result(request("tasks/cancel", {"taskId": task_id}))
    assert (await subscriber.ended(task_id))["status"] == "cancelled"


# TR-13

MIXED: Final[list[tuple[str, dict[str, Any]]]] = [
    ("server/discover", {}),
    ("tools/list", {}),
    ("tasks/get", {"taskId": "task-unknown"}),
    ("tools/call", {"name": "unknown", "arguments": {}}),
    ("nonsense", {}),
]


async def test_an_open_subscription_and_a_slow_call_hold_up_nothing(server: StdioClient) -> None:
    """All at once: a listen, a call that takes 8 seconds, reads, a cancel, a hundred requests. The cancel's outcome is
    told before the call ends, and each id is answered once.
    """
    task_id = await server.start("slow", {"seconds": 60})
    server.messages.clear()
    slow = call("slow", {"seconds": 8}, capabilities={}, id="slow")
    listen = request("subscriptions/listen", listen_params([task_id]), id="listen")
    about = [request(f"tasks/{what}", {"taskId": task_id}, id=what) for what in ("get", "cancel")]
    mixed = [request(*MIXED[number % len(MIXED)], id=number) for number in range(100)]
    await server.send(listen, slow, *about, *mixed, request("server/discover", id="last"))
    subscriber = PipeSubscriber(server, "listen")
    assert (await subscriber.ended(task_id))["status"] == "cancelled"
    await asyncio.gather(*(server.response(message["id"]) for message in (*about, *mixed, {"id": "last"})))
    assert server.responses("slow") == []
    await server.response("slow")
    assert subscriber.messages[0]["method"] == "notifications/subscriptions/acknowledged"
    responses = Counter(message["id"] for message in server.messages if "method" not in message)
    assert responses == Counter(["slow", "get", "cancel", *range(100), "last"])


async def test_a_hundred_subscriptions_are_each_told_by_their_own_id(server: StdioClient) -> None:
    task_ids = [await server.start("ask", {"n": 1}) for _ in range(10)]
    listening = [
        (task_id, await pipe_subscriber(server, [task_id], id=f"{number}-{task_id}"))
        for number in range(10)
        for task_id in task_ids
    ]
    for task_id, subscriber in listening:
        ((key, _),) = (await subscriber.told(task_id, "input_required"))["inputRequests"].items()
        if subscriber.id.startswith("9-"):
            answers = {"taskId": task_id, "inputResponses": {key: accept(text="yes")}}
            await server.result(request("tasks/update", answers))
    for task_id, subscriber in listening:
        assert (await subscriber.ended(task_id))["status"] == "completed"
        assert len(subscriber.messages) == 1 + len(subscriber.tasks(task_id))


async def test_what_needs_no_engine_is_answered_beside_subscriptions_while_the_engine_hangs(
    stack: Stack, later: StdioClient
) -> None:
    """Beside one that is open, and one that hangs because nothing is known of its task yet."""
    stranger = await later.start("ask", {"n": 1})
    wire = Wire(stack.temporal.address)
    await wire.open()
    try:
        async with stdio_client(stack.environment, TEMPORAL_ADDRESS=wire.address) as server:
            task_id = await server.start("ask", {"n": 1})
            subscriber = await pipe_subscriber(server, [task_id])
            await subscriber.told(task_id, "input_required")
            wire.flowing.clear()
            hanging = request("subscriptions/listen", listen_params([stranger]), id="hanging")
            await server.send(hanging, *(request("server/discover", id=number) for number in range(20)))
            for number in range(20):
                await server.response(number)
            assert PipeSubscriber(server, "hanging").messages == []
            await server.send(cancelled("hanging"))
            await server.alive()
            wire.flowing.set()
            await server.result(request("tasks/cancel", {"taskId": task_id}))
            assert (await subscriber.ended(task_id, within=60))["status"] == "cancelled"
            assert PipeSubscriber(server, "hanging").messages == []
    finally:
        await wire.cut()


# TR-14


async def test_a_file_with_a_subscription_in_it_is_answered_to_its_end(
    stack: Stack, later: StdioClient, tmp_path: Path
) -> None:
    """`mcp-tasks stdio < in > out`: three responses, and the subscription's; the task goes on."""
    task_id = await later.start("slow", {"seconds": 8})
    messages = [
        request("server/discover", id="discover"),
        request("subscriptions/listen", listen_params([task_id]), id="listen"),
        call("slow", {"seconds": 3}, id="task"),
        call("echo", {"x": 1}, id="echo"),
    ]
    (tmp_path / "in").write_bytes(b"".join(map(line_of, messages)))
    with (tmp_path / "in").open("rb") as given, (tmp_path / "out").open("wb") as out:
        process = await start_process(stack.environment, *TASKS, stdin=given, stdout=out)
        async with asyncio.timeout(30):
            assert await process.wait() == 0
    with (tmp_path / "out").open("rb") as file:
        written = list(map(parsed, file))
    responses = [message for message in written if "method" not in message]
    assert sorted(message["id"] for message in responses) == ["discover", "echo", "listen", "task"]
    answers = {message["id"]: message["result"] for message in responses}
    assert answers["listen"]["resultType"] == "complete"
    assert same_id(answers["listen"]["_meta"][SUBSCRIPTION], "listen")
    for started in (task_id, answers["task"]["taskId"]):
        assert (await later.finished(started))["status"] == "completed"


@pytest.mark.parametrize("end", ["input", signal.SIGTERM, signal.SIGINT], ids=["input", "SIGTERM", "SIGINT"])
async def test_an_end_gives_each_subscription_its_result_last_and_the_task_goes_on(
    server: StdioClient, later: StdioClient, end: str | signal.Signals
) -> None:
    task_id = await server.start("ask", {"n": 1})
    listening = [await pipe_subscriber(server, [task_id]) for _ in range(5)]
    for subscriber in listening:
        await subscriber.told(task_id, "input_required")
    if isinstance(end, signal.Signals):
        server.process.send_signal(end)
    else:
        server.end_input()
    assert await server.status() == 0
    for subscriber in listening:
        *told, response = subscriber.messages
        assert all("method" in message for message in told)
        assert response["result"]["resultType"] == "complete"
        assert same_id(response["result"]["_meta"][SUBSCRIPTION], subscriber.id)
    again = await pipe_subscriber(later, [task_id])
    (key,) = (await again.told(task_id, "input_required"))["inputRequests"]
    await later.result(request("tasks/update", {"taskId": task_id, "inputResponses": {key: accept(text="later")}}))
    assert (await again.ended(task_id))["result"]["structuredContent"]["answers"] == [["Question 0", "later"]]


async def test_an_output_that_nobody_reads_ends_a_subscriber_s_process_quietly(
    stack: Stack, later: StdioClient, tmp_path: Path
) -> None:
    """What is told is what finds the pipe broken: nothing else is asked of the process."""
    task_id = await later.start("ask", {"n": 1})
    (key,) = await later.parked(task_id)
    reading, writing = os.pipe()
    with (tmp_path / "log").open("wb") as log, os.fdopen(reading, "rb", 0) as output:
        process = await start_process(stack.environment, *TASKS, stdout=writing, stderr=log)
        os.close(writing)
        assert process.stdin is not None
        try:
            process.stdin.write(line_of(request("subscriptions/listen", listen_params([task_id]))))
            for _ in range(2):  # the acknowledgement, and the question
                parsed(await asyncio.to_thread(output.readline))
            output.close()
            await later.result(
                request("tasks/update", {"taskId": task_id, "inputResponses": {key: accept(text="yes")}})
            )
            async with asyncio.timeout(30):
                assert await process.wait() == 0
        finally:
            process.stdin.close()
            if process.returncode is None:
                process.kill()
            await process.wait()
    assert (await later.finished(task_id))["status"] == "completed"
    assert "Traceback" not in (tmp_path / "log").read_text()


NOISY: Final = """
import os
from tests.fixtures.cases import ACTIVITIES, TASKS
print("printed at import")
os.write(1, b"written to the descriptor\\n")
"""


async def test_whatever_else_is_printed_stays_out_of_what_is_told(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "noisy_listen.py").write_text(NOISY)
    path = f"{stack.environment['PYTHONPATH']}:{tmp_path}"
    async with stdio_client(
        stack.environment, tasks="noisy_listen", PYTHONPATH=path, MCP_TASKS_LOG_LEVEL="debug"
    ) as server:
        task_id = await server.start("echo_task", {"x": "print"})
        subscriber = await pipe_subscriber(server, [task_id])
        assert (await subscriber.ended(task_id))["status"] == "completed"
        server.end_input()
        assert await server.status() == 0
        assert "printed at import" in server.errors


async def test_without_temporal_a_subscription_is_an_error_at_once_and_one_without_tasks_is_served(
    stack: Stack,
) -> None:
    address = f"127.0.0.1:{free_port()}"
    async with stdio_client(stack.environment, TEMPORAL_ADDRESS=address) as server:
        message = request("subscriptions/listen", listen_params([f"task-{'0' * 32}"]))
        error = (await server.ask(message))["error"]
        assert (error["code"], error["data"]) == (-32603, {"retryAfterMs": 1000})
        assert await (await pipe_subscriber(server, [])).acknowledged() == {}
        server.end_input()
        assert await server.status() == 0
