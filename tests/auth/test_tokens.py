"""Every reason to refuse a token, and what an accepted one says."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from bridge.identity import Identity
from bridge.jwks import prepared_key
from bridge.tokens import InvalidToken, TokenRules, unverified, verified
from tests.auth.keys import ISSUER, KEY_IDS, OTHER_RSA, P256, PUBLISHED, RESOURCE, RSA, claims, public, signed

RULES = TokenRules(resource=RESOURCE)


def identity_of(token: str, rules: TokenRules = RULES, keys: Any = PUBLISHED) -> Identity:
    said = unverified(token, {ISSUER})
    key = prepared_key(keys, said.key_id, said.algorithm)
    if key is None:
        raise InvalidToken("no key")
    return verified(token, said, key, rules)


def refusal(token: str, **options: Any) -> str:
    with pytest.raises(InvalidToken) as refused:
        identity_of(token, **options)
    return refused.value.reason


def segment(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def unsigned(header: dict[str, Any], said: dict[str, Any]) -> str:
    return f"{segment(json.dumps(header).encode())}.{segment(json.dumps(said).encode())}."


@pytest.mark.parametrize("algorithm", sorted(KEY_IDS))
def test_a_good_token_says_who_calls_and_what_for(algorithm: str) -> None:
    said = claims(groups=["release-managers", "staff"])
    found = identity_of(signed(said, algorithm=algorithm))
    assert (found.principal.issuer, found.principal.subject, found.principal.client) == (ISSUER, "alice", "cli")
    assert found.scopes == frozenset({"tasks:call", "tasks:read"})
    assert found.groups == {"release-managers", "staff"}
    assert found.expires_at == said["exp"] + RULES.clock_skew_seconds


# Who signed it


def test_a_token_that_is_not_signed_is_refused() -> None:
    for alg in ("none", "None", "NONE", "", None):
        assert refusal(unsigned({"alg": alg, "kid": "rsa", "typ": "at+jwt"}, claims()))


def test_a_public_key_is_no_shared_secret() -> None:
    """The classic confusion: the key that everybody knows, taken for the secret of an HMAC."""
    pem = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    header = segment(json.dumps({"alg": "HS256", "kid": "rsa", "typ": "at+jwt"}).encode())
    signing = f"{header}.{segment(json.dumps(claims()).encode())}"
    secret = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    token = f"{signing}.{segment(secret.sign(signing.encode(), pem))}"
    assert refusal(token) == "The token is signed in a way that is not accepted"


@pytest.mark.parametrize("algorithm", ["HS256", "HS512", "RS512", "ES384", "ES256K", "PS384", ["RS256"], {}, 5])
def test_only_the_pinned_algorithms_are_accepted(algorithm: Any) -> None:
    assert refusal(unsigned({"alg": algorithm, "kid": "rsa"}, claims()) + "c2ln")


def test_a_key_of_another_kind_is_not_tried() -> None:
    assert refusal(signed(algorithm="ES256", kid="rsa")) == "no key"
    assert refusal(signed(algorithm="RS256", kid="ec")) == "no key"


def test_a_key_that_is_for_one_algorithm_is_for_no_other() -> None:
    keys = [public(RSA, "rsa", alg="PS256")]
    assert refusal(signed(algorithm="RS256"), keys=keys) == "no key"
    identity_of(signed(algorithm="PS256"), keys=keys)


@pytest.mark.parametrize("members", [{"use": "enc"}, {"key_ops": ["encrypt"]}, {"key_ops": "verify"}, {"kty": "oct"}])
def test_a_key_that_is_for_something_else_verifies_nothing(members: dict[str, Any]) -> None:
    assert refusal(signed(), keys=[public(RSA, "rsa", **members)]) == "no key"


def test_a_key_id_that_is_there_twice_or_that_is_missing_with_several_keys_decides_nothing() -> None:
    assert refusal(signed(), keys=[public(RSA, "rsa"), public(OTHER_RSA, "rsa")]) == "no key"
    assert refusal(signed(kid=None), keys=[public(RSA, "a"), public(OTHER_RSA, "b")]) == "no key"
    identity_of(signed(kid=None))


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
def test_a_short_rsa_key_verifies_nothing() -> None:
    weak = rsa.generate_private_key(65537, 1024)  # noqa: S505 - that is the point
    assert refusal(signed(key=weak), keys=[public(weak, "rsa")]) == "The token's signature is not valid"


def test_the_signature_of_another_key_is_refused() -> None:
    assert refusal(signed(key=OTHER_RSA)) == "The token's signature is not valid"


def test_what_was_signed_cannot_be_changed() -> None:
    header, _, signature = signed().split(".")
    changed = segment(json.dumps(claims(sub="olga")).encode())
    assert refusal(f"{header}.{changed}.{signature}") == "The token's signature is not valid"


def test_keys_that_a_token_brings_along_are_not_looked_at() -> None:
    brought: dict[str, Any] = {
        "jwk": public(OTHER_RSA, "rsa"),
        "jku": "https://evil.example/keys",
        "x5u": "https://evil.example/c",
    }
    assert refusal(signed(key=OTHER_RSA, **brought)) == "The token's signature is not valid"


@pytest.mark.parametrize(
    "token",
    [
        "opaque",
        "a.b",
        "a.b.c",
        "..",
        "a.b.c.d.e",
        segment(b"[]") + ".e30.c2ln",
        segment(b"[" * 5000) + ".e30.c2ln",
        segment(b"\xff\xfe") + ".e30.c2ln",
        segment(b'{"alg": "RS256", "kid": 5}') + ".e30.c2ln",
        segment(b'{"alg": "RS256"}') + f".{segment(b'[1]')}.c2ln",
        segment(b'{"alg": "RS256"}') + f".{segment(b'{' * 5000)}.c2ln",
    ],
)
def test_what_is_no_jwt_is_refused_without_a_crash(token: str) -> None:
    assert refusal(token)


def test_critical_parameters_that_nobody_knows_are_refused() -> None:
    critical: dict[str, Any]
    for critical in (
        {"crit": ["exp"]},
        {"crit": ["b64"]},
        {"crit": ["b64"], "b64": True},
        {"crit": "exp"},
        {"crit": []},
    ):
        assert refusal(signed(None, **critical))


# Who issued it, for whom, and when


@pytest.mark.parametrize(
    "issuer", ["https://other.example", f"{ISSUER}/", "HTTPS://AS.EXAMPLE", "", 5, [ISSUER], {}, None]
)
def test_another_issuer_is_refused(issuer: Any) -> None:
    header = {"alg": "RS256", "kid": "rsa", "typ": "at+jwt"}
    assert refusal(unsigned(header, claims(iss=issuer)) + "c2ln") == "The token is of another issuer"


@pytest.mark.parametrize(
    "audience",
    [
        "https://other.example/mcp",
        "https://mcp.example.com",
        "https://mcp.example.com/mcp/other",
        "https://mcp.example.com/mcp?x=1",
        "https://mcp.example.com/mcp#x",
        "https://mcp.example.com/MCP",
        "https://mcp.example.com:8443/mcp",
        "http://mcp.example.com/mcp",
        "https://user@mcp.example.com/mcp",
        "https://mcp.example.com:bad/mcp",
        "mcp",
        "",
        [],
        ["a", "b"],
        {},
        5,
        [[RESOURCE]],
    ],
)
def test_a_token_for_another_resource_is_refused(audience: Any) -> None:
    assert refusal(signed(claims(aud=audience))) == "The token is for another resource"


@pytest.mark.parametrize(
    "audience",
    [
        [RESOURCE, "https://other.example"],
        f"{RESOURCE}/",
        "HTTPS://MCP.Example.com/mcp",
        "https://mcp.example.com:443/mcp",
    ],
)
def test_the_resource_is_known_in_every_spelling(audience: Any) -> None:
    identity_of(signed(claims(aud=audience)))


def test_a_token_that_has_expired_is_refused_but_for_the_clock_skew() -> None:
    now = int(time.time())
    identity_of(signed(claims(exp=now - 10)))
    assert refusal(signed(claims(exp=now - 40))) == "The token has expired"
    assert refusal(signed(claims(exp=now - 10)), rules=TokenRules(resource=RESOURCE, clock_skew_seconds=0))


@pytest.mark.parametrize("claim", ["nbf", "iat"])
def test_a_token_of_the_future_is_refused_but_for_the_clock_skew(claim: str) -> None:
    now = int(time.time())
    identity_of(signed(claims(**{claim: now + 10})))
    assert refusal(signed(claims(**{claim: now + 60}))) == "The token is not valid yet"


@pytest.mark.parametrize("claim", ["exp", "sub", "aud"])
def test_a_token_without_a_claim_that_is_needed_is_refused(claim: str) -> None:
    assert refusal(signed(claims(**{claim: None}))) == f"The token has no {claim}"


@pytest.mark.parametrize("end", ["soon", [1], {}, "1e400", 10**400], ids=["word", "list", "object", "text", "huge"])
def test_an_end_that_is_no_time_is_refused(end: Any) -> None:
    assert refusal(signed(claims(exp=end))) == "The token's claims cannot be used"


@pytest.mark.parametrize("subject", ["", "a\nb", "x" * 256, "a\x00b"])
def test_a_subject_that_can_name_nobody_is_refused(subject: str) -> None:
    assert refusal(signed(claims(sub=subject))) == "The token's subject cannot be used"


# What kind of token it is


@pytest.mark.parametrize("kind", ["at+jwt", "AT+JWT", "application/at+jwt", "JWT", None])
def test_access_tokens_are_accepted(kind: str | None) -> None:
    identity_of(signed(typ=kind))


@pytest.mark.parametrize("kind", ["id+jwt", "dpop+jwt", "logout+jwt", "secevent+jwt"])
def test_tokens_of_other_types_are_refused(kind: str) -> None:
    assert refusal(signed(typ=kind)) == "The token is not an access token"


@pytest.mark.parametrize("mark", [{"nonce": "n"}, {"at_hash": "h"}, {"c_hash": "h"}, {"typ": "ID"}])
def test_an_id_token_is_refused_even_if_it_is_for_this_resource(mark: dict[str, Any]) -> None:
    assert refusal(signed(claims(**mark), typ="JWT")) == "The token is not an access token"


def test_a_token_that_is_bound_to_a_key_is_no_bearer_token() -> None:
    assert refusal(signed(claims(cnf={"jkt": "x"}))) == "The token is bound to a key, and is no bearer token"


# What it is good for


@pytest.mark.parametrize(
    ("said", "scopes"),
    [
        ({"scope": "a b"}, {"a", "b"}),
        ({"scope": " a  b "}, {"a", "b"}),
        ({"scope": None, "scp": "a b"}, {"a", "b"}),
        ({"scope": None, "scp": ["a", "b"]}, {"a", "b"}),
        ({"scope": ["a", 5]}, {"a"}),
        ({"scope": None}, set()),
        ({"scope": 5}, set()),
        ({"scope": "a", "scp": "b"}, {"a"}),
    ],
)
def test_scopes_are_read_as_servers_write_them(said: dict[str, Any], scopes: set[str]) -> None:
    assert identity_of(signed(claims(**said))).scopes == frozenset(scopes)


def test_groups_come_from_the_configured_claim() -> None:
    rules = TokenRules(resource=RESOURCE, groups_claim="https://acme.example/roles")
    said = claims(groups=["wrong"], **{"https://acme.example/roles": ["right", 5, None]})
    assert identity_of(signed(said), rules=rules).groups == {"right"}
    assert identity_of(signed(claims(groups="one"))).groups == {"one"}
    assert identity_of(signed(claims(groups={"a": 1}))).groups == frozenset()


def test_the_client_is_named_by_either_claim_or_not_at_all() -> None:
    assert identity_of(signed(claims(client_id=None, azp="app"))).principal.client == "app"
    assert identity_of(signed(claims(client_id=None))).principal.client is None
    assert identity_of(signed(claims(client_id=5))).principal.client is None


def test_the_owner_does_not_depend_on_the_client() -> None:
    """AU-03: the principal owns, not the token."""
    one, other = identity_of(signed()), identity_of(signed(claims(client_id="phone")))
    assert one.principal.identity == other.principal.identity


def test_a_key_on_another_curve_is_not_tried() -> None:
    assert refusal(signed(algorithm="ES256"), keys=[public(P256, "ec", crv="P-384")]) == "no key"
