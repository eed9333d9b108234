"""Who may see to the tasks of a tool beside their owners: groups, named where the tool is declared.

Whose member somebody is, their credentials say, on each request. A group that is not named here may do nothing.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict

from .answerers import group

Group = Annotated[str, AfterValidator(lambda name: group(name).group)]


class Delegates(BaseModel):
    """The groups whose members may read the tool's tasks, answer their questions, and cancel them; whoever may answer
    or cancel may read, too. A question that says who answers it (`answered_by`) is still for those alone.

    Raises ValueError: Something else than lists of groups, whose names have 1 to 256 printable characters.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    read: tuple[Group, ...] = ()
    answer: tuple[Group, ...] = ()
    cancel: tuple[Group, ...] = ()


NOBODY: Final = Delegates()
"""The owners alone."""
