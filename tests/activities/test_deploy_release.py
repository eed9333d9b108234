"""The steps of `deploy_release` on real folders and a real server."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from temporalio.testing import ActivityEnvironment

from activities import release_tree
from activities.approval_ledger import FOLDER
from activities.deploy_release import (
    APPROVERS_VARIABLE,
    ROOT_VARIABLE,
    check_health,
    plan_deployment,
    roll_back_release,
    switch_release,
)
from tests.activities.conftest import Serve
from workflows.deploy_release import DeployArgs, HealthRequest, Plan, Switch, approved
from workflows.kit import NOT_OWNER, Approval, Unapproved, group
from workflows.kit.approvals import digest_of
from workflows.kit.contract import Actor, Answerer
from workflows.kit.errors import ToolError

ARGS = DeployArgs(application="shop", release="2")


def make_application(root: Path, health_url: str = "http://127.0.0.1:1/") -> Path:
    """`shop` with the releases 1 (live) and 2."""
    shop = root / "shop"
    for release, files in {"1": {"app.py": "one", "old.txt": "x"}, "2": {"app.py": "two", "lib/new.py": "y"}}.items():
        for name, text in files.items():
            path = shop / "releases" / release / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    (shop / "deploy.toml").write_text(f'health_url = "{health_url}"\nhealth_seconds = 0.5\n')
    (shop / "current").symlink_to("releases/1")
    return shop


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    return make_application(tmp_path)


def switch_of(plan: Plan) -> Switch:
    return Switch(application=plan.application, release=plan.release, previous=plan.current, digest=plan.digest)


def approval_of(plan: Plan, key: str = "approval") -> Approval:
    boss = Actor(issuer="local", subject="boss", channel="http")
    return Approval(digest=digest_of(approved(plan)), task="test", key=key, by=boss, at=datetime.now(UTC))


def approved_switch(plan: Plan, **changes: Any) -> Switch:
    given: dict[str, Any] = {"approval": approval_of(plan), "approvers": plan.approvers}
    return switch_of(plan).model_copy(update=given | changes)


def another_step() -> ActivityEnvironment:
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(environment.info, activity_id="another")
    return environment


def live(shop: Path) -> str:
    return os.readlink(shop / "current")


async def test_a_plan_lists_what_would_change(env: ActivityEnvironment, shop: Path) -> None:
    plan = await env.run(plan_deployment, ARGS)
    assert (plan.current, plan.added, plan.changed, plan.removed) == ("1", 1, 1, 1)
    assert plan.listing == ["+ lib/new.py", "~ app.py", "- old.txt"]


async def test_a_plans_digest_changes_with_anything_that_it_covers(env: ActivityEnvironment, shop: Path) -> None:
    digests = [(await env.run(plan_deployment, ARGS)).digest]
    assert (await env.run(plan_deployment, ARGS)).digest == digests[0]
    changes: list[Callable[[], object]] = [
        lambda: (shop / "releases/2/app.py").write_text("2!!"),
        lambda: (shop / "releases/2/app.py").chmod(0o755),
        lambda: (shop / "releases/2/link").symlink_to("app.py"),
        lambda: (shop / "releases/1/app.py").write_text("1!!"),
        lambda: (shop / "deploy.toml").write_text('health_url = "http://127.0.0.1:2/"'),
    ]
    for change in changes:
        change()
        digests.append((await env.run(plan_deployment, ARGS)).digest)
    assert len(set(digests)) == len(changes) + 1


async def test_a_switch_points_the_link_to_the_release_and_may_be_repeated(
    env: ActivityEnvironment, shop: Path
) -> None:
    step = switch_of(await env.run(plan_deployment, ARGS))
    for _ in range(2):
        await env.run(switch_release, step)
        assert live(shop) == "releases/2"


async def test_a_switch_killed_before_the_link_was_replaced_can_be_repeated(
    env: ActivityEnvironment, shop: Path
) -> None:
    step = switch_of(await env.run(plan_deployment, ARGS))
    (shop / ".current.new").symlink_to("releases/2")
    await env.run(switch_release, step)
    assert live(shop) == "releases/2"


async def test_files_that_changed_since_the_approval_are_not_switched_to(env: ActivityEnvironment, shop: Path) -> None:
    step = switch_of(await env.run(plan_deployment, ARGS))
    (shop / "releases/2/lib/new.py").write_text("something else")
    with pytest.raises(ToolError, match=r"changed since the approval. Nothing was switched"):
        await env.run(switch_release, step)
    assert live(shop) == "releases/1"


async def test_a_switch_may_be_repeated_when_the_application_has_written_into_its_release(
    env: ActivityEnvironment, shop: Path
) -> None:
    step = switch_of(await env.run(plan_deployment, ARGS))
    await env.run(switch_release, step)
    (shop / "releases/2/app.log").write_text("started")
    await env.run(switch_release, step)
    assert live(shop) == "releases/2"


async def test_what_somebody_else_put_live_must_be_what_was_approved(env: ActivityEnvironment, shop: Path) -> None:
    step = switch_of(await env.run(plan_deployment, ARGS))
    await env.run(switch_release, step)
    (shop / "current").unlink()
    (shop / "current").symlink_to("releases/2")
    await env.run(switch_release, step)
    (shop / "current").unlink()
    (shop / "current").symlink_to("releases/2")
    (shop / "releases/2/app.py").write_text("something else")
    with pytest.raises(ToolError, match="2 is live already, but its files are not the ones of the approved plan"):
        await env.run(switch_release, step)
    assert live(shop) == "releases/2"


async def test_another_release_that_went_live_since_the_approval_is_not_replaced(
    env: ActivityEnvironment, shop: Path
) -> None:
    (shop / "releases/3").mkdir()
    step = switch_of(await env.run(plan_deployment, ARGS))
    (shop / "current").unlink()
    (shop / "current").symlink_to("releases/3")
    with pytest.raises(ToolError, match="Another release"):
        await env.run(switch_release, step)
    assert live(shop) == "releases/3"


async def test_a_rollback_makes_the_previous_release_live_and_may_be_repeated(
    env: ActivityEnvironment, shop: Path
) -> None:
    step = switch_of(await env.run(plan_deployment, ARGS))
    await env.run(switch_release, step)
    for _ in range(2):
        await env.run(roll_back_release, step)
        assert live(shop) == "releases/1"


async def test_a_rollback_of_a_first_deployment_removes_the_link(env: ActivityEnvironment, shop: Path) -> None:
    (shop / "current").unlink()
    step = switch_of(await env.run(plan_deployment, ARGS))
    await env.run(switch_release, step)
    await env.run(roll_back_release, step)
    assert not (shop / "current").is_symlink()


async def test_a_rollback_to_a_release_that_is_gone_is_an_error(env: ActivityEnvironment, shop: Path) -> None:
    step = switch_of(await env.run(plan_deployment, ARGS))
    await env.run(switch_release, step)
    (shop / "releases/1").rename(shop / "gone")
    with pytest.raises(ToolError, match="no release '1'"):
        await env.run(roll_back_release, step)


@pytest.mark.parametrize(
    ("application", "release", "message"),
    [
        ("../shop", "2", "outside"),
        ("/etc", "2", "outside"),
        (".", "2", "outside"),
        ("nothing", "2", "no application"),
        ("shop", "../../shop/releases/2", "outside"),
        ("shop", "../current", "outside"),
        ("shop", "2/lib", "outside"),
        ("shop", ".", "outside"),
        ("shop", "9", "no release"),
        ("shop", "a\0b", "cannot be used"),
    ],
)
async def test_a_request_for_anything_but_a_release_of_an_application_is_a_tool_error(
    env: ActivityEnvironment, shop: Path, application: str, release: str, message: str
) -> None:
    with pytest.raises(ToolError, match=message):
        await env.run(plan_deployment, DeployArgs(application=application, release=release))


@pytest.mark.parametrize("place", ["releases/2/escape", "releases/3", "../other"])
async def test_links_that_lead_out_are_refused(
    env: ActivityEnvironment, shop: Path, tmp_path_factory: pytest.TempPathFactory, place: str
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "releases/2").mkdir(parents=True)
    (shop / place).symlink_to(outside)
    request = {
        "releases/3": DeployArgs(application="shop", release="3"),
        "../other": DeployArgs(application="other", release="2"),
    }
    with pytest.raises(ToolError, match=r"outside|leads out"):
        await env.run(plan_deployment, request.get(place, ARGS))


@pytest.mark.parametrize("place", ["releases/2/loop", "releases/1/lib", "current", "releases/3", "releases/2/app.py/x"])
async def test_a_link_that_cannot_be_followed_is_refused(env: ActivityEnvironment, shop: Path, place: str) -> None:
    link = shop / place
    if place == "releases/2/app.py/x":
        link = shop / "releases/2/link"
        link.symlink_to("app.py/x")
    else:
        link.unlink(missing_ok=True)
        link.symlink_to(link.name)
    with pytest.raises(ToolError, match="cannot be"):
        await env.run(plan_deployment, DeployArgs(application="shop", release="3" if link.name == "3" else "2"))


async def test_a_link_to_a_file_that_is_not_there_may_be_released(env: ActivityEnvironment, shop: Path) -> None:
    (shop / "releases/2/later").symlink_to("not-yet")
    assert (await env.run(plan_deployment, ARGS)).added == 2


async def test_a_current_that_is_no_link_is_refused(env: ActivityEnvironment, shop: Path) -> None:
    (shop / "current").unlink()
    (shop / "current").mkdir()
    with pytest.raises(ToolError, match="not a link"):
        await env.run(plan_deployment, ARGS)


async def test_a_file_name_cannot_forge_a_line_of_the_plan(env: ActivityEnvironment, shop: Path) -> None:
    (shop / "releases/2/a\n- nothing at all").write_text("")
    plan = await env.run(plan_deployment, ARGS)
    assert all("\n" not in line for line in plan.listing)


@pytest.mark.parametrize("text", ["", "health_url = 3", "health_url = 'ftp://x/'", "what is this"])
async def test_an_application_without_usable_settings_is_a_tool_error(
    env: ActivityEnvironment, shop: Path, text: str
) -> None:
    (shop / "deploy.toml").write_text(text)
    with pytest.raises(ToolError, match=r"deploy\.toml"):
        await env.run(plan_deployment, ARGS)


async def test_an_approval_is_for_one_step_and_its_repetitions(env: ActivityEnvironment, shop: Path) -> None:
    step = approved_switch(await env.run(plan_deployment, ARGS))
    for _ in range(2):
        await env.run(switch_release, step)
    assert live(shop) == "releases/2"
    (noted,) = (shop / FOLDER).iterdir()
    assert json.loads(noted.read_text())["approval"]["by"]["subject"] == "boss"
    with pytest.raises(Unapproved, match="used before"):
        await another_step().run(switch_release, step)
    (shop / "current").unlink()
    (shop / "current").symlink_to("releases/1")
    with pytest.raises(Unapproved, match=r"used before.*Nothing was switched"):
        await another_step().run(switch_release, step)
    assert live(shop) == "releases/1"


async def test_a_step_killed_between_the_note_and_the_switch_goes_on(
    env: ActivityEnvironment, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = approved_switch(await env.run(plan_deployment, ARGS))

    def killed(*_: object, **__: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="killed"):
        patch.setattr(release_tree, "_point", killed)
        await env.run(switch_release, step)
    assert live(shop) == "releases/1"
    await env.run(switch_release, step)
    assert live(shop) == "releases/2"


async def test_a_note_that_cannot_be_read_stops_a_switch_and_not_the_way_back(
    env: ActivityEnvironment, shop: Path
) -> None:
    step = approved_switch(await env.run(plan_deployment, ARGS))
    await env.run(switch_release, step)
    (note,) = (shop / FOLDER).glob("*.json")
    note.write_bytes(b"{")
    with pytest.raises(ToolError, match="cannot be read"):
        await env.run(switch_release, step)
    await env.run(roll_back_release, step)
    assert live(shop) == "releases/1"
    with pytest.raises(Unapproved, match="Nothing was switched"):
        await env.run(switch_release, step)


@pytest.mark.parametrize("switched", [True, False], ids=["switched", "not-switched"])
async def test_an_attempt_that_comes_after_the_way_back_switches_nothing(
    env: ActivityEnvironment, shop: Path, switched: bool
) -> None:
    step = approved_switch(await env.run(plan_deployment, ARGS))
    if switched:
        await env.run(switch_release, step)
    await env.run(roll_back_release, step)
    with pytest.raises(Unapproved, match="Nothing was switched"):
        await env.run(switch_release, step)
    assert live(shop) == "releases/1"


async def test_two_approvals_of_one_plan_are_two_uses(env: ActivityEnvironment, shop: Path) -> None:
    plan = await env.run(plan_deployment, ARGS)
    await env.run(switch_release, approved_switch(plan))
    await another_step().run(switch_release, approved_switch(plan, approval=approval_of(plan, "another")))
    assert len(list((shop / FOLDER).iterdir())) == 2


async def test_an_approval_of_something_else_is_not_switched_by(env: ActivityEnvironment, shop: Path) -> None:
    plan = await env.run(plan_deployment, ARGS)
    other = approval_of(plan.model_copy(update={"digest": "0" * 64}))
    with pytest.raises(Unapproved):
        await env.run(switch_release, approved_switch(plan, approval=other))
    assert live(shop) == "releases/1"
    assert not (shop / FOLDER).exists()


@pytest.mark.parametrize("text", ["", "{}", "\x00"])
async def test_a_note_that_cannot_be_read_stops_the_switch(env: ActivityEnvironment, shop: Path, text: str) -> None:
    plan = await env.run(plan_deployment, ARGS)
    await env.run(switch_release, approved_switch(plan))
    (noted,) = (shop / FOLDER).iterdir()
    noted.write_text(text)
    with pytest.raises(ToolError, match="cannot be read"):
        await env.run(switch_release, approved_switch(plan))


@pytest.mark.parametrize(
    ("value", "who"), [("", None), ("not-owner", NOT_OWNER), ("group:release-managers", group("release-managers"))]
)
async def test_the_operator_says_who_approves(
    env: ActivityEnvironment, shop: Path, monkeypatch: pytest.MonkeyPatch, value: str, who: Answerer | None
) -> None:
    monkeypatch.setenv(APPROVERS_VARIABLE, value)
    assert (await env.run(plan_deployment, ARGS)).approvers == who


@pytest.mark.parametrize("value", ["owner", "group", "group:", "group:a\nb", "not-owner:x", "release-managers"])
async def test_a_rule_that_cannot_be_used_stops_every_deployment(
    env: ActivityEnvironment, shop: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    step = approved_switch(await env.run(plan_deployment, ARGS))
    monkeypatch.setenv(APPROVERS_VARIABLE, value)
    with pytest.raises(ToolError, match=APPROVERS_VARIABLE):
        await env.run(plan_deployment, ARGS)
    with pytest.raises(ToolError, match=APPROVERS_VARIABLE):
        await env.run(switch_release, step)
    assert live(shop) == "releases/1"


@pytest.mark.parametrize("asked", [None, NOT_OWNER], ids=["without", "by-another-rule"])
async def test_an_approval_by_another_rule_than_todays_is_not_enough(
    env: ActivityEnvironment, shop: Path, monkeypatch: pytest.MonkeyPatch, asked: Answerer | None
) -> None:
    plan = await env.run(plan_deployment, ARGS)
    step = switch_of(plan) if asked is None else approved_switch(plan, approvers=asked)
    monkeypatch.setenv(APPROVERS_VARIABLE, "group:release-managers")
    with pytest.raises(Unapproved, match="deploy it anew"):
        await env.run(switch_release, step)
    assert live(shop) == "releases/1"


async def test_health_passes_at_the_first_good_answer(env: ActivityEnvironment, serve: Serve) -> None:
    statuses = iter([503, 302, 200])

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=next(statuses), headers={"Location": "/"})

    health = await env.run(check_health, HealthRequest(url=await serve(answer), seconds=30))
    assert (health.healthy, health.attempts, health.detail) == (True, 3, "HTTP 200")


async def test_health_fails_when_the_time_is_over(env: ActivityEnvironment, serve: Serve) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=500)

    health = await env.run(check_health, HealthRequest(url=await serve(answer), seconds=0.6))
    assert (health.healthy, health.detail) == (False, "HTTP 500")


async def test_health_fails_when_nobody_listens(env: ActivityEnvironment) -> None:
    health = await env.run(check_health, HealthRequest(url="http://127.0.0.1:1/", seconds=0.1))
    assert (health.healthy, health.detail) == (False, "no connection")


@pytest.mark.parametrize("status", [200, 503])
async def test_a_cancelled_health_check_counts_the_answer_on_its_way(
    env: ActivityEnvironment, serve: Serve, status: int
) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        asked.set()
        await go_on.wait()
        return web.Response(status=status)

    check = asyncio.ensure_future(env.run(check_health, HealthRequest(url=await serve(answer), seconds=30)))
    await asked.wait()
    env.cancel()
    go_on.set()
    if status == 200:
        assert (await check).healthy
    else:
        with pytest.raises(asyncio.CancelledError):
            await check
