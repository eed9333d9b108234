"""Which approvals were used up, on the machine that they protect: one small file for each, written before the side
effect.

A repeated attempt of one step is the same use; any other is refused. What was taken back is closed for good, so that
an attempt that was given up for lost cannot come late and act after all. The caller holds a lock meanwhile.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ValidationError

from workflows.kit.approvals import Approval
from workflows.kit.errors import ToolError, Unapproved

from .folders import sync_folder

FOLDER: Final = ".deploy.approvals"


class Use(BaseModel):
    """What is kept of an approval: the whole of it, for auditors, and the step that it was used for; None if that was
    taken back before it began."""

    approval: Approval
    step: str | None = None
    closed: bool = False


class ApprovalLedger:
    """The uses of approvals in one application's folder."""

    def __init__(self, application: Path) -> None:
        self._folder = application / FOLDER

    def use(self, approval: Approval, step: str) -> None:
        """Note that `step` uses `approval`, or did in an attempt before.

        Raises:
            Unapproved: Another step used it, or it was taken back.
            ToolError: What was noted cannot be read.
        """
        known = self._read(approval)
        if known is None:
            self._write(Use(approval=approval, step=step))
        elif known.closed or known.step != step:
            raise Unapproved("The approval was used before. Each one is for one use. Nothing was switched.")

    def close(self, approval: Approval) -> None:
        """Note that what `approval` was used for was taken back: no attempt may use it from now on. What cannot be read
        is written anew, because it must not stand in the way back."""
        known = None
        with suppress(ToolError):
            known = self._read(approval)
        self._write(Use(approval=approval, step=known.step if known else None, closed=True))

    def _read(self, approval: Approval) -> Use | None:
        try:
            return Use.model_validate_json(self._file(approval).read_bytes())
        except FileNotFoundError:
            return None
        except (ValidationError, UnicodeDecodeError):
            raise ToolError("What is noted of this approval cannot be read. Nothing was switched.") from None

    def _write(self, use: Use) -> None:
        self._folder.mkdir(exist_ok=True)
        new = self._folder / ".new"  # one at a time: the caller holds the lock
        with new.open("wb") as file:
            file.write(use.model_dump_json(by_alias=True, exclude_none=True, indent=1).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._file(use.approval))
        sync_folder(self._folder)
        sync_folder(self._folder.parent)

    def _file(self, approval: Approval) -> Path:
        return self._folder / f"{hashlib.sha256(approval.id.encode()).hexdigest()}.json"
