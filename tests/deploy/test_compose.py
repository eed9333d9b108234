"""docker-compose.yml is checked without a container engine: by the compose schema, and by running what it runs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import jsonschema
import pytest
import yaml

from bridge.child import start_child, stop_child
from bridge.dev_server import DevServer, free_port
from bridge.settings import PREFIX
from tests.support import ROOT, mcp_tasks, plain_environment
from workflows.kit.contract import SEARCH_ATTRIBUTES

HERE: Final = Path(__file__).parent
SECRETS: Final = {
    "POSTGRES_PASSWORD": "postgres-password",
    "MCP_TASKS_BEARER_TOKEN": "a-token-for-this-test-only",
    "MCP_TASKS_SEALING_KEYS": "a-sealing-key-for-this-test-only-0123456789",
}
KEYS: Final = f"{PREFIX}ENCRYPTION_KEYS"
VARIABLE: Final = re.compile(r"\$(?:\$|\{(?P<name>\w+)(?::(?P<operator>[?-])(?P<word>[^}]*))?\})")


@pytest.fixture(scope="module")
def raw() -> dict[str, Any]:
    """The file as written, with YAML's merges done."""
    content = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    assert isinstance(content, dict)
    return content


@pytest.fixture(scope="module")
def services(raw: dict[str, Any]) -> dict[str, Any]:
    """The services as compose would run them with `SECRETS` in .env."""
    resolved = interpolate(raw["services"], SECRETS)
    assert isinstance(resolved, dict)
    return resolved


