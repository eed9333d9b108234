"""Sealing what was entered for the worker: the bridge has the public key alone, and cannot read it again."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from workflows.kit.sealed import binding, padded, parse_key

SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
"""See `workflows.kit.sealed`."""


class Sealer:
    """Seals for the holders of one private key."""

    def __init__(self, key: str) -> None:
        """`key` is the public one, as its setting writes it. Raises ValueError: It is none."""
        self._id, raw = parse_key(key)
        self._key = X25519PublicKey.from_public_bytes(raw)

    def seal(self, content: Mapping[str, Any], task: str, key: str) -> dict[str, str]:
        """`content` as the answer to that question, and to no other."""
        sealed = SUITE.encrypt(padded(content), self._key, binding(task, key))
        return {"keyId": self._id, "data": base64.b64encode(sealed).decode()}
