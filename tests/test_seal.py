"""Sealed tokens: good for their owner, their purpose and their time, under any key of the ring, unchanged."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from bridge.seal import Seal, Unsealed
from workflows.kit.contract import Principal

OLD, NEW = "o" * 32, "n" * 32
HOUR = timedelta(hours=1)
OWNER = Principal(issuer="issuer", subject="ada")
CLAIMS: dict[str, Any] = {"task": "task-1", "key": "ключ", "depth": {"a": [1, None, True]}}


def seal(*keys: str, purpose: str = "question", lifetime: timedelta = HOUR) -> Seal:
    return Seal(keys or (OLD,), purpose, lifetime)


def opens(opener: Seal, token: str, owner: Principal = OWNER) -> bool:
    """Whether a token is taken, and then for what it was."""
    try:
        assert opener.open(token, owner) == CLAIMS
    except Unsealed:
        return False
    return True


def test_a_token_tells_its_claims_and_nothing_besides() -> None:
    assert opens(seal(), seal().seal(CLAIMS, OWNER))


def test_a_token_travels_in_headers_and_tells_its_bearer_nothing() -> None:
    tokens = {seal().seal(CLAIMS, OWNER) for _ in range(100)}
    assert len(tokens) == 100
    for token in tokens:
        assert re.fullmatch(r"[A-Za-z0-9._~-]+", token)
        assert "task-1" not in token


@pytest.mark.parametrize(
    "stranger",
    [
        Principal(issuer="issuer", subject="eve"),
        Principal(issuer="another", subject="ada"),
        Principal(issuer="issuer\0ada", subject=""),
        Principal(issuer="", subject="ada"),
    ],
    ids=str,
)
def test_a_token_is_its_owners_alone(stranger: Principal) -> None:
    assert not opens(seal(), seal().seal(CLAIMS, OWNER), stranger)


def test_the_client_that_an_owner_uses_makes_no_difference() -> None:
    assert opens(seal(), seal().seal(CLAIMS, OWNER), OWNER.model_copy(update={"client": "another"}))


def test_a_token_is_good_for_one_purpose() -> None:
    assert not opens(seal(purpose="session"), seal(purpose="question").seal(CLAIMS, OWNER))


@pytest.mark.parametrize(
    ("sealing", "opening", "good"),
    [
        ([OLD], [OLD], True),
        ([OLD], [NEW, OLD], True),
        ([OLD], [OLD, NEW], True),
        ([NEW, OLD], [NEW], True),
        ([OLD, NEW], [NEW], False),
        ([NEW, OLD], [OLD], False),
        ([OLD], [NEW], False),
    ],
)
def test_the_first_key_seals_and_all_open(sealing: list[str], opening: list[str], good: bool) -> None:
    assert opens(seal(*opening), seal(*sealing).seal(CLAIMS, OWNER)) is good


def test_a_token_is_good_until_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.seal.time.time", lambda: 1000.0)
    token = seal(lifetime=timedelta(seconds=60)).seal(CLAIMS, OWNER)
    for now, good in ((1000.0, True), (1059.9, True), (1060.0, False), (9999.0, False)):
        monkeypatch.setattr("bridge.seal.time.time", lambda now=now: now)
        assert opens(seal(lifetime=HOUR), token) is good


def test_a_token_that_was_changed_anywhere_is_refused() -> None:
    token = seal().seal(CLAIMS, OWNER)
    for place in range(len(token)):
        other = "A" if token[place] != "A" else "B"
        assert not opens(seal(), token[:place] + other + token[place + 1 :]), place
        assert not opens(seal(), token[:place] + token[place + 1 :]), place


@pytest.mark.parametrize("token", ["", "x", "é", "v1.", "v1.é", "v1." + "A" * 100, "\0", "1", "null", "x" * 100_000])
def test_what_was_never_sealed_is_refused(token: str) -> None:
    assert not opens(seal(), token)


@pytest.mark.parametrize("more", ["=", "A", ".", "\n", " ", "é"])
def test_nothing_may_be_added_to_a_token(more: str) -> None:
    token = seal().seal(CLAIMS, OWNER)
    assert not opens(seal(), token + more)
    assert not opens(seal(), more + token)
