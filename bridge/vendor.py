"""`mcp-tasks vendor DEST`: the author's kit, copied into a project of somebody else under a name of its own.

A marker beside the copies says which version they are and what each file was, so that a later run can tell what is ours
to replace from what was changed there by hand. The marker is written last: a run that was interrupted is taken up by
the next one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

import workflows.kit

from .settings import OperatorError, SettingsError

DISTRIBUTION: Final = "mcp-temporal-tasks"
MARKER: Final = "VENDORED.json"


class OutOfDate(OperatorError):
    """A copy is not what this version would write."""


class Marker(BaseModel):
    """What was copied: the version, and the SHA-256 of each file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    distribution: Literal["mcp-temporal-tasks"] = DISTRIBUTION
    version: str
    files: dict[Annotated[str, StringConstraints(pattern=r"^(\w+\.py|LICENSE)$")], str]


@dataclass(frozen=True, kw_only=True)
class Vendored:
    """What a run did. `previous` is the version that was there before."""

    dest: str
    version: str
    previous: str | None
    written: list[str]
    removed: list[str]

    def line(self, *, as_json: bool) -> str:
        """One line, for people or as JSON."""
        if as_json:
            return json.dumps(asdict(self))
        if self.previous is None:
            return f"mcp-tasks vendor: copied the kit {self.version} to {self.dest}, {len(self.written)} files"
        if not self.written and not self.removed and self.previous == self.version:
            return f"mcp-tasks vendor: {self.dest} is the kit {self.version}, nothing to do"
        done = [
            *([f"wrote {', '.join(self.written)}"] if self.written else []),
            *([f"removed {', '.join(self.removed)}"] if self.removed else []),
        ]
        return (
            f"mcp-tasks vendor: updated {self.dest} from {self.previous} to {self.version}: "
            f"{'; '.join(done) or 'no file differs'}"
        )


def vendor(dest: Path, *, force: bool = False) -> Vendored:
    """Copy the kit to the folder `dest`, or update the copy there. `force` overwrites what was changed by hand.

    Raises:
        SettingsError: `dest` cannot become a package or be written, is something else, or was changed by hand.
    """
    kit = _kit()
    before = _marked(dest)
    there = _there(dest, kit, before)
    if not force and (changed := _changed(there, kit, before)):
        raise SettingsError(f"{dest}: changed by hand since it was vendored: {', '.join(changed)}; --force overwrites")
    written = [name for name, content in kit.items() if there.get(name) != _hash(content)]
    removed = [name for name in there if name not in kit]
    after = _marker(kit)
    try:
        dest.mkdir(parents=True, exist_ok=True)
        for name in written:
            (dest / name).write_bytes(kit[name])
        for name in removed:
            (dest / name).unlink()
        if after != before:
            (dest / MARKER).write_text(after.model_dump_json(indent=2) + "\n", "utf-8")
    except OSError as error:
        raise SettingsError(f"{dest}: cannot be written: {error.strerror}") from error
    return Vendored(
        dest=str(dest),
        version=after.version,
        previous=before.version if before else None,
        written=written,
        removed=removed,
    )


def check(dest: Path) -> Vendored:
    """That the copy in `dest` is the kit of this version, unchanged.

    Raises:
        OutOfDate: It is not.
        SettingsError: There is no copy.
    """
    kit = _kit()
    before = _marked(dest)
    if before is None:
        raise SettingsError(f"{dest}: there is no vendored kit; mcp-tasks vendor {dest} makes one")
    there = _there(dest, kit, before)
    if changed := _changed(there, kit, before):
        raise OutOfDate(f"{dest}: changed by hand since it was vendored: {', '.join(changed)}")
    now = _marker(kit)
    if before != now or there != now.files:
        raise OutOfDate(f"{dest}: {before.version} is out of date: mcp-tasks vendor {dest} brings {now.version}")
    return Vendored(dest=str(dest), version=now.version, previous=before.version, written=[], removed=[])


def _kit() -> Mapping[str, bytes]:
    """The kit's files by name."""
    folder = Path(workflows.kit.__path__[0])
    return {path.name: path.read_bytes() for path in [folder / "LICENSE", *sorted(folder.glob("*.py"))]}


def _marker(kit: Mapping[str, bytes]) -> Marker:
    return Marker(version=version(DISTRIBUTION), files={name: _hash(content) for name, content in kit.items()})


def _marked(dest: Path) -> Marker | None:
    """The marker in `dest`; None if nothing is there yet.

    Raises:
        SettingsError: Something else is there, or the name cannot be imported.
    """
    if not dest.resolve().name.isidentifier():
        raise SettingsError(f"{dest}: the last part must be a Python name, e.g. mcp_kit, so that it can be imported")
    try:
        return Marker.model_validate_json((dest / MARKER).read_bytes())
    except FileNotFoundError:
        if dest.exists() and any(dest.iterdir()):
            raise SettingsError(f"{dest}: exists, and is no vendored kit: it has no {MARKER}") from None
        return None
    except NotADirectoryError:
        raise SettingsError(f"{dest}: exists, and is no folder") from None
    except ValidationError:
        raise SettingsError(f"{dest}: its {MARKER} cannot be read; remove the folder, and vendor it again") from None


def _there(dest: Path, kit: Mapping[str, bytes], before: Marker | None) -> dict[str, str]:
    """The hashes of the files in `dest` that are the kit's, now or at the time of the marker."""
    ours = {*kit, *(before.files if before else ())}
    return {name: _hash((dest / name).read_bytes()) for name in sorted(ours) if (dest / name).exists()}


def _changed(there: Mapping[str, str], kit: Mapping[str, bytes], before: Marker | None) -> list[str]:
    """The files that are neither as they were vendored nor as they would be now; what is missing can be restored."""
    known = before.files if before else {}
    return [
        name
        for name, found in there.items()
        if found != known.get(name) and (name not in kit or found != _hash(kit[name]))
    ]


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
