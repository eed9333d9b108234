"""How a process ends: its input ends, it is told to, or nobody reads it. Meanwhile it writes messages and nothing
else."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

import pytest
import pytest_asyncio

from bridge.dev_server import free_port
from tests.cases.client import accept
from tests.cases.stack import Stack
from tests.stdio.client import StdioClient, call, cancelled, line_of, parsed, request, start_process, stdio_client
from tests.stdio.runs import is_cancelled, is_running
from tests.support import eventually, unique

pytestmark = pytest.mark.asyncio(loop_scope="session")

INTERRUPTED = {
    "code": -32603,
    "message": "The request was interrupted. Send it again.",
    "data": {"retryAfterMs": 1000},
}

TASKS = ("--tasks", "tests.fixtures.cases")


@pytest_asyncio.fixture(loop_scope="session")
async def later(stack: Stack) -> AsyncIterator[StdioClient]:
    """A process that comes after the one under test."""
    async with stdio_client(stack.environment) as client:
        yield client


async def test_what_is_in_flight_at_the_end_of_a_file_is_answered(
    stack: Stack, later: StdioClient, tmp_path: Path
) -> None:
    """`mcp-tasks stdio < in > out`."""
    waits, tells = unique("waits"), unique("tells")
    messages = [
        request("server/discover", id="discover"),
        call("slow", {"seconds": 2, "label": waits}, capabilities={}, id="waits"),
        call("slow", {"seconds": 6, "label": tells}, id="task"),
        call("echo", {"x": 1}, id="echo"),
    ]
    (tmp_path / "in").write_bytes(b"".join(map(line_of, messages)).rstrip())
    with (tmp_path / "in").open("rb") as given, (tmp_path / "out").open("wb") as out:
        process = await start_process(stack.environment, *TASKS, stdin=given, stdout=out)
        async with asyncio.timeout(30):
            assert await process.wait() == 0
    with (tmp_path / "out").open("rb") as file:
        answers = {message["id"]: message["result"] for message in map(parsed, file)}
    assert answers.keys() == {"discover", "waits", "task", "echo"}
    assert answers["waits"]["structuredContent"] == {"steps": 1}
    assert answers["echo"]["structuredContent"] == {"x": 1}
    assert (await later.finished(answers["task"]["taskId"]))["status"] == "completed"
    assert (stack.side_effects(waits), stack.side_effects(tells)) == (1, 1)


async def test_an_input_without_anything_ends_it_without_a_word(stack: Stack) -> None:
    process = await start_process(stack.environment, *TASKS, stdin=asyncio.subprocess.DEVNULL)
    async with asyncio.timeout(30):
        output, _ = await process.communicate()
    assert (process.returncode, output) == (0, b"")


async def goes_on(later: StdioClient, task_id: str) -> None:
    """The task that asks can still be answered."""
    (key,) = await later.parked(task_id)
    answers = {key: accept(text="later")}
    await later.result(request("tasks/update", {"taskId": task_id, "inputResponses": answers}))
    assert (await later.finished(task_id))["result"]["structuredContent"]["answers"] == [["Question 0", "later"]]


async def with_two_runs(stack: Stack, server: StdioClient, label: str) -> str:
    """Both run when this returns: a call that waits for a minute, as "slow", and a task that asks, whose id is
    returned.
    """
    task_id = await server.start("ask", {"n": 1})
    await server.send(call("slow", {"seconds": 60, "label": label}, capabilities={}, id="slow"))
    await is_running(stack, label)
    return task_id


@pytest.mark.parametrize("end", ["input", signal.SIGTERM, signal.SIGINT])
async def test_an_end_cuts_off_what_outlasts_its_grace_and_leaves_tasks_alone(
    stack: Stack, server: StdioClient, later: StdioClient, end: str | signal.Signals
) -> None:
    label = unique("cut")
    task_id = await with_two_runs(stack, server, label)
    if isinstance(end, signal.Signals):
        server.process.send_signal(end)
    else:
        server.end_input()
    assert await server.status() == 0
    (response,) = server.responses("slow")
    assert response["error"] == INTERRUPTED
    await is_cancelled(stack, label)
    await goes_on(later, task_id)


async def test_a_ctrl_c_after_a_signal_ends_it_at_once(stack: Stack, server: StdioClient) -> None:
    await with_two_runs(stack, server, unique("twice"))
    server.process.send_signal(signal.SIGTERM)

    async def stopping() -> bool:
        return "stdio.ending" in server.errors

    await eventually(stopping, what="the first signal")
    server.process.send_signal(signal.SIGINT)
    assert await server.status() == 128 + signal.SIGINT


@asynccontextmanager
async def unread_process(
    stack: Stack, log: Path, *, start_new_session: bool = False
) -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.StreamWriter, BinaryIO]]:
    """A process, its input, and its output, of which nothing is read ahead."""
    reading, writing = os.pipe()
    with log.open("wb") as file, os.fdopen(reading, "rb", 0) as output:
        process = await start_process(
            stack.environment, *TASKS, stdout=writing, stderr=file, start_new_session=start_new_session
        )
        os.close(writing)
        assert process.stdin is not None
        try:
            yield process, process.stdin, output
        finally:
            process.stdin.close()
            if process.returncode is None:
                process.kill()
            await process.wait()


def read_line(output: BinaryIO) -> bytes:
    """One line, a byte at a time: what follows stays where it is."""
    line = b""
    while not line.endswith(b"\n"):
        line += output.read(1)
    return line


async def ended(process: asyncio.subprocess.Process, *, within: float = 30.0) -> int:
    async with asyncio.timeout(within):
        return await process.wait()


async def test_an_output_that_nobody_reads_any_more_ends_it_quietly(
    stack: Stack, later: StdioClient, tmp_path: Path
) -> None:
    label = unique("unread")
    async with unread_process(stack, tmp_path / "log") as (process, given, output):
        given.write(line_of(call("ask", {"n": 1})))
        task_id = parsed(await asyncio.to_thread(read_line, output))["result"]["taskId"]
        given.write(line_of(call("slow", {"seconds": 60, "label": label}, capabilities={})))
        await is_running(stack, label)
        output.close()
        given.write(line_of(request("server/discover")))
        assert await ended(process) == 0
    await is_cancelled(stack, label)
    await goes_on(later, task_id)
    assert "Traceback" not in (tmp_path / "log").read_text()


async def test_a_client_that_does_not_read_is_not_waited_for_at_the_end(stack: Stack, tmp_path: Path) -> None:
    async with unread_process(stack, tmp_path / "log") as (process, given, _):
        given.write(b"".join(line_of(request("tools/list")) for _ in range(100)))
        given.close()
        assert await ended(process) == 0


async def test_a_client_that_reads_slowly_loses_nothing_and_holds_up_nobody(stack: Stack, tmp_path: Path) -> None:
    label, text = unique("slowly"), "x" * 200_000
    async with unread_process(stack, tmp_path / "log") as (process, given, output):
        large = [call("echo", {"x": text}) for _ in range(20)]
        given.write(b"".join(map(line_of, large)))
        given.write(line_of(call("slow", {"seconds": 60, "label": label}, capabilities={}, id="slow")))
        await is_running(stack, label)
        given.write(line_of(cancelled("slow")))
        await is_cancelled(stack, label)  # while nothing of the others was read
        lines = [await asyncio.to_thread(output.readline) for _ in large]
        assert {parsed(line)["id"] for line in lines} == {message["id"] for message in large}
        given.close()
        assert await ended(process) == 0
        assert output.read() == b""


NOISY = """
import os, subprocess, sys, warnings
from tests.fixtures.cases import ACTIVITIES, TASKS
print("printed at import")
sys.__stdout__.write("written at import\\n")
os.write(1, b"written to the descriptor\\n")
warnings.warn("warned at import")
subprocess.run(["/bin/sh", "-c", "echo of a child process; cat"], check=True)
"""


async def test_whatever_else_is_printed_goes_to_standard_error(stack: Stack, tmp_path: Path) -> None:
    """And a child process finds nothing to read: the client's lines are ours."""
    (tmp_path / "noisy_tasks.py").write_text(NOISY)
    path = f"{stack.environment['PYTHONPATH']}:{tmp_path}"
    async with stdio_client(stack.environment, tasks="noisy_tasks", PYTHONPATH=path) as server:
        await server.send(call("echo", {"x": 1}, id="echo"))
        await server.response("echo")
        server.end_input()
        assert await server.status() == 0
        assert len(server.messages) == 1  # each line was a message, or reading it would have failed
        for words in ("printed at import", "written at import", "written to the descriptor", "of a child process"):
            assert words in server.errors


