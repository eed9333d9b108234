"""The author's kit: everything a tool needs, in one subpackage that depends on temporalio and pydantic alone.

Relative imports only, so that a team can vendor it under any name of its own.
"""

from .answerers import NOT_OWNER, group
from .approvals import Approval
from .declaration import Declaration, tool
from .delegates import Delegates
from .errors import Declined, JsonRpcError, ToolError, Unapproved
from .forms import Form
from .sealed import SealedAnswer, SecretForm
from .task import Task

__all__ = [
    "NOT_OWNER",
    "Approval",
    "Declaration",
    "Declined",
    "Delegates",
    "Form",
    "JsonRpcError",
    "SealedAnswer",
    "SecretForm",
    "Task",
    "ToolError",
    "Unapproved",
    "group",
    "tool",
]
