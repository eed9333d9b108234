"""`deploy_release`: put a prepared release live, with an approval of exactly what will change, and a way back.

The approval is bound to the plan's digest, which is computed again from the files right before the switch, and is good
for one switch. Who may give it is the operator's to say, and settled with the plan. From the switch on, there are two
ways out only: the health check passed and the release stays, or the previous one is live again. A cancel that comes in
between rolls back; one that comes when the check has already passed finds the deployment completed. A way back that
breaks is the one outcome that needs a person, and fails the task with what is live now.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field
from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from .kit import Approval, Declined, JsonRpcError, Task, ToolError, tool
from .kit.contract import TOOL_ERROR, Answerer

ROLLBACK_BROKE: Final = -32603

APPROVAL_KEY: Final = "approval"

_RETRY: Final = RetryPolicy(maximum_interval=timedelta(seconds=10), maximum_attempts=6)

STEP: Final = workflow.ActivityConfig(
    start_to_close_timeout=timedelta(minutes=15),  # both trees are read in full
    heartbeat_timeout=timedelta(seconds=10),
    retry_policy=_RETRY,
    cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,  # what it did must be known
)


class DeployArgs(BaseModel):
    """Which release of which application."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    application: str = Field(
        min_length=1, max_length=200, description="The application's folder, below the deployment root."
    )
    release: str = Field(min_length=1, max_length=100, description="The folder below the application's `releases`.")


class Plan(BaseModel):
    """What a deployment would change. `digest` covers both trees file by file, the release that is live, and the
    health check. `approvers` is who may approve it; None: whoever may answer for the task."""

    application: str
    release: str
    current: str | None
    added: int
    changed: int
    removed: int
    listing: list[str]
    health_url: str
    health_seconds: float
    digest: str
    approvers: Answerer | None = None


class Approved(BaseModel):
    """What an approval is for: these words are digested, so a change of them makes open approvals void. `plan` is the
    plan's digest."""

    application: str
    release: str
    plan: str


class Switch(BaseModel):
    """An approved plan, to be carried out or taken back; `previous` is None if nothing was live before. `approvers` is
    who could give the `approval`, which is None in steps that were scheduled before there was one."""

    application: str
    release: str
    previous: str | None
    digest: str
    approval: Approval | None = None
    approvers: Answerer | None = None


class HealthRequest(BaseModel):
    """Ask `url` until it answers 2xx, for at most `seconds`."""

    url: str
    seconds: float


class Health(BaseModel):
    """What the health check found; `detail` is the last answer in words."""

    healthy: bool
    attempts: int
    detail: str


class DeployResult(BaseModel):
    """How the deployment ended. `switched` says whether the protected step ran: whether the live link was changed.
    `approval` says who approved it, when, by which channel, and the digest of what was approved."""

    outcome: Literal["deployed", "already_live", "declined", "rolled_back"]
    switched: bool
    live: str | None
    previous: str | None
    plan_digest: str
    approval: Approval | None = None
    note: str = ""
    summary: str


@activity.defn
async def plan_deployment(request: DeployArgs) -> Plan:
    """Compare the release with the live one."""
    raise NotImplementedError


@activity.defn
async def switch_release(request: Switch) -> None:
    """Check approval and digest again and switch the live link. A ToolError means that nothing was switched."""
    raise NotImplementedError


@activity.defn
async def check_health(request: HealthRequest) -> Health:
    """Ask the application whether it is well. When cancelled, the answer on its way still counts."""
    raise NotImplementedError


@activity.defn
async def roll_back_release(request: Switch) -> None:
    """Make the previous release live again; does nothing if it is."""
    raise NotImplementedError


