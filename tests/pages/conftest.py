"""An authorization server, a worker that opens what was sealed, and bridges with pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import IO, Any, Final
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from bridge.dev_keys import answer_public_key, new_answer_key
from bridge.dev_server import DevServer, free_port
from tests.authserver.running import AuthServer, authorization_server
from tests.cases.client import TASKS, McpClient
from tests.cases.stack import Process, Programs, program_environment
from tests.installs import Uninstallable
from tests.support import unique

MODULE: Final = "tests.pages.module"
PRIVATE: Final = new_answer_key()
PUBLIC: Final = answer_public_key(PRIVATE)
SIGN_IN: Final = {"MCP_TASKS_PAGES_CLIENT_ID": "pages", "MCP_TASKS_PAGES_CLIENT_SECRET": "pages-secret"}
OPENS_PAGES: Final[dict[str, Any]] = {"elicitation": {"form": {}, "url": {}}, "extensions": {TASKS: {}}}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def authorization() -> AsyncIterator[AuthServer]:
    try:
        async with authorization_server() as server:
            yield server
    except Uninstallable as reason:
        pytest.skip(f"oidc-provider cannot be installed: {reason}")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def programs(temporal: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Programs]:
    """A worker, and what may be started beside it."""
    environment = program_environment(tmp_path_factory.mktemp("counter"), temporal.environment)
    environment |= {"MCP_TASKS_TASK_QUEUE": unique("pages"), "MCP_TASKS_ANSWER_PUBLIC_KEY": PUBLIC}
    programs = Programs(environment=environment)
    try:
        await programs.worker(MODULE, MCP_TASKS_ANSWER_PRIVATE_KEYS=PRIVATE.get_secret_value())
        yield programs
    finally:
        await programs.close()


async def oauth_bridge(
    programs: Programs, authorization: AuthServer, *, pages: bool = True, log: IO[bytes] | None = None, **variables: str
) -> Process:
    """A bridge whose visitors sign in at `authorization`, if it has pages."""
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    return await programs.bridge(
        MODULE,
        port=port,
        log=log,
        **{
            "MCP_TASKS_OAUTH_ISSUERS": authorization.issuer,
            "MCP_TASKS_RESOURCE_URL": f"{origin}/mcp",
            "MCP_TASKS_OAUTH_CLOCK_SKEW_SECONDS": "0",
            **(SIGN_IN | {"MCP_TASKS_PAGES_URL": f"{origin}/pages"} if pages else {}),
            **variables,
        },
    )


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def bridge(programs: Programs, authorization: AuthServer) -> Process:
    """The bridge that most tests use."""
    return await oauth_bridge(programs, authorization)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def local(programs: Programs) -> Process:
    """A bridge for whoever is on this machine."""
    return await programs.bridge(MODULE, port=free_port())


def link(requests: dict[str, dict[str, object]]) -> tuple[str, str]:
    """The key and the address of the one question."""
    ((key, request),) = requests.items()
    params = request["params"]
    assert isinstance(params, dict) and params["mode"] == "url" and "requestedSchema" not in params
    return key, str(params["url"])


async def asked(client: McpClient, tool: str) -> tuple[str, str, str]:
    """A task that asks on a page: its id, and the key and the address of the question."""
    task_id = await client.start(tool)
    return task_id, *link(await client.parked(task_id))


def origin_of(bridge: Process) -> str:
    parts = urlsplit(bridge.url)
    return f"{parts.scheme}://{parts.netloc}"
