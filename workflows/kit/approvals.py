"""An approval covers one thing, exactly, and one use.

It carries the digest of what was approved, who approved it, when and by which channel. Whoever is about to act
recomputes the digest from what is really there, right before the side effect, and refuses what does not fit: what was
shown to a person and what is done later may be days and many hands apart.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Literal

from pydantic import Field

from .contract import Actor, Wire
from .errors import Unapproved
from .forms import Form
from .results import plain_json


def digest_of(subject: object) -> str:
    """SHA-256 in hex of `subject` as canonical JSON: UTF-8, members sorted by name, no spaces.

    Equal JSON has equal digests, in any process and version; 1 and 1.0 are not equal JSON.

    Raises:
        TypeError, ValueError: It has no JSON form.
    """
    canonical = json.dumps(plain_json(subject), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


class Decision(Form):
    """What is asked for an approval."""

    approve: bool = Field(title="Approve")
    note: str = Field(default="", max_length=500, title="Note", description="Kept with the decision.")


class Approval(Wire):
    """A person's approval of exactly one thing. Give it to the activity that acts, and into a checkpoint's state.

    `digest` is `digest_of` what was approved, `task` and `key` name the question, which makes them unique. `by` is None
    only if the signal named nobody, which no bridge does; `at` is when the bridge took the answer.
    """

    v: Literal[1] = 1
    digest: str
    task: str
    key: str
    by: Actor | None = None
    at: datetime
    note: str = ""

    @property
    def id(self) -> str:
        """Names this approval among all: what an activity keeps to tell a repeated attempt from another use."""
        return f"{self.task}/{self.key}"

    def check(self, subject: object) -> None:
        """Raises Unapproved if `subject` is not what was approved. For workflows and activities alike."""
        if digest_of(subject) != self.digest:
            raise Unapproved("What is there now is not what was approved.")