@tool(
    name="deploy_release",
    title="Deploy a release",
    description=(
        "Puts a prepared release of an application live: shows a person what would change, waits for the approval "
        "of exactly that, switches, checks the application's health, and rolls back if it is not well."
    ),
    annotations={"destructiveHint": True, "idempotentHint": True, "openWorldHint": False},
    lifetime=timedelta(days=7),
    client_capabilities={"elicitation": {}},
)
class DeployRelease(Task[DeployArgs, DeployResult]):
    """Plan, approval, switch, check, and the way back; see the module."""

    async def execute(self, arguments: DeployArgs) -> DeployResult:
        """Deploy one release."""
        self.progress(0, total=3, message="Comparing the release with the live one")
        plan = await workflow.execute_activity(plan_deployment, arguments, **STEP)
        if plan.current == plan.release:
            return _result(plan, "already_live", f"{plan.release} is live already. Nothing was changed.")
        try:
            approval = await self.approve(_question(plan), approved(plan), answered_by=plan.approvers, key=APPROVAL_KEY)
        except Declined as declined:
            summary = "The deployment was not approved. Nothing was changed."
            return _result(plan, "declined", summary, note=declined.note)
        self.spend(approval, approved(plan))
        return await self._carry_out(plan, approval)

    async def _carry_out(self, plan: Plan, approval: Approval) -> DeployResult:
        step = Switch(
            application=plan.application,
            release=plan.release,
            previous=plan.current,
            digest=plan.digest,
            approval=approval,
            approvers=plan.approvers,
        )
        health_check = HealthRequest(url=plan.health_url, seconds=plan.health_seconds)
        try:
            self.progress(1, total=3, message=f"Switching to {plan.release}")
            await workflow.execute_activity(switch_release, step, **STEP)
            self.progress(2, total=3, message="Checking the application's health")
            health = await workflow.execute_activity(check_health, health_check, **STEP)
        except (ActivityError, asyncio.CancelledError) as error:
            if _is_tool_error(error):  # declared by the switch: nothing was switched
                raise
            # The switch was made, or its outcome was lost; the way back finds what to do, and shuts out late attempts
            await self._roll_back(step)
            if is_cancelled_exception(error):
                raise
            raise ToolError(
                f"The deployment of {plan.release} broke before its health was known. {_live_again(plan)}"
            ) from error
        if not health.healthy:
            if await self._roll_back(step):
                raise asyncio.CancelledError
            summary = f"{plan.release} did not pass its health check ({health.detail}). {_live_again(plan)}"
            return _result(plan, "rolled_back", summary, approval=approval)
        summary = f"{plan.release} is live and passed its health check ({health.detail})."
        if workflow.cancellation_reason() is not None:
            summary += " The cancellation came after the check had passed, so the release stays."
        return _result(plan, "deployed", summary, approval=approval)

    async def _roll_back(self, step: Switch) -> bool:
        """Make the previous release live again, uninterrupted; returns whether a cancel came meanwhile.

        Raises:
            JsonRpcError: It could not be done.
        """
        self.progress(3, total=3, message="Rolling back")
        way_back = asyncio.ensure_future(workflow.execute_activity(roll_back_release, step, **STEP))
        try:
            try:
                await asyncio.shield(way_back)
            except asyncio.CancelledError:
                await way_back  # a run is cancelled once
                return True
        except ActivityError as error:
            _raise_rollback_broke(step, error)
        return False


def _raise_rollback_broke(step: Switch, error: ActivityError) -> NoReturn:
    reason = (
        error.cause.message
        if isinstance(error.cause, ApplicationError) and _is_tool_error(error)
        else "an internal error"
    )
    raise JsonRpcError(
        ROLLBACK_BROKE,
        f"The rollback of {step.release} broke ({reason.rstrip('.')}). Check by hand which release is live.",
        {"application": step.application, "release": step.release, "previous": step.previous},
    ) from error


def _is_tool_error(error: BaseException) -> bool:
    cause = error.cause if isinstance(error, ActivityError) else None
    return isinstance(cause, ApplicationError) and cause.type == TOOL_ERROR


def _live_again(plan: Plan) -> str:
    return "It was rolled back: " + (
        f"{plan.current} is live again." if plan.current else "nothing is live, as before."
    )


def approved(plan: Plan) -> Approved:
    """What the approval of `plan` is for."""
    return Approved(application=plan.application, release=plan.release, plan=plan.digest)


def _question(plan: Plan) -> str:
    """What the person approves, in words: the counts, the first files, and the plan's digest."""
    lines = [
        f"Deploy {plan.release} of {plan.application}, in place of {plan.current or 'nothing'}?",
        f"{plan.added} files added, {plan.changed} changed, {plan.removed} removed.",
        *plan.listing,
    ]
    if more := plan.added + plan.changed + plan.removed - len(plan.listing):
        lines.append(f"and {more} more")
    lines.append(f"Health check: {plan.health_url}")
    lines.append(f"Plan {plan.digest}")
    return "\n".join(lines)


_SWITCHED: Final = frozenset({"deployed", "rolled_back"})


def _result(
    plan: Plan,
    outcome: Literal["deployed", "already_live", "declined", "rolled_back"],
    summary: str,
    *,
    approval: Approval | None = None,
    note: str = "",
) -> DeployResult:
    return DeployResult(
        outcome=outcome,
        switched=outcome in _SWITCHED,
        live=plan.release if outcome == "deployed" else plan.current,
        previous=plan.current,
        plan_digest=plan.digest,
        approval=approval,
        note=approval.note if approval else note,
        summary=summary,
    )
