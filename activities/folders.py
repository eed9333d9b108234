"""Where tools may touch this machine's files: below a folder that the worker's operator names, and nowhere else.

A request names files relative to that folder. The check is made on the resolved path, so neither `..`, an absolute
path nor a symbolic link leads out of it.
"""

from __future__ import annotations

import os
from pathlib import Path

from workflows.kit.errors import ToolError


def root_folder(variable: str) -> Path:
    """The folder named by the environment `variable`, resolved.

    Raises:
        ToolError: It is not set, or there is no such folder.
    """
    value = os.environ.get(variable)
    if not value:
        raise ToolError(f"This worker has no folder for this tool. Its operator must set {variable}.")
    root = Path(value).resolve()
    if not root.is_dir():
        raise ToolError(f"This worker's folder for this tool is missing. Its operator must check {variable}.")
    return root


def inside(root: Path, name: str, *, of: str) -> Path:
    """The path that `name` means below `root` (resolved itself); it need not exist. `of` says in errors what the
    name is for.

    Raises:
        ToolError: The name leads out of the root, or cannot be a path.
    """
    try:
        path = (root / name).resolve()
    except (ValueError, OSError, RuntimeError):  # NUL, too long, a loop of links
        raise ToolError(f"{name!r} cannot be used as a path for the {of}.") from None
    if path == root or not path.is_relative_to(root):
        raise ToolError(f"The {of} {name!r} is outside of what this tool may touch.")
    return path


def followed(link: Path, *, of: str) -> Path:
    """Where a link leads, which need not exist. `of` says in errors what the link is for.

    Raises:
        ToolError: It cannot be followed, as one that leads back to itself.
    """
    try:
        return link.resolve(strict=True)
    except FileNotFoundError:
        return link.resolve()
    except (OSError, RuntimeError):  # a loop is either, by the version of Python
        raise ToolError(f"The {of} {link.name!r} cannot be followed.") from None


def sync_folder(folder: Path) -> None:
    """Have the folder's own entries on the disk: what was created, renamed or removed in it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
