"""Releases on disk: `<application>/releases/<release>/…`, and the link `<application>/current` to the one that is
live.

A plan's digest covers every file of both trees by path, kind, executable bit and content. The link is replaced in
one atomic step while a lock is held, so nobody ever sees no release, or half of one. Nothing here follows a link
out of the deployment root.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workflows.deploy_release import DeployArgs, Plan, Switch, approved
from workflows.kit.contract import Answerer
from workflows.kit.errors import ToolError, Unapproved

from .approval_ledger import ApprovalLedger
from .folders import followed, inside, sync_folder
from .steps import Step

MAX_FILES: Final = 100_000
"""Files of one release; more are refused rather than hashed for hours."""

MARK: Final = ".deploy.switched"
"""The file of an application that says which plan its live link was made for."""

LISTED: Final = 20
"""Changes that a plan lists one by one, for a person to read."""


class Settings(BaseModel):
    """`<application>/deploy.toml`, written by the operator: what counts as healthy is not the caller's to choose."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    health_url: str = Field(pattern=r"^https?://[^\s]+$", max_length=1000)
    health_seconds: float = Field(default=30, gt=0, le=600)


@dataclass(frozen=True)
class Application:
    """An application's folder, resolved."""

    folder: Path

    @property
    def releases(self) -> Path:
        """Where its releases are."""
        return self.folder / "releases"

    @property
    def current(self) -> Path:
        """The link to the release that is live."""
        return self.folder / "current"


def open_application(root: Path, name: str) -> Application:
    """The application `name` below `root`.

    Raises:
        ToolError: There is none, or it is outside of the root.
    """
    folder = inside(root, name, of="application")
    if not (folder / "releases").is_dir():
        raise ToolError(f"There is no application {name!r} with releases.")
    inside(root, f"{name}/releases", of="application's releases")
    return Application(folder)


def make_plan(application: Application, request: DeployArgs, step: Step) -> Plan:
    """Compare the release with the one that is live.

    Raises:
        ToolError: The release cannot be deployed.
    """
    return _compare(application, request, live_release(application), step)


def _compare(application: Application, request: DeployArgs, current: str | None, step: Step) -> Plan:
    """The plan of `request` in place of the release `current`."""
    settings = _settings(application)
    new = scan(_release_folder(application, request.release), step)
    old = scan(_release_folder(application, current), step) if current else {}
    added, removed = sorted(new.keys() - old.keys()), sorted(old.keys() - new.keys())
    changed = sorted(path for path in new.keys() & old.keys() if new[path] != old[path])
    signed = [("+", path) for path in added] + [("~", path) for path in changed] + [("-", path) for path in removed]
    return Plan(
        application=request.application,
        release=request.release,
        current=current,
        added=len(added),
        changed=len(changed),
        removed=len(removed),
        listing=[f"{sign} {_shown(path)}" for sign, path in signed[:LISTED]],
        health_url=settings.health_url,
        health_seconds=settings.health_seconds,
        digest=_digest(request.application, request.release, new, current, old, settings),
    )


def switch(
    application: Application, request: Switch, step: Step, *, use: str, approvers: Answerer | None = None
) -> None:
    """Make the release live if everything is still as it was approved. May be repeated by the same `use`, also when the
    application has written into its release since; but what somebody else put live must be what was approved too.
    `approvers` is who may approve deployments now.

    Raises:
        ToolError: Something changed since. Nothing was switched.
        Unapproved: The approval is not for this, or not for this use. Nothing was switched.
    """
    with _exclusive(application, step):
        ledger, live = ApprovalLedger(application.folder), live_release(application)
        if live == request.release and _switched_to(application, request.digest):
            if request.approval is not None:
                ledger.use(request.approval, use)
            return  # by an attempt before this one
        if live not in {request.previous, request.release}:
            raise ToolError(f"Another release ({live}) went live since the approval. Nothing was switched.")
        args = DeployArgs(application=request.application, release=request.release)
        plan = _compare(application, args, request.previous, step)
        if plan.digest != request.digest:
            if live == request.release:
                raise ToolError(f"{live} is live already, but its files are not the ones of the approved plan.")
            raise ToolError("The files changed since the approval. Nothing was switched.")
        if approvers is not None and (request.approval is None or request.approvers != approvers):
            raise Unapproved("Who may approve deployments has changed since. Nothing was switched; deploy it anew.")
        if request.approval is not None:
            request.approval.check(approved(plan))
            ledger.use(request.approval, use)
        _point(application, request.release, approved=request.digest)


