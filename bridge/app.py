"""The bridge put together: settings in, a listening endpoint out, everything closed again in the opposite order.

No state that matters lives here: every replica with the same settings answers for every task.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from aiohttp import web
from mcp.server.request_state import RequestStateSecurity

from bridge.auth import Authenticator, no_authentication, static_bearer
from bridge.calls import Calls
from bridge.catalog import Catalog
from bridge.errors import BridgeError
from bridge.gateway import Gateway
from bridge.http import SERVER_OPTIONS, HttpSettings, mount_mcp
from bridge.loading import load_tasks
from bridge.reader import Reader
from bridge.server import bound_principal, build_server
from bridge.settings import BridgeSettings, SettingsError, temporal_connect_config
from bridge.tasks import Tasks

log = logging.getLogger(__name__)

SHUTDOWN_SECONDS: Final = 5.0
"""How long open connections may take to close; running requests are ended by the endpoint before."""

GATEWAY: Final = web.AppKey("gateway", Gateway)


@asynccontextmanager
async def running_bridge(settings: BridgeSettings) -> AsyncIterator[str]:
    """Serve MCP with these settings; yields the endpoint's URL once it listens.

    Temporal is connected to at the first call, so the bridge starts while Temporal is away, and answers that it is.

    Raises:
        SettingsError: The tasks module or Temporal's settings cannot be used.
        OSError: The address cannot be bound.
    """
    app = await _application(settings)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS, **SERVER_OPTIONS)
    await runner.setup()
    try:
        site = web.TCPSite(runner, settings.host, settings.port)
        await site.start()
        port = runner.addresses[0][1]
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        yield f"http://{host}:{port}{settings.path}"
    finally:
        await runner.cleanup()


async def _application(settings: BridgeSettings) -> web.Application:
    catalog = Catalog(load_tasks(settings.tasks).tasks, settings.task_queue)
    keys = _sealing_keys(settings)
    gateway = await Gateway.connect(
        temporal_connect_config(), owner_key=hmac.digest(keys[0].encode(), b"owner", hashlib.sha256)
    )
    reader = Reader(gateway, catalog.outcome_rules)
    tasks = Tasks(gateway, reader)
    calls = Calls(catalog, gateway, reader, tasks, settings.answer_window)
    security = RequestStateSecurity(
        keys=keys, ttl=_longest_window(catalog, settings).total_seconds(), bind_principal=bound_principal
    )
    app = web.Application()
    app[GATEWAY] = gateway
    app.on_cleanup.append(lambda _app: calls.close())
    app.on_cleanup.append(lambda _app: reader.close())
    mount_mcp(app, build_server(catalog, calls, tasks, security), _http_settings(settings), _authenticator(settings))
    app.router.add_get("/healthz", _alive)
    app.router.add_get("/readyz", _ready)
    return app


async def _alive(_request: web.Request) -> web.Response:
    """Liveness: this process answers."""
    return web.Response(text="ok\n")


async def _ready(request: web.Request) -> web.Response:
    """Readiness: Temporal answers for our namespace."""
    try:
        await request.app[GATEWAY].check()
    except BridgeError:
        return web.Response(status=503, text="Temporal cannot be reached\n")
    return web.Response(text="ok\n")


def _http_settings(settings: BridgeSettings) -> HttpSettings:
    return HttpSettings(
        path=settings.path,
        max_body_bytes=settings.max_body_bytes,
        loopback=settings.on_loopback,
        allowed_hosts=settings.allowed_hosts,
        allowed_origins=settings.allowed_origins,
    )


def _authenticator(settings: BridgeSettings) -> Authenticator:
    if settings.bearer_token is None:
        return no_authentication
    try:
        return static_bearer(settings.bearer_token.get_secret_value())
    except ValueError as error:
        raise SettingsError(f"MCP_TASKS_BEARER_TOKEN: {error}") from None


def _sealing_keys(settings: BridgeSettings) -> list[str]:
    """The key ring; a bridge that said that it is alone may make a key that ends with it."""
    if settings.sealing_keys:
        return [key.get_secret_value() for key in settings.sealing_keys]
    log.info("sealing.ephemeral_key: questions of callers without a task handle do not outlive this process")
    return [secrets.token_hex(32)]


def _longest_window(catalog: Catalog, settings: BridgeSettings) -> timedelta:
    """A sealed state is good for as long as the question that it belongs to may wait; the run itself keeps the exact
    time.
    """
    return max([settings.answer_window, *(tool.answer_window or timedelta(0) for tool in catalog)])
