"""From a bearer token to an identity: the checks of a JWT access token, in one place and without a network.

Nothing of a token is believed before its signature is verified, but for its issuer, which only says whose keys to try.
The keys decide which algorithm is meant, never the token (RFC 8725, section 3.1); key material inside a token is not
looked at. A token must be for this resource (RFC 8707), must end, and must name somebody. ID tokens, and tokens that
are bound to a key that nobody here asks for, are no bearer tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt
from jwt import PyJWK

from bridge.identity import Identity, is_subject
from bridge.jwks import ALGORITHMS
from bridge.urls import canonical_url
from workflows.kit.contract import Principal

ACCESS_TOKEN_TYPES: Final = frozenset({"at+jwt", "application/at+jwt"})
"""The type of JWT access tokens (RFC 9068). Many servers still say `JWT`, or nothing."""

_PLAIN_TYPES: Final = frozenset({"jwt", "application/jwt"})
_ID_TOKEN_CLAIMS: Final = ("nonce", "at_hash", "c_hash", "s_hash")

MAX_GROUPS: Final = 500
"""Groups of one identity; of more the first count."""


class InvalidToken(Exception):
    """A token that is not good here; `reason` is a fixed text that its holder may read."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What is asked of tokens: the resource that they must be for, in its canonical form, the claim that holds groups,
    and how far clocks may be apart.
    """

    resource: str
    groups_claim: str = "groups"
    clock_skew_seconds: int = 30


@dataclass(frozen=True, slots=True)
class Unverified:
    """What a token says of itself, which decides which key it is tried with and nothing else."""

    issuer: str
    algorithm: str
    key_id: str | None


def unverified(token: str, issuers: Collection[str]) -> Unverified:
    """What a token says about its issuer and its key. Raises InvalidToken: It is none that could be valid."""
    try:
        parts = jwt.decode_complete(token, options={"verify_signature": False})
    except jwt.PyJWTError:
        raise InvalidToken("The token is not a JWT") from None
    header, claims = parts["header"], parts["payload"]
    algorithm, issuer = header.get("alg"), claims.get("iss")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise InvalidToken("The token is signed in a way that is not accepted")
    if "crit" in header:
        raise InvalidToken("The token has critical parameters that are not known")
    if not isinstance(issuer, str) or issuer not in issuers:
        raise InvalidToken("The token is of another issuer")
    _check_type(header, claims)
    return Unverified(issuer=issuer, algorithm=algorithm, key_id=header.get("kid"))


def verified(token: str, said: Unverified, key: PyJWK, rules: TokenRules) -> Identity:
    """Whose token it is and what it is good for. Raises InvalidToken."""
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[said.algorithm],
            issuer=said.issuer,
            leeway=rules.clock_skew_seconds,
            options={
                "require": ["exp", "iss", "sub", "aud"],
                "verify_aud": False,  # below, by the rules for resources
                "enforce_minimum_key_length": True,
            },
        )
    except jwt.ExpiredSignatureError:
        raise InvalidToken("The token has expired") from None
    except jwt.ImmatureSignatureError:
        raise InvalidToken("The token is not valid yet") from None
    except (jwt.InvalidSignatureError, jwt.InvalidKeyError, jwt.InvalidAlgorithmError):
        raise InvalidToken("The token's signature is not valid") from None
    except jwt.MissingRequiredClaimError as missing:
        raise InvalidToken(f"The token has no {missing.claim}") from None
    except jwt.PyJWTError:
        raise InvalidToken("The token's claims cannot be used") from None
    return _identity(claims, rules)


def _check_type(header: Mapping[str, Any], claims: Mapping[str, Any]) -> None:
    kind = header.get("typ")
    if isinstance(kind, str) and kind.lower() in ACCESS_TOKEN_TYPES:
        return
    plain = kind is None or (isinstance(kind, str) and kind.lower() in _PLAIN_TYPES)
    if not plain or claims.get("typ") == "ID" or any(claim in claims for claim in _ID_TOKEN_CLAIMS):
        raise InvalidToken("The token is not an access token")


def _identity(claims: Mapping[str, Any], rules: TokenRules) -> Identity:
    if not _is_for(claims["aud"], rules.resource):
        raise InvalidToken("The token is for another resource")
    if "cnf" in claims:
        raise InvalidToken("The token is bound to a key, and is no bearer token")
    subject, client = claims["sub"], claims.get("client_id", claims.get("azp"))
    if not is_subject(subject):
        raise InvalidToken("The token's subject cannot be used")
    try:
        ends = float(claims["exp"])
    except OverflowError:  # JSON knows larger numbers
        raise InvalidToken("The token's claims cannot be used") from None
    return Identity(
        principal=Principal(issuer=claims["iss"], subject=subject, client=client if is_subject(client) else None),
        scopes=_scopes(claims),
        groups=frozenset(_texts(claims.get(rules.groups_claim))[:MAX_GROUPS]),
        expires_at=ends + rules.clock_skew_seconds,
    )


def _is_for(audience: Any, resource: str) -> bool:
    for value in _texts(audience):
        try:
            if canonical_url(value) == resource:
                return True
        except ValueError:  # an audience need not be a URL
            continue
    return False


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """`scope` separates by spaces (RFC 9068); some servers have a list, or call it `scp`."""
    granted = claims.get("scope", claims.get("scp"))
    return frozenset(granted.split(" ") if isinstance(granted, str) else _texts(granted)) - {""}


def _texts(value: Any) -> list[str]:
    """A claim that is a text or a list of texts; what is neither counts for nothing."""
    values = value if isinstance(value, list) else [value]
    return [text for text in values if isinstance(text, str)]
