"""Ids that are found again: the same for the same names of the same owner, and for nothing else."""

from __future__ import annotations

import itertools
import re

import pytest

from bridge.task_ids import TaskIds, random_id
from workflows.kit.contract import Principal

IDS = TaskIds(["k" * 32])
OWNER = Principal(issuer="https://id.example.com", subject="ada")

OWNERS = [
    OWNER,
    Principal(issuer="https://id.example.com", subject="eve"),
    Principal(issuer="https://id.example.org", subject="ada"),
    Principal(issuer="https://id.example.com\0ada", subject=""),
    Principal(issuer="", subject="https://id.example.com\0ada"),
    Principal(issuer='https://id.example.com", "ada', subject=""),
    Principal(issuer="https://id.example.co", subject="mada"),
]


def test_a_random_id_is_like_no_other_and_fits_into_a_header() -> None:
    ids = {random_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch("task-[0-9a-f]{32}", task_id) for task_id in ids)


def test_a_name_leads_to_the_same_id_in_every_process() -> None:
    """What was started under an id must be found by the next release: a change here loses running tasks."""
    assert TaskIds(["k" * 32]).of_creation_key(OWNER, "nightly") == ["task-30006ff428a70707c0dac341f18a11d4"]
    assert TaskIds(["k" * 32]).of_request(OWNER, "session", 1) == ["task-e2726e77ff9f5b458f14b31796f65a7a"]


@pytest.mark.parametrize("name", ["", "x" * 10_000, "\0", "ключ", "\U0001f511", 'a", "b'])
def test_whatever_the_name_the_id_is_an_id(name: str) -> None:
    (task_id,) = IDS.of_creation_key(OWNER, name)
    assert re.fullmatch("task-[0-9a-f]{32}", task_id)


def test_owners_never_meet_under_one_key() -> None:
    keys = ["k", "", "ada", '", "k']
    ids = [IDS.of_creation_key(owner, key)[0] for owner, key in itertools.product(OWNERS, keys)]
    assert len(set(ids)) == len(ids)


def test_the_client_that_an_owner_uses_makes_no_difference() -> None:
    other = OWNER.model_copy(update={"client": "another"})
    assert IDS.of_creation_key(other, "k") == IDS.of_creation_key(OWNER, "k")


def test_kinds_of_names_and_types_of_request_ids_are_told_apart() -> None:
    ids = [
        *IDS.of_creation_key(OWNER, "1"),
        *IDS.of_request(OWNER, "s", "1"),
        *IDS.of_request(OWNER, "s", 1),
        *IDS.of_request(OWNER, "s", "01"),
        *IDS.of_request(OWNER, "s1", ""),
        *IDS.of_request(OWNER, "", "s1"),
        *IDS.of_request(OWNER, 's", "1', ""),
    ]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("letters", ["nk", "kn", "nok"])
def test_a_ring_gives_one_id_for_each_of_its_keys_in_their_order(letters: str) -> None:
    ring = [letter * 32 for letter in letters]
    ids = TaskIds(ring).of_creation_key(OWNER, "k")
    assert ids == [TaskIds([key]).of_creation_key(OWNER, "k")[0] for key in ring]
    assert len(set(ids)) == len(ring)
    assert ids[ring.index("k" * 32)] == IDS.of_creation_key(OWNER, "k")[0]