def roll_back(application: Application, request: Switch, step: Step) -> None:
    """Make the previous release live again; does nothing if it is. No attempt of the switch does anything afterwards.

    Raises:
        ToolError: It is gone, or a third release went live meanwhile.
    """
    with _exclusive(application, step):
        if request.approval is not None:
            ApprovalLedger(application.folder).close(request.approval)
        live = live_release(application)
        if live == request.previous:
            return
        if live != request.release:
            raise ToolError(f"another release ({live}) went live meanwhile")
        if request.previous is None:
            application.current.unlink()
            sync_folder(application.folder)
            return
        _release_folder(application, request.previous)
        _point(application, request.previous)


def live_release(application: Application) -> str | None:
    """The name of the release that is live, or None.

    Raises:
        ToolError: `current` is not a link to a release.
    """
    if not os.path.lexists(application.current):
        return None
    if application.current.is_symlink():
        target = followed(application.current, of="link to what is live")
        if target.parent == application.releases.resolve():
            return target.name
    raise ToolError("What is live is not a link to one of the application's releases.")


def scan(folder: Path, step: Step) -> dict[str, str]:
    """Every file and link below `folder`: its relative path, and a description that changes whenever it does.

    Raises:
        ToolError: There is something that a release must not have.
        StepStopped: The activity was cancelled.
    """
    found: dict[str, str] = {}
    for parent, folders, files in os.walk(folder, onerror=_raise):
        for name in (*folders, *files):
            step.check()
            path = Path(parent, name)
            relative = path.relative_to(folder).as_posix()
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                if not followed(path, of="release's link").is_relative_to(folder):
                    raise ToolError(f"The release has a link that leads out of it: {_shown(relative)}.")
                found[relative] = f"link {os.readlink(path)}"
            elif stat.S_ISREG(mode):
                found[relative] = f"file {'x' if mode & stat.S_IXUSR else '-'} {_content_digest(path)}"
                step.done += 1
            elif not stat.S_ISDIR(mode):
                raise ToolError(f"The release has something that is neither a file nor a folder: {_shown(relative)}.")
        if len(found) > MAX_FILES:
            raise ToolError(f"The release has more than {MAX_FILES} files.")
    return found


def _release_folder(application: Application, release: str) -> Path:
    releases = application.releases.resolve()
    folder = inside(releases, release, of="release")
    if folder.parent != releases or folder.name != release:
        raise ToolError(f"The release {release!r} is outside of what this tool may touch.")
    if not folder.is_dir():
        raise ToolError(f"There is no release {release!r}.")
    return folder


def _settings(application: Application) -> Settings:
    try:
        return Settings.model_validate(tomllib.loads((application.folder / "deploy.toml").read_text("utf-8")))
    except FileNotFoundError:
        raise ToolError(
            "The application has no deploy.toml that names its health_url. Its operator must add it."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValidationError):
        raise ToolError("The application's deploy.toml cannot be used. Its operator must correct it.") from None


def _digest(
    application: str,
    release: str,
    new: Mapping[str, str],
    current: str | None,
    old: Mapping[str, str],
    settings: Settings,
) -> str:
    whole = [application, release, new, current, old, settings.model_dump()]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode("ascii")).hexdigest()


def _content_digest(path: Path) -> str:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with open(handle, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _point(application: Application, release: str, *, approved: str = "") -> None:
    """Replace the link in one step: whoever looks sees the old release or the new one. Before, it is noted with the
    digest of the `approved` plan, so that a repetition knows it from a link that somebody else made."""
    new = application.folder / ".current.new"
    new.unlink(missing_ok=True)  # of a step that was killed
    new.symlink_to(Path("releases", release))
    (application.folder / MARK).write_text(_mark(new, approved), "ascii")
    new.replace(application.current)
    sync_folder(application.folder)


def _switched_to(application: Application, digest: str) -> bool:
    """Whether the live link is the one that was made for the plan with this digest."""
    try:
        return (application.folder / MARK).read_text("ascii") == _mark(application.current, digest)
    except (FileNotFoundError, UnicodeDecodeError):
        return False


def _mark(link: Path, digest: str) -> str:
    status = link.lstat()
    return f"{digest} {status.st_ino} {status.st_mtime_ns}"  # both are kept when the link is renamed


@contextmanager
def _exclusive(application: Application, step: Step) -> Iterator[None]:
    """The only deployment of this application, on this machine. The lock goes with the process that holds it."""
    with open(application.folder / ".deploy.lock", "ab") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                step.check()
                time.sleep(0.05)
            else:
                break
        yield


def _raise(error: OSError) -> None:
    raise error


def _shown(path: str) -> str:
    """A path in what a person approves: one line, whatever is in a file's name."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in path)
