"""The steps of `deploy_release`: file work in a thread, the health check over HTTP.

All are idempotent. Applications are folders below the one that the worker's operator names in `MCP_TASKS_DEPLOY_ROOT`.
Who may approve is the operator's to say, in `MCP_TASKS_DEPLOY_APPROVERS`: it goes into the plan, so that the workflow
asks by the rule of that moment, and is compared again before the switch.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

import aiohttp
from temporalio import activity

from workflows import deploy_release as signatures
from workflows.deploy_release import DeployArgs, Health, HealthRequest, Plan, Switch
from workflows.kit.answerers import NOT_OWNER, group
from workflows.kit.contract import Answerer
from workflows.kit.errors import ToolError

from .folders import root_folder
from .release_tree import Application, make_plan, open_application, roll_back, switch
from .signature import implements
from .steps import Step, beating, in_thread, spend_cancel

T = TypeVar("T")

ROOT_VARIABLE: Final = "MCP_TASKS_DEPLOY_ROOT"

APPROVERS_VARIABLE: Final = "MCP_TASKS_DEPLOY_APPROVERS"
"""`not-owner`, or `group:` and a name. Unset: whoever may answer for the task."""

PROBE_SECONDS: Final = 5.0
"""How long one answer of the application may take."""

PROBE_PAUSE_SECONDS: Final = 0.5


@implements(signatures.plan_deployment)
async def plan_deployment(request: DeployArgs) -> Plan:
    """Compare the release with the live one.

    Raises:
        ToolError: The release cannot be deployed.
    """
    wanted = approvers()
    step = Step(message="Reading the files")
    plan = await _on_application(request.application, lambda app: make_plan(app, request, step), step)
    return plan.model_copy(update={"approvers": wanted})


@implements(signatures.switch_release)
async def switch_release(request: Switch) -> None:
    """Check approval and digest again and switch. A cancel stops it before the switch, or not at all.

    Raises:
        ToolError: Something changed since the approval, or it was used before; nothing was switched.
    """
    wanted, info = approvers(), activity.info()
    use = f"{info.workflow_run_id}/{info.activity_id}"
    step = Step(message="Checking the files against the approval")
    await _on_application(request.application, lambda app: switch(app, request, step, use=use, approvers=wanted), step)


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


def approvers() -> Answerer | None:
    """Who may approve deployments, as the operator has set it; None: whoever may answer for the task.

    Raises:
        ToolError: It is set to what cannot be used. Nothing is deployed then.
    """
    value = os.environ.get(APPROVERS_VARIABLE, "")
    if not value:
        return None
    if value == "not-owner":
        return NOT_OWNER
    kind, _, name = value.partition(":")
    with suppress(ValueError):
        if kind == "group":
            return group(name)
    raise ToolError(f"This worker does not know who may approve. Its operator must check {APPROVERS_VARIABLE}.")


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
