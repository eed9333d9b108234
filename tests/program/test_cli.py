"""The commands: what cannot work ends with one line and a status, never a traceback."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from bridge.dev_server import DevServer, free_port
from tests.support import plain_environment, run_to_end

ALONE = {"MCP_TASKS_SINGLE_REPLICA": "true"}


@pytest.mark.parametrize("command", [(), ("dev",), ("bridge",), ("stdio",), ("worker",), ("vendor",)])
async def test_help_explains_each_command(command: tuple[str, ...]) -> None:
    """And does nothing else."""
    status, output, errors = await run_to_end(*command, "--help")
    assert (status, errors) == (0, "")
    assert "Usage" in output


async def test_the_version_is_that_of_the_package() -> None:
    """One line, and nothing else happens."""
    assert await run_to_end("--version") == (0, f"mcp-tasks {version('mcp-temporal-tasks')}\n", "")


async def test_what_must_be_done_about_missing_sealing_keys_is_said() -> None:
    """A command that makes one is part of the line."""
    _, _, errors = await run_to_end("bridge", environment=plain_environment())
    assert "one or more secrets of at least 32 bytes" in errors
    assert "openssl rand -hex 32" in errors


@pytest.mark.parametrize(
    ("arguments", "variables", "line"),
    [
        (("bridge",), {}, "MCP_TASKS_SEALING_KEYS is not set"),
        (("bridge", "--host", "0.0.0.0"), {}, "MCP_TASKS_HOST is '0.0.0.0', which others can reach"),  # noqa: S104
        (("bridge",), {**ALONE, "MCP_TASKS_PORT": "x"}, "MCP_TASKS_PORT must be a TCP port"),
        (("bridge", "--tasks", "no.such.module"), ALONE, "--tasks no.such.module: there is no module 'no'"),
        (("stdio", "--tasks", "no.such.module"), {}, "--tasks no.such.module: there is no module 'no'"),
        (("stdio",), {"MCP_TASKS_MAX_BODY_BYTES": "1"}, "MCP_TASKS_MAX_BODY_BYTES must be bytes from 1024"),
        (("worker", "--tasks", "json"), {}, "--tasks json: the module needs TASKS"),
        (("worker",), {"TEMPORAL_PROFILE": "nowhere"}, "TEMPORAL_* variables or Temporal profile file"),
    ],
)
async def test_a_bad_setting_ends_the_start_with_one_line_and_status_2(
    arguments: tuple[str, ...], variables: dict[str, str], line: str
) -> None:
    """The line says which setting, and what is accepted."""
    status, output, errors = await run_to_end(*arguments, environment=plain_environment(**variables))
    assert (status, output) == (2, "")
    assert errors.startswith(f"mcp-tasks: {line}")
    assert errors.count("\n") == 1


async def test_a_worker_says_that_temporal_cannot_be_reached() -> None:
    """One line with the address."""
    address = f"127.0.0.1:{free_port()}"
    status, _, errors = await run_to_end("worker", environment=plain_environment(TEMPORAL_ADDRESS=address))
    assert status == 1
    assert errors.startswith(f"mcp-tasks: Temporal at {address} cannot be reached")


async def test_a_worker_says_that_its_namespace_does_not_exist(temporal: DevServer) -> None:
    """It would otherwise poll for nothing."""
    environment = plain_environment(TEMPORAL_ADDRESS=temporal.address, TEMPORAL_NAMESPACE="elsewhere")
    status, _, errors = await run_to_end("worker", environment=environment)
    assert status == 1
    assert "elsewhere" in errors.splitlines()[-1]


async def test_an_error_inside_a_tasks_module_is_shown_with_its_traceback(tmp_path: Path) -> None:
    """It is the author's, who needs to see where."""
    (tmp_path / "broken_tasks.py").write_text("import a_library_that_is_not_there\n")
    environment = plain_environment(**ALONE, PYTHONPATH=str(tmp_path))
    status, _, errors = await run_to_end("bridge", "--tasks", "broken_tasks", environment=environment)
    assert status == 1
    assert "broken_tasks.py" in errors
