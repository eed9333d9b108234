"""The author's kit: everything a tool needs, in one subpackage that depends on temporalio and pydantic alone.

Relative imports only, so that a team can vendor it under any name of its own.
"""

from .declaration import Declaration, tool
from .errors import Declined, JsonRpcError, ToolError
from .forms import Form
from .task import Task

__all__ = ["Declaration", "Declined", "Form", "JsonRpcError", "Task", "ToolError", "tool"]
