"""The bridge's parts put together, for any transport.

No state that matters lives here: every replica with the same settings answers for every task.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateSecurity
from mcp.server.subscriptions import ToolsListChanged

from bridge.announce import MODULE_KINDS, TOOLS, Announcer
from bridge.calls import Calls
from bridge.catalog import Catalog, Tool
from bridge.catalog_file import ReadText, read_catalog, read_text
from bridge.codec import data_converter
from bridge.envelope import OLDER_VERSIONS
from bridge.features import BridgeServer, capabilities
from bridge.gateway import Gateway
from bridge.histories import Histories
from bridge.listen import Subscriptions
from bridge.loading import TasksModule, load_tasks
from bridge.older import SESSION_LIFETIME, OlderRevisions
from bridge.open_tasks import OpenTasks
from bridge.places import StreamPlaces, WaitingCalls
from bridge.reader import Reader
from bridge.reload import CatalogFiles
from bridge.rights import Rights
from bridge.scopes import ToolScopes
from bridge.seal import Seal
from bridge.server import add_methods, bound_principal, extended_server
from bridge.settings import PREFIX, ServiceSettings, SettingsError, temporal_connect_config
from bridge.starts import Starts
from bridge.task_ids import TaskIds
from bridge.tasks import Tasks
from bridge.waits import Waits
from bridge.watches import Watches
from workflows.kit.contract import Pages

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Service:
    """What a transport serves. `keys` is the ring that seals what clients keep."""

    server: Server[Any]
    older: OlderRevisions
    gateway: Gateway
    reader: Reader
    tasks: Tasks
    tool_scopes: ToolScopes
    keys: Sequence[str] = field(repr=False)


@asynccontextmanager
async def running_service(
    settings: ServiceSettings, pages: Callable[[], Pages | None] = lambda: None
) -> AsyncIterator[Service]:
    """The bridge with these settings, but for its transport, which says where its `pages` are, if it has any.

    Temporal is connected to at the first call, so the bridge starts while Temporal is away, and answers that it is.

    Raises:
        SettingsError: The tasks module, the catalog file or Temporal's settings cannot be used.
    """
    files = CatalogFiles(lambda read: offered(settings, read))
    catalog = files.read()
    keys = _sealing_keys(settings)
    gateway = await Gateway.connect(
        temporal_connect_config(),
        owner_key=hmac.digest(keys[0].encode(), b"owner", hashlib.sha256),
        data_converter=data_converter(settings.encryption_keys),
        unencrypted=catalog.unencrypted,
    )
    watches = Watches(gateway)
    reader = Reader(gateway, watches, catalog.outcome_rules, Rights(catalog.delegates))
    tasks = Tasks(gateway, reader)
    open_tasks = OpenTasks(gateway.count_open, settings.open_tasks_per_owner)
    starts = Starts(gateway, TaskIds(keys), open_tasks, settings.answer_window, pages)
    window = _longest_window(catalog, settings)
    question_ids = Seal(keys, "question", window)
    calls = Calls(
        catalog,
        gateway,
        reader,
        tasks,
        starts,
        Waits(gateway, reader, watches),
        WaitingCalls(settings.waiting_calls_per_owner),
        question_ids=question_ids,
        longest_wait=settings.longest_call,
    )
    security = RequestStateSecurity(keys=keys, ttl=window.total_seconds(), bind_principal=bound_principal)
    module = load_tasks(settings.tasks) if settings.offers_tasks else None
    server = extended_server(catalog, security, module.register_handlers if module else None)
    announcer = Announcer(_announced(settings, server, module))
    places = StreamPlaces(
        streams=settings.streams,
        per_owner=settings.streams_per_owner,
        tasks_per_owner=settings.stream_tasks_per_owner,
    )
    subscriptions = Subscriptions(reader, watches, announcer, places)
    add_methods(server, catalog, calls, tasks, subscriptions, Histories(gateway, reader), announcer)

    def adopt(read: Catalog) -> None:
        # Never less than before: runs that were started then keep their window, and are asked for to its end
        longest = _longest_window(read, settings)
        question_ids.lengthen(longest)
        security.ttl = max(security.ttl, longest.total_seconds())
        if catalog.adopt(read):
            announcer.announce(ToolsListChanged())

    older = OlderRevisions(
        sessions=Seal(keys, "session", SESSION_LIFETIME),
        question_ids=question_ids,
        answers=tasks,
        cancel_task=starts.end,
        cancel_request=starts.cancel_request,
        capabilities=capabilities(server, OLDER_VERSIONS[0]),
        server_info=server.server_info_stamp,
        instructions=server.instructions,
    )
    try:
        async with AsyncExitStack() as stack:
            if settings.catalog:
                await stack.enter_async_context(files.followed(adopt))
            if module and module.subscriptions is not None:
                stack.enter_context(announcer.hearing(module.subscriptions))
            yield Service(
                server=server,
                older=older,
                gateway=gateway,
                reader=reader,
                tasks=tasks,
                tool_scopes=catalog.scopes,
                keys=keys,
            )
    finally:
        await watches.close()
        await starts.close()
        await open_tasks.close()
        await reader.close()


def offered(settings: ServiceSettings, read: ReadText = read_text) -> Catalog:
    """All tools of this deployment: those of the tasks module, then those of the catalog file, which `read` reads.

    Raises:
        SettingsError: One of them cannot be loaded, two tools have one name, or delegates are named for none of the
            tasks module.
    """
    tasks = load_tasks(settings.tasks).tasks if settings.offers_tasks else ()
    tools = [Tool.of(task.declaration, settings.task_queue) for task in tasks]
    if unknown := settings.delegates.keys() - {tool.name for tool in tools}:
        raise SettingsError(f"{PREFIX}DELEGATES: the tasks module has no tool {min(unknown)}")
    others = read_catalog(settings.catalog, read) if settings.catalog else ()
    own = [replace(tool, delegates=settings.delegates.get(tool.name, tool.delegates)) for tool in tools]
    return Catalog([*own, *others])


def _announced(settings: ServiceSettings, server: BridgeServer, module: TasksModule | None) -> set[str]:
    """The kinds of changes that somebody here announces.

    Raises:
        SettingsError: The tasks module has a bus, and serves nothing that could be announced on it.
    """
    announced = {TOOLS} if settings.catalog else set()
    if module and module.subscriptions is not None:
        if not (of_module := {kind for kind, method in MODULE_KINDS.items() if method in server.of_module}):
            raise SettingsError(
                f"--tasks {module.name}: SUBSCRIPTIONS is of no use without one of {', '.join(MODULE_KINDS.values())}"
            )
        announced |= of_module
    return announced


def _sealing_keys(settings: ServiceSettings) -> list[str]:
    """The key ring; a bridge that said that it is alone may make a key that ends with it."""
    if settings.sealing_keys:
        return [key.get_secret_value() for key in settings.sealing_keys]
    log.info("sealing.ephemeral_key: questions of callers without a task handle do not outlive this process")
    return [secrets.token_hex(32)]


def _longest_window(catalog: Catalog, settings: ServiceSettings) -> timedelta:
    """A sealed state is good for as long as the question that it belongs to may wait; the run itself keeps the exact
    time. Of a catalog that changes, the longest so far counts.
    """
    return max([settings.answer_window, *(tool.answer_window or timedelta(0) for tool in catalog)])
