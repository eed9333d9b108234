"""What workflows call is what workers implement."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, get_type_hints

import pytest
from temporalio import activity

from activities import ACTIVITIES
from workflows import crawl_site, deploy_release, migrate_records


def name_of(function: Callable[..., Any]) -> str | None:
    definition = activity._Definition.from_callable(function)
    return definition.name if definition else None


def signatures(module: ModuleType) -> dict[str, Callable[..., Any]]:
    functions = [member for _, member in inspect.getmembers(module, inspect.iscoroutinefunction)]
    return {name: function for function in functions if (name := name_of(function))}


IMPLEMENTED = {name_of(function): function for function in ACTIVITIES}


@pytest.mark.parametrize("module", [migrate_records, deploy_release, crawl_site], ids=lambda module: module.__name__)
def test_every_signature_is_implemented_with_its_types(module: ModuleType) -> None:
    declared = signatures(module)
    assert declared
    for name, signature in declared.items():
        assert get_type_hints(IMPLEMENTED[name]) == get_type_hints(signature)


def test_every_activity_implements_a_signature() -> None:
    declared = {name for module in (migrate_records, deploy_release, crawl_site) for name in signatures(module)}
    assert set(IMPLEMENTED) == declared