async def test_without_temporal_it_starts_and_says_so(stack: Stack) -> None:
    address = f"127.0.0.1:{free_port()}"
    async with stdio_client(stack.environment, TEMPORAL_ADDRESS=address) as server:
        await server.alive()
        for message in (call("echo", {"x": 1}), request("tasks/get", {"taskId": f"task-{'0' * 32}"})):
            error = (await server.ask(message))["error"]
            assert (error["code"], error["data"]) == (-32603, {"retryAfterMs": 1000})
        await server.send(call("echo", {"x": 1}, id="last"))
        server.end_input()
        assert await server.status() == 0
        assert (await server.response("last"))["error"]["code"] == -32603


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
async def test_a_channel_that_is_closed_from_the_start_is_an_error_in_one_line(stack: Stack, closed: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", f'exec "$0" -m bridge.cli stdio {closed}', sys.executable),
        env=stack.environment,
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(30):
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert errors == b"mcp-tasks: standard input, output and error must be open\n"


async def test_no_process_is_left_behind(stack: Stack, tmp_path: Path) -> None:
    async with unread_process(stack, tmp_path / "log", start_new_session=True) as (process, given, output):
        given.write(line_of(call("echo", {"x": 1})))
        await asyncio.to_thread(read_line, output)
        assert process.pid in members_of_session(process.pid)
        given.close()
        assert await ended(process) == 0
    assert members_of_session(process.pid) == []


def members_of_session(session: int) -> list[int]:
    """The processes of a session, from the kernel's table."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        if int(fields[3]) == session:
            found.append(int(status.parent.name))
    return found


async def test_it_needs_no_sealing_key_and_says_what_that_means(stack: Stack) -> None:
    environment = {name: value for name, value in stack.environment.items() if name != "MCP_TASKS_SEALING_KEYS"}
    async with stdio_client(environment, MCP_TASKS_LOG_LEVEL="info") as server:
        task_id = await server.start("echo_task", {"x": 1})
        assert "do not outlive this process" in server.errors
    async with stdio_client(environment) as server:
        assert (await server.finished(task_id))["result"]["structuredContent"] == {"x": 1}
        await server.result(request("tasks/cancel", {"taskId": task_id}))
