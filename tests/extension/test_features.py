"""What a tasks module may register, and what the server then says that it can do."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from mcp.server.lowlevel import Server
from mcp_types import PaginatedRequestParams, RequestParams

from bridge.features import BridgeServer, capabilities
from bridge.loading import load_tasks
from bridge.settings import SettingsError

TASKS: Final[dict[str, Any]] = {"io.modelcontextprotocol/tasks": {}}


async def handler(_context: Any, _params: Any) -> dict[str, Any]:
    return {}


def extended(*methods: str) -> BridgeServer:
    """A server for which a module registered `methods`."""

    def register(server: Server[Any]) -> None:
        for method in methods:
            server.add_request_handler(method, RequestParams, handler)

    server = BridgeServer("test")
    server.extend(register)
    return server


@pytest.mark.parametrize(
    "method",
    [
        "tools/list",
        "tools/call",
        "tasks/get",
        "tasks/list",
        "server/discover",
        "initialize",
        "ping",
        "subscriptions/listen",
        "resources/subscribe",
        "logging/setLevel",
        "acme/anything",
    ],
)
def test_a_method_that_is_not_the_modules_ends_the_start_with_its_name(method: str) -> None:
    with pytest.raises(SettingsError, match=f"register_handlers: {method} is not for a tasks module") as refused:
        extended(method)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("method", "needed"),
    [
        ("prompts/list", "prompts/get"),
        ("prompts/get", "prompts/list"),
        ("resources/list", "resources/read"),
        ("resources/templates/list", "resources/read"),
    ],
)
def test_half_of_a_feature_ends_the_start(method: str, needed: str) -> None:
    with pytest.raises(SettingsError, match=f"{method} is of no use without {needed}"):
        extended(method)


def test_what_is_registered_is_served_and_the_bridge_may_still_register_its_own() -> None:
    server = extended("prompts/list", "prompts/get", "resources/read", "completion/complete")
    entry = server.get_request_handler("prompts/list")
    assert entry is not None
    assert entry.handler is handler
    server.add_request_handler("tools/list", PaginatedRequestParams, handler)


def test_a_module_whose_register_handlers_is_no_function_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "handless.py").write_text(
        "from tests.extension.tools import Pay\nTASKS, ACTIVITIES, register_handlers = [Pay], [], {}\n", "utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SettingsError, match="--tasks handless: register_handlers"):
        load_tasks("handless")


def test_an_error_of_the_modules_own_passes_through() -> None:
    def register(_server: Server[Any]) -> None:
        raise RuntimeError("no database")

    with pytest.raises(RuntimeError, match="no database"):
        BridgeServer("test").extend(register)


@pytest.mark.parametrize(
    ("methods", "expected"),
    [
        ((), {}),
        (("prompts/list", "prompts/get"), {"prompts": {}}),
        (("resources/list", "resources/read"), {"resources": {}}),
        (("completion/complete",), {"completions": {}}),
    ],
    ids=str,
)
def test_capabilities_are_those_that_there_are_handlers_for(methods: tuple[str, ...], expected: dict[str, Any]) -> None:
    """No `listChanged`, no `subscribe`: nothing here would keep them."""
    server = extended(*methods)
    assert capabilities(server, "2025-11-25") == expected
    assert capabilities(server, "2026-07-28") == expected | {"extensions": TASKS}
