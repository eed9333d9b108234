"""The steps of `deploy_release`: file work in a thread, the health check over HTTP.

All are idempotent. Applications are folders below the one that the worker's operator names in `MCP_TASKS_DEPLOY_ROOT`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

import aiohttp

from workflows import deploy_release as signatures
from workflows.deploy_release import DeployArgs, Health, HealthRequest, Plan, Switch

from .folders import root_folder
from .release_tree import Application, make_plan, open_application, roll_back, switch
from .signature import implements
from .steps import Step, beating, in_thread, spend_cancel

T = TypeVar("T")

ROOT_VARIABLE: Final = "MCP_TASKS_DEPLOY_ROOT"

PROBE_SECONDS: Final = 5.0
"""How long one answer of the application may take."""

PROBE_PAUSE_SECONDS: Final = 0.5


@implements(signatures.plan_deployment)
async def plan_deployment(request: DeployArgs) -> Plan:
    """Compare the release with the live one.

    Raises:
        ToolError: The release cannot be deployed.
    """
    step = Step(message="Reading the files")
    return await _on_application(request.application, lambda app: make_plan(app, request, step), step)


@implements(signatures.switch_release)
async def switch_release(request: Switch) -> None:
    """Check the digest again and switch. A cancel stops it before the switch, or not at all.

    Raises:
        ToolError: Something changed since the approval; nothing was switched.
    """
    step = Step(message="Checking the files against the approval")
    await _on_application(request.application, lambda app: switch(app, request, step), step)


@implements(signatures.roll_back_release)
async def roll_back_release(request: Switch) -> None:
    """Make the previous release live again.

    Raises:
        ToolError: It cannot be done.
    """
    step = Step(message="Rolling back")
    await _on_application(request.application, lambda app: roll_back(app, request, step), step)


@implements(signatures.check_health)
async def check_health(request: HealthRequest) -> Health:
    """Ask until the application is well or the time is over. A cancel waits for the answer on its way: if that says
    that the application is well, the check has passed.

    Raises:
        asyncio.CancelledError: Cancelled, and the application was not known to be well.
    """
    step = Step(message="Waiting for the application to be well")
    timeout = aiohttp.ClientTimeout(total=min(PROBE_SECONDS, request.seconds))
    health: Health | None = None
    try:
        async with (
            beating(step),
            aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
        ):
            health = await _until_well(session, request, step)
    except asyncio.CancelledError:
        if health is None or not health.healthy:
            raise
        spend_cancel()  # it came while the session was closed: the check has passed
    return health


async def _until_well(session: aiohttp.ClientSession, request: HealthRequest, step: Step) -> Health:
    loop = asyncio.get_running_loop()
    end = loop.time() + request.seconds
    while True:
        step.done += 1
        probe = asyncio.create_task(_probe(session, request.url))
        try:
            healthy, detail = await asyncio.shield(probe)
        except asyncio.CancelledError:
            healthy, detail = await probe
            if not healthy:
                raise
            spend_cancel()
        if healthy or loop.time() + PROBE_PAUSE_SECONDS >= end:
            return Health(healthy=healthy, attempts=int(step.done), detail=detail)
        await asyncio.sleep(PROBE_PAUSE_SECONDS)


async def _probe(session: aiohttp.ClientSession, url: str) -> tuple[bool, str]:
    """Ask once: whether the answer is 2xx (a redirect is not), and the answer in words."""
    try:
        async with session.get(url, allow_redirects=False) as response:
            return 200 <= response.status < 300, f"HTTP {response.status}"
    except TimeoutError:
        return False, "no answer in time"
    except (aiohttp.ClientError, ValueError):
        return False, "no connection"


async def _on_application(name: str, work: Callable[[Application], T], step: Step) -> T:
    return await in_thread(lambda: work(open_application(root_folder(ROOT_VARIABLE), name)), step)
