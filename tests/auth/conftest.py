"""Two authorization servers, Temporal, a worker, and a bridge that takes the tokens of both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bridge.dev_server import DevServer, free_port
from tests.authserver.running import AuthServer, authorization_server
from tests.cases.stack import Process, Programs, program_environment
from tests.installs import Uninstallable
from tests.support import unique

CATALOG = """
[tools.guarded]
workflow = "slow"
queue = "{queue}"
description = "For those who may."
keeps_lifetime = true
scopes = ["deploy:production"]
input_schema = {{ type = "object" }}
"""


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def authorization() -> AsyncIterator[AuthServer]:
    """The authorization server that most tests use; leave its keys alone."""
    try:
        async with authorization_server() as server:
            yield server
    except Uninstallable as reason:
        pytest.skip(f"oidc-provider cannot be installed: {reason}")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def other_authorization(authorization: AuthServer) -> AsyncIterator[AuthServer]:
    """Another one, with the same names in it."""
    async with authorization_server() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def fragile(authorization: AuthServer) -> AsyncIterator[AuthServer]:
    """One that a test may break."""
    async with authorization_server() as server:
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def programs(temporal: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Programs]:
    """A worker, and what may be started beside it."""
    environment = program_environment(tmp_path_factory.mktemp("counter"), temporal.environment)
    programs = Programs(environment={**environment, "MCP_TASKS_TASK_QUEUE": unique("auth")})
    try:
        await programs.worker()
        yield programs
    finally:
        await programs.close()


@pytest.fixture(scope="session")
def catalog(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tool that asks for a scope of its own."""
    file = tmp_path_factory.mktemp("catalog") / "tools.toml"
    file.write_text(CATALOG.format(queue=programs.environment["MCP_TASKS_TASK_QUEUE"]), "utf-8")
    return file


async def bridge_for(
    programs: Programs, *issuers: str, tasks: str = "tests.fixtures.cases", **variables: str
) -> Process:
    """A bridge that takes the tokens of `issuers`; its address is its resource."""
    port = free_port()
    told = {
        "MCP_TASKS_OAUTH_ISSUERS": ", ".join(issuers),
        "MCP_TASKS_RESOURCE_URL": f"http://127.0.0.1:{port}/mcp",
        "MCP_TASKS_OAUTH_CLOCK_SKEW_SECONDS": "0",
        **variables,
    }
    environment = Programs(environment={**programs.environment, **told})
    process = await environment.bridge(tasks, port=port)
    programs._processes.append(process)
    return process


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bridge(
    programs: Programs, authorization: AuthServer, other_authorization: AuthServer, catalog: Path
) -> Process:
    """The bridge that most tests use."""
    return await bridge_for(
        programs,
        authorization.issuer,
        other_authorization.issuer,
        MCP_TASKS_CATALOG=str(catalog),
        MCP_TASKS_TASKS="tests.fixtures.cases",
    )
