"""Keys and tokens of a made-up issuer, for what a real one would not do."""

from __future__ import annotations

import json
import time
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER: Final = "https://as.example"
RESOURCE: Final = "https://mcp.example.com/mcp"

RSA: Final = rsa.generate_private_key(65537, 2048)
OTHER_RSA: Final = rsa.generate_private_key(65537, 2048)
P256: Final = ec.generate_private_key(ec.SECP256R1())
ED25519: Final = ed25519.Ed25519PrivateKey.generate()

PRIVATE: Final[dict[str, Any]] = {"RS256": RSA, "PS256": RSA, "ES256": P256, "EdDSA": ED25519}


def public(private: Any, key_id: str, **members: Any) -> dict[str, Any]:
    """The JWK of a private key's public half."""
    key = private.public_key()
    if isinstance(private, rsa.RSAPrivateKey):
        shown = RSAAlgorithm.to_jwk(key)
    elif isinstance(private, ec.EllipticCurvePrivateKey):
        shown = ECAlgorithm.to_jwk(key)
    else:
        shown = OKPAlgorithm.to_jwk(key)
    return {**json.loads(shown), "kid": key_id, **members}


PUBLISHED: Final = [public(RSA, "rsa"), public(P256, "ec"), public(ED25519, "ed")]
KEY_IDS: Final = {"RS256": "rsa", "PS256": "rsa", "ES256": "ec", "EdDSA": "ed"}


def claims(**changes: Any) -> dict[str, Any]:
    """Those of a good token; a claim that is None is left out."""
    now = int(time.time())
    good = {
        "iss": ISSUER,
        "sub": "alice",
        "aud": RESOURCE,
        "exp": now + 300,
        "iat": now,
        "client_id": "cli",
        "scope": "tasks:call tasks:read",
    }
    return {name: value for name, value in (good | changes).items() if value is not None}


def signed(said: dict[str, Any] | None = None, *, algorithm: str = "RS256", key: Any = None, **header: Any) -> str:
    """A token with these claims; `header` replaces members of its header, and None leaves one out."""
    told = {"typ": "at+jwt", "kid": KEY_IDS.get(algorithm, "rsa")} | header
    return jwt.encode(
        claims() if said is None else said,
        PRIVATE[algorithm] if key is None else key,
        algorithm=algorithm,
        headers={name: value for name, value in told.items() if value is not None},
    )