def interpolate(value: Any, variables: Mapping[str, str]) -> Any:
    """Compose's variable substitution, as far as the file uses it."""
    if isinstance(value, dict):
        return {key: interpolate(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [interpolate(item, variables) for item in value]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return "$"
        if name in variables:
            return variables[name]
        assert match["operator"] == "-", f"{name} is required and not among the documented secrets"
        return match["word"]

    return VARIABLE.sub(replace, value)


def environment_of(service: Mapping[str, Any], server: DevServer, **dotenv: str) -> dict[str, str]:
    """The service's environment, with the development server in place of the Temporal container. What has no value in
    the file has that of .env, if it is there.
    """
    given = {name: dotenv.get(name) if value is None else value for name, value in service["environment"].items()}
    known = {name: value for name, value in given.items() if value is not None}
    return plain_environment(**{**known, "TEMPORAL_ADDRESS": server.address})


def test_the_file_fits_the_compose_specification(raw: dict[str, Any]) -> None:
    """The published schema accepts it."""
    jsonschema.Draft7Validator(json.loads((HERE / "compose-spec.json").read_text("utf-8"))).validate(raw)


def test_every_required_variable_is_explained_at_the_top_of_the_file(raw: dict[str, Any]) -> None:
    """Somebody who reads the head of the file knows what .env needs."""
    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    head = text.split("\nname:")[0]
    required = {match["name"] for match in VARIABLE.finditer(text) if match["operator"] == "?"}
    assert required == set(SECRETS)
    assert all(name in head for name in required)


def test_worker_and_bridge_encrypt_with_the_same_keys_if_env_names_some(
    services: dict[str, Any], temporal: DevServer
) -> None:
    """One without them could do nothing with what the other stored."""
    both = [services["worker"], services["bridge"]]
    assert [environment_of(service, temporal, **{KEYS: "k1:of-env"})[KEYS] for service in both] == ["k1:of-env"] * 2
    assert all(service["environment"][KEYS] is None for service in both)


def test_only_loopback_ports_are_published(services: dict[str, Any]) -> None:
    """Neither the database nor Temporal, which have no authentication here, can be reached from outside."""
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_every_named_volume_and_dependency_exists(raw: dict[str, Any]) -> None:
    """No typing error hides in a name."""
    services = raw["services"]
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        assert {volume.split(":")[0] for volume in service.get("volumes", [])} <= set(raw["volumes"])


@pytest.mark.parametrize("optional", [{}, {KEYS: f"k1:{b64encode(bytes(32)).decode()}"}], ids=["plain", "encrypted"])
async def test_worker_and_bridge_start_with_the_commands_and_variables_of_the_file(
    services: dict[str, Any], temporal: DevServer, optional: dict[str, str]
) -> None:
    """The bridge answers on the published path, to the token of the file and to nobody else."""
    worker, bridge = services["worker"], services["bridge"]
    port = str(free_port())  # 8000 may be in use here; in its container it is not
    bridge_environment = {**environment_of(bridge, temporal, **optional), "MCP_TASKS_PORT": port}
    async with (
        mcp_tasks(*worker["command"], environment=environment_of(worker, temporal, **optional)) as running_worker,
        mcp_tasks(*bridge["command"], environment=bridge_environment),
        aiohttp.ClientSession() as session,
    ):
        assert running_worker.ready == {"task_queue": "mcp-tasks", "tasks": "bridge.shipped"}
        url = f"http://127.0.0.1:{port}"
        async with session.get(f"{url}/healthz") as health:
            assert health.status == 200
        assert await discover(session, f"{url}/mcp", token=None) == 401
        assert await discover(session, f"{url}/mcp", token="another-token-0123456789") == 401
        assert await discover(session, f"{url}/mcp", token=SECRETS["MCP_TASKS_BEARER_TOKEN"]) == 200


@pytest.mark.parametrize("name", ["worker", "bridge"])
async def test_a_service_stops_within_its_grace_period(
    name: str, services: dict[str, Any], temporal: DevServer
) -> None:
    """`docker compose stop` sends SIGTERM and kills after the grace period; both end in order before that."""
    service = services[name]
    environment = {**environment_of(service, temporal), "MCP_TASKS_PORT": "0"}
    async with mcp_tasks(*service["command"], environment=environment) as program:
        program.kill(signal.SIGTERM)
        assert await program.wait(within=float(service["stop_grace_period"].removesuffix("s"))) == 0


async def test_the_setup_service_makes_namespace_and_search_attributes_and_may_run_again(
    services: dict[str, Any],
) -> None:
    """Its own script, run against a server that has neither."""
    setup = services["temporal-setup"]
    port = free_port()
    binary = Path(sys.executable).with_name("temporal")
    server = await start_child(
        [str(binary), "server", "start-dev", "--ip", "127.0.0.1", "--port", str(port), "--headless"],
        environment=plain_environment(),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        environment = {
            **setup["environment"],
            "PATH": f"{binary.parent}{os.pathsep}{os.environ['PATH']}",
            "TEMPORAL_ADDRESS": f"127.0.0.1:{port}",
            "TEMPORAL_NAMESPACE": "from-setup",
        }
        for _ in range(2):
            script = await start_child(
                [*setup["entrypoint"], *setup["command"]],
                environment=environment,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            async with asyncio.timeout(60):
                output, _errors = await script.communicate()
            assert script.returncode == 0, output.decode()
        listing = await start_child(
            [str(binary), "operator", "search-attribute", "list"],
            environment=environment,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _errors = await listing.communicate()
        assert all(name in output.decode() for name in SEARCH_ATTRIBUTES)
    finally:
        await stop_child(server, ask=signal.SIGTERM, patience=10)


def test_the_image_runs_as_nobody_and_installs_by_hash() -> None:
    """The Dockerfile's last user is not root, and everything from a registry is locked."""
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    assert [line for line in lines if line.startswith("USER ")][-1] == "USER 10001:10001"
    installs = [line for line in lines if "pip install" in line]
    assert len(installs) == 2
    assert "--require-hashes" in installs[0]
    assert "--no-deps" in installs[1]


async def discover(session: aiohttp.ClientSession, url: str, *, token: str | None) -> int:
    """The HTTP status of a server/discover."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "server/discover",
        **({"Authorization": f"Bearer {token}"} if token else {}),
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}}
    async with session.post(url, json=body, headers=headers) as answer:
        return answer.status
