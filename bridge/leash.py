"""Run a command that dies with its parent: `python leash.py PARENT_PID COMMAND...`.

A supervisor that is killed with SIGKILL cannot end its children; on Linux the kernel can (PR_SET_PDEATHSIG, which
survives exec). This is a script of its own because the setting must be made in the child, and code between fork and
exec is unsafe beside threads. Elsewhere it only runs the command.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent, then become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it died before the line above, so no signal will come
            sys.exit(1)
    os.execv(command[0], command)  # noqa: S606  # no shell is the point


if __name__ == "__main__":
    main()
