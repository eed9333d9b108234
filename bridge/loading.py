"""Loading a tasks module: the Python module that `--tasks` names, with `TASKS` and `ACTIVITIES`.

Bridge and worker load the same module, so what one offers the other can run. The current folder is searched last: a
package beside the operator is found, and none there can take the place of an installed one.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workflows.kit import Task

from .settings import SettingsError

if TYPE_CHECKING:  # a worker has no use for what serves MCP
    from mcp.server.subscriptions import SubscriptionBus


@dataclass(frozen=True)
class TasksModule:
    """The tools of a deployment and the activities that they use.

    `shared` names modules that Temporal's sandbox need not import anew for every run, because tests in the full sandbox
    have shown that they are deterministic. `register_handlers` gives the bridge's MCP server more than tools
    (`bridge.features`), and on `subscriptions` the module tells of their changes (`bridge.announce`); a worker has no
    use for either.
    """

    name: str
    tasks: tuple[type[Task[Any, Any]], ...]
    activities: tuple[Callable[..., Any], ...]
    shared: tuple[str, ...] = ()
    register_handlers: Callable[[Any], object] | None = None
    subscriptions: SubscriptionBus | None = None


def load_tasks(name: str) -> TasksModule:
    """Import the tasks module `name`.

    Raises:
        SettingsError: There is no such module, or it does not have what a tasks module has. An error inside the module
            itself is the author's and passes through with its traceback.
    """
    if (here := os.getcwd()) not in sys.path:  # sys.path holds strings
        sys.path.append(here)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise SettingsError(
            f"--tasks {name}: there is no module {error.name!r} here or among the installed ones"
        ) from error
    tasks, activities = getattr(module, "TASKS", None), getattr(module, "ACTIVITIES", None)
    if not _is_list_of(tasks, _is_tool) or not tasks:
        raise SettingsError(f"--tasks {name}: the module needs TASKS, a list of Task classes declared with @tool")
    if not _is_list_of(activities, callable):
        raise SettingsError(
            f"--tasks {name}: the module needs ACTIVITIES, a list of activity functions (it may be empty)"
        )
    shared = getattr(module, "SHARED", ())
    if not _is_list_of(shared, lambda item: isinstance(item, str)) or isinstance(shared, str):
        raise SettingsError(f"--tasks {name}: SHARED, if the module has it, is a list of module names")
    register_handlers = getattr(module, "register_handlers", None)
    if register_handlers is not None and not callable(register_handlers):
        raise SettingsError(f"--tasks {name}: register_handlers, if the module has it, is a function of the MCP server")
    subscriptions = getattr(module, "SUBSCRIPTIONS", None)
    if subscriptions is not None and not callable(getattr(subscriptions, "subscribe", None)):
        raise SettingsError(
            f"--tasks {name}: SUBSCRIPTIONS, if the module has it, is a SubscriptionBus of mcp.server.subscriptions"
        )
    return TasksModule(
        name=name,
        tasks=tuple(tasks),
        activities=tuple(activities or ()),
        shared=tuple(shared),
        register_handlers=register_handlers,
        subscriptions=subscriptions,
    )


def _is_list_of(value: Any, accepts: Callable[[Any], bool]) -> bool:
    return isinstance(value, Sequence) and all(accepts(item) for item in value)


def _is_tool(item: Any) -> bool:
    return isinstance(item, type) and issubclass(item, Task) and hasattr(item, "declaration")
