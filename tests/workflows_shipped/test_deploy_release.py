"""Every way in which a deployment ends."""

from __future__ import annotations

import asyncio
import fcntl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from aiohttp import web

from activities.deploy_release import APPROVERS_VARIABLE, ROOT_VARIABLE
from tests.activities.test_deploy_release import live, make_application
from tests.workflows_shipped.conftest import Serve
from tests.workflows_shipped.driver import TESTER, Driver, Run
from workflows.deploy_release import DeployArgs
from workflows.kit import Approval
from workflows.kit.approvals import digest_of
from workflows.kit.contract import JSONRPC_ERROR, TOOL_ERROR, Actor

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Health:
    """The application's health endpoint: holds each answer until there is a status."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._known = asyncio.Event()
        self._status = 0

    def be(self, status: int) -> None:
        self._status = status
        self._known.set()

    async def answer(self, _: web.Request) -> web.Response:
        self.asked.set()
        await self._known.wait()
        return web.Response(status=self._status)


class Shop:
    """An application under deployment."""

    def __init__(self, folder: Path, health: Health, driver: Driver) -> None:
        self.folder = folder
        self.health = health
        self._driver = driver

    @property
    def live(self) -> str:
        return live(self.folder).removeprefix("releases/")

    def allow_seconds(self, seconds: float) -> None:
        """How long the application may take to be well."""
        settings = self.folder / "deploy.toml"
        settings.write_text(settings.read_text().replace("health_seconds = 0.5", f"health_seconds = {seconds}"))

    async def deploy(self, release: str = "2") -> Run:
        return await self._driver.start("deploy_release", DeployArgs(application="shop", release=release))

    async def deploy_approved(self) -> Run:
        run = await self.deploy()
        await run.question()
        await run.accept("approval", approve=True, note="go")
        return run


@pytest_asyncio.fixture(loop_scope="session")
async def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Serve, driver: Driver) -> Shop:
    health = Health()
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    return Shop(make_application(tmp_path, await serve(health.answer)), health, driver)


async def test_an_approved_release_that_is_well_is_live(shop: Shop) -> None:
    shop.health.be(200)
    result = await (await shop.deploy_approved()).result(record="deploy_release.deployed")
    assert (result["outcome"], result["switched"], result["live"], result["note"]) == ("deployed", True, "2", "go")
    assert shop.live == "2"


BOSS: Final = Actor(issuer="local", subject="boss", client="desk", channel="page", groups=["release-managers"])


async def test_the_result_says_who_approved_what_and_when(shop: Shop) -> None:
    shop.health.be(200)
    result = await (await shop.deploy_approved()).result()
    approval = Approval.model_validate(result["approval"])
    assert approval.digest == digest_of({"application": "shop", "release": "2", "plan": result["plan_digest"]})
    assert (approval.by, approval.note) == (TESTER, "go")
    assert timedelta(0) < datetime.now(UTC) - approval.at < timedelta(minutes=5)


@pytest.mark.parametrize("rule", ["group:release-managers", "not-owner"])
async def test_where_somebody_else_approves_the_owner_does_not(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    monkeypatch.setenv(APPROVERS_VARIABLE, rule)
    shop.health.be(200)
    run = await shop.deploy()
    await run.question()
    await run.accept("approval", approve=True, note="mine")
    await run.respond({"approval": {"action": "decline"}})
    await run.question()
    assert shop.live == "1"
    await run.accept("approval", BOSS, approve=True, note="theirs")
    result = await run.result(record=f"deploy_release.approved_{rule.partition(':')[0].replace('-', '_')}")
    assert (result["outcome"], result["note"], result["approval"]["by"]["subject"]) == ("deployed", "theirs", "boss")
    assert shop.live == "2"


async def test_a_rule_that_changes_after_the_approval_stops_the_switch(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await shop.deploy()
    await run.question()
    monkeypatch.setenv(APPROVERS_VARIABLE, "not-owner")
    await run.accept("approval", approve=True)
    failure = await run.failure(record="deploy_release.rule_changed")
    assert failure.type == TOOL_ERROR
    assert "Nothing was switched" in failure.message
    assert shop.live == "1"


async def test_the_reason_of_who_does_not_approve_is_in_the_result(shop: Shop) -> None:
    run = await shop.deploy()
    await run.question()
    await run.accept("approval", approve=False, note="not on a Friday")
    result = await run.result(record="deploy_release.refused_with_a_reason")
    assert (result["outcome"], result["note"], result["approval"]) == ("declined", "not on a Friday", None)


async def test_the_question_shows_what_would_change_and_the_plans_digest(shop: Shop) -> None:
    shop.health.be(200)
    run = await shop.deploy()
    key, params = await run.question()
    await run.accept(key, approve=False)
    digest = (await run.result())["plan_digest"]
    assert key == "approval"
    for shown in ("Deploy 2 of shop, in place of 1?", "+ lib/new.py", "~ app.py", "- old.txt", digest):
        assert shown in params["message"]


@pytest.mark.parametrize(
    "answer",
    [{"action": "decline"}, {"action": "cancel"}, {"action": "accept", "content": {"approve": False}}],
    ids=["declined", "dismissed", "refused"],
)
async def test_a_deployment_that_is_not_approved_changes_nothing(
    shop: Shop, answer: dict[str, object], request: pytest.FixtureRequest
) -> None:
    run = await shop.deploy()
    key, _ = await run.question()
    await run.respond({key: answer})
    result = await run.result(record=f"deploy_release.{request.node.callspec.id}")
    assert (result["outcome"], result["switched"], result["live"]) == ("declined", False, "1")
    assert "Nothing was changed" in result["summary"]
    assert shop.live == "1"


async def test_a_release_that_is_live_already_asks_nothing(shop: Shop) -> None:
    result = await (await shop.deploy("1")).result(record="deploy_release.already_live")
    assert (result["outcome"], result["switched"]) == ("already_live", False)


async def test_files_that_change_after_the_question_are_not_switched_to(shop: Shop) -> None:
    run = await shop.deploy()
    await run.question()
    (shop.folder / "releases/2/app.py").write_text("smuggled")
    await run.accept("approval", approve=True)
    failure = await run.failure(record="deploy_release.changed")
    assert failure.type == TOOL_ERROR
    assert "Nothing was switched" in failure.message
    assert shop.live == "1"


async def test_a_release_that_is_not_there_is_a_tool_error(shop: Shop) -> None:
    failure = await (await shop.deploy("9")).failure(record="deploy_release.no_release")
    assert (failure.type, failure.message) == (TOOL_ERROR, "There is no release '9'.")


async def test_a_release_that_is_not_well_is_rolled_back(shop: Shop) -> None:
    shop.health.be(500)
    result = await (await shop.deploy_approved()).result(record="deploy_release.rolled_back")
    assert (result["outcome"], result["switched"], result["live"]) == ("rolled_back", True, "1")
    assert "HTTP 500" in result["summary"]
    assert shop.live == "1"


async def test_a_rollback_that_breaks_fails_the_task_and_says_so(shop: Shop) -> None:
    run = await shop.deploy_approved()
    await shop.health.asked.wait()
    (shop.folder / "releases/1").rename(shop.folder / "gone")
    shop.health.be(500)
    failure = await run.failure(record="deploy_release.rollback_broke")
    assert failure.type == JSONRPC_ERROR
    assert failure.details[0]["code"] == -32603
    assert failure.details[0]["data"] == {"application": "shop", "release": "2", "previous": "1"}
    assert "There is no release '1'" in failure.message
    assert shop.live == "2"


async def test_a_cancel_before_the_approval_changes_nothing(shop: Shop) -> None:
    run = await shop.deploy()
    await run.question()
    await run.handle.cancel()
    await run.cancelled(record="deploy_release.cancelled_before_the_switch")
    assert shop.live == "1"


async def test_a_cancel_while_the_health_is_unknown_rolls_back(shop: Shop) -> None:
    shop.allow_seconds(60)
    run = await shop.deploy_approved()
    await shop.health.asked.wait()
    assert shop.live == "2"
    await run.handle.cancel()
    await run.asked_to_stop("check_health")
    shop.health.be(503)
    await run.cancelled(record="deploy_release.cancelled_after_the_switch")
    assert shop.live == "1"


async def test_a_cancel_that_finds_the_release_well_ends_completed_and_says_so(shop: Shop) -> None:
    shop.allow_seconds(60)
    run = await shop.deploy_approved()
    await shop.health.asked.wait()
    await run.handle.cancel()
    await run.asked_to_stop("check_health")
    shop.health.be(200)
    result = await run.result(record="deploy_release.completed_after_a_cancel")
    assert (result["outcome"], result["live"]) == ("deployed", "2")
    assert "cancellation came after the check had passed" in result["summary"]
    assert shop.live == "2"


async def test_a_cancel_whose_rollback_breaks_ends_failed(shop: Shop) -> None:
    shop.allow_seconds(60)
    run = await shop.deploy_approved()
    await shop.health.asked.wait()
    (shop.folder / "releases/1").rename(shop.folder / "gone")
    await run.handle.cancel()
    await run.asked_to_stop("check_health")
    shop.health.be(503)
    failure = await run.failure(record="deploy_release.failed_after_a_cancel")
    assert failure.type == JSONRPC_ERROR
    assert shop.live == "2"


async def test_a_cancel_does_not_interrupt_a_rollback(shop: Shop) -> None:
    run = await shop.deploy_approved()
    await shop.health.asked.wait()
    with (shop.folder / ".deploy.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shop.health.be(500)
        await run.active("roll_back_release")
        await run.handle.cancel()
        assert shop.live == "2"
    await run.cancelled(record="deploy_release.cancelled_while_rolling_back")
    assert shop.live == "1"


async def test_a_cancel_while_the_switch_waits_switches_nothing(shop: Shop) -> None:
    run = await shop.deploy()
    await run.question()
    with (shop.folder / ".deploy.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        await run.accept("approval", approve=True)
        await run.active("switch_release")
        await run.handle.cancel()
        await run.active("roll_back_release")
    await run.cancelled(record="deploy_release.cancelled_while_switching")
    assert shop.live == "1"
