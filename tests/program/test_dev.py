"""`mcp-tasks dev`: one line when ready, and nothing left behind however it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import sys
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import pytest

from bridge.child import start_child, stop_child
from tests.support import Program, eventually, mcp_tasks, plain_environment, run_to_end

ANY_PORTS: Final = ("--port", "0", "--temporal-port", "0", "--ui-port", "0")


def family(pid: int) -> dict[int, str]:
    """Process `pid` and its descendants that still run, with their commands."""
    found: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            state, parent = status.rpartition(")")[2].split()[:2]
            if state != "Z":
                found[int(entry.name)] = (int(parent), command)
    members = {pid}
    while more := {child for child, (parent, _) in found.items() if parent in members} - members:
        members |= more
    return {member: found[member][1] for member in members if member in found}


def listening(url: str) -> bool:
    """Whether somebody listens at the address of `url`."""
    parts = urlsplit(url if "//" in url else f"//{url}")
    with closing(socket.socket()) as probe:
        probe.settimeout(1)
        return probe.connect_ex((parts.hostname, parts.port)) == 0


async def assert_nothing_is_left(program: Program, members: dict[int, str]) -> None:
    """No process of the family and none of its ports outlives it by more than moments."""

    async def gone() -> bool:
        return not any(family(pid) for pid in members)

    await eventually(gone, what="every process to be gone", within=10)
    assert not [name for name in ("mcp", "temporal", "ui") if listening(program.ready[name])]


async def test_the_ready_line_names_endpoints_that_answer() -> None:
    """MCP, Temporal and its web page are up when the line is printed, on ports that were free."""
    async with mcp_tasks("dev", *ANY_PORTS) as dev, aiohttp.ClientSession() as session:
        assert dev.ready["database"] is None
        assert urlsplit(dev.ready["mcp"]).hostname == "127.0.0.1"
        assert listening(dev.ready["temporal"])
        async with session.get(dev.ready["ui"]) as page:
            assert page.status == 200
        async with session.get(dev.ready["mcp"]) as answer:
            assert answer.status == 405


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_everything_in_order(number: signal.Signals) -> None:
    """Ctrl-C and SIGTERM alike: status 0, no process, no port."""
    async with mcp_tasks("dev", *ANY_PORTS) as dev:
        members = family(dev.pid)
        assert len(members) == 3
        dev.kill(number)
        assert await dev.wait() == 0
        await assert_nothing_is_left(dev, members)


async def test_a_ctrl_c_after_a_signal_ends_everything_at_once() -> None:
    """Nobody has to wait for a worker's grace."""
    async with mcp_tasks("dev", *ANY_PORTS) as dev:
        members = family(dev.pid)
        dev.kill(signal.SIGTERM)
        dev.kill(signal.SIGINT)
        assert await dev.wait(within=10) in {0, 128 + signal.SIGINT}
        await assert_nothing_is_left(dev, members)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the kernel's leash is Linux's")
async def test_a_killed_dev_takes_its_children_along() -> None:
    """SIGKILL cannot be handled, so the kernel ends them."""
    async with mcp_tasks("dev", *ANY_PORTS) as dev:
        members = family(dev.pid)
        dev.kill(signal.SIGKILL)
        await dev.wait()
        await assert_nothing_is_left(dev, members)


async def test_a_worker_that_dies_is_started_again() -> None:
    """Tasks go on without anybody's help."""
    async with mcp_tasks("dev", *ANY_PORTS) as dev:

        def workers() -> set[int]:
            return {pid for pid, command in family(dev.pid).items() if " bridge.cli worker " in command}

        (first,) = workers()
        os.kill(first, signal.SIGKILL)

        async def another() -> bool:
            return bool(workers() - {first})

        await eventually(another, what="another worker")


async def test_the_end_of_temporal_ends_everything_with_a_reason() -> None:
    """There is nothing to serve without it."""
    async with mcp_tasks("dev", *ANY_PORTS) as dev:
        members = family(dev.pid)
        (server,) = (pid for pid, command in members.items() if "start-dev" in command)
        os.kill(server, signal.SIGKILL)
        assert await dev.wait() == 1
        await assert_nothing_is_left(dev, members)


async def test_the_key_beside_the_database_is_private_kept_and_locks_it(tmp_path: Path) -> None:
    """What clients hold is still good after a restart, and two stacks never share a database."""
    database = tmp_path / "new" / "tasks.db"
    arguments = ("dev", *ANY_PORTS, "--db", str(database))
    async with mcp_tasks(*arguments) as dev:
        assert dev.ready["database"] == str(database)
        key = database.with_name("tasks.db.key")
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        content = key.read_text()
        status, output, errors = await run_to_end(*arguments)
        assert (status, output) == (2, "")
        assert errors.splitlines()[-1] == f"mcp-tasks: --db {database}: another mcp-tasks dev has it open"
    async with mcp_tasks(*arguments):
        assert key.read_text() == content


async def test_a_taken_port_is_one_line_that_names_it() -> None:
    """Status 2, as for any option that cannot be used."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for option in ("--temporal-port", "--ui-port", "--port"):
            arguments = dict(zip(ANY_PORTS[::2], ANY_PORTS[1::2], strict=True)) | {option: port}
            status, output, errors = await run_to_end("dev", *(word for pair in arguments.items() for word in pair))
            assert status == 2
            assert output == ""
            assert port in errors.splitlines()[-1]
            assert "Traceback" not in errors


async def test_the_operators_own_temporal_profile_is_left_alone() -> None:
    """A cluster's address and keys in the environment must not reach the stack on this machine."""
    environment = plain_environment(
        TEMPORAL_ADDRESS="cluster.invalid:7233", TEMPORAL_API_KEY="not-for-this", TEMPORAL_TLS="1"
    )
    async with mcp_tasks("dev", *ANY_PORTS, environment=environment) as dev:
        assert dev.ready["temporal"].startswith("127.0.0.1:")


async def test_without_json_the_ready_line_is_for_people_and_says_that_tasks_are_lost() -> None:
    """One line on standard output, whatever else is logged."""
    process = await start_child(
        [sys.executable, "-m", "bridge.cli", "dev", *ANY_PORTS],
        environment=plain_environment(),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout
    try:
        line = (await process.stdout.readline()).decode()
        assert line.startswith("mcp-tasks dev is ready: MCP http://127.0.0.1:")
        assert "tasks are lost on restart" in line
    finally:
        await stop_child(process, ask=signal.SIGTERM, patience=30)
    assert await process.stdout.read() == b""
