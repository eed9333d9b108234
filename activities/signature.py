"""Ties an implementation to its typed signature.

A workflow names its activities by functions kept beside it, whose bodies never run; `@implements(signature)`
registers the real one under the same name, and lets the type checker compare arguments and result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from temporalio import activity

A = TypeVar("A")
R = TypeVar("R")


def implements(
    signature: Callable[[A], Awaitable[R]],
) -> Callable[[Callable[[A], Awaitable[R]]], Callable[[A], Awaitable[R]]]:
    """Make a coroutine function the activity that `signature` (an `@activity.defn` without a name of its own)
    stands for."""
    return activity.defn(name=signature.__name__)
