"""Each project with its worker and a bridge of its own, for all tests of a file."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bridge.dev_server import DevServer
from tests.cases.client import McpClient
from tests.foreign.running import (
    ACME,
    PLAIN_PYTHON,
    TYPESCRIPT,
    cataloged,
    foreign_worker,
    install_packages,
    python,
    typescript,
)
from tests.installs import Uninstallable
from tests.support import run_to_end


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def office(temporal: DevServer) -> AsyncIterator[McpClient]:
    """The tools of a Python worker that imports nothing of ours."""
    async with (
        foreign_worker(temporal, *python(PLAIN_PYTHON / "worker.py")),
        cataloged(temporal, PLAIN_PYTHON / "catalog.toml") as client,
    ):
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def posts(temporal: DevServer) -> AsyncIterator[McpClient]:
    """The tools of a TypeScript worker."""
    try:
        await install_packages(TYPESCRIPT)
    except Uninstallable as reason:
        pytest.skip(f"the TypeScript SDK cannot be installed: {reason}")
    async with (
        foreign_worker(temporal, *typescript(TYPESCRIPT / "worker.ts")),
        cataloged(temporal, TYPESCRIPT / "catalog.toml") as client,
    ):
        yield client


@pytest.fixture(scope="module")
def acme_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of Acme's project, without the kit."""
    return shutil.copytree(ACME, tmp_path_factory.mktemp("acme") / "project")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def acme(temporal: DevServer, acme_project: Path) -> AsyncIterator[McpClient]:
    """The tools of a project that has vendored the kit, and has `workflows` and `activities` of its own."""
    status, _, errors = await run_to_end("vendor", str(acme_project / "acme" / "mcp_kit"))
    assert (status, errors) == (0, "")
    async with (
        foreign_worker(temporal, *python(acme_project / "worker.py")),
        cataloged(temporal, acme_project / "tools.toml") as client,
    ):
        yield client
