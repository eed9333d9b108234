"""The keys of a development stack, kept beside its database: without them what is in the database could not be read.

Each is made at first use, in a file for its owner only; the sealing key's file is also the database's lock.
"""

from __future__ import annotations

import base64
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from pydantic import SecretStr

from workflows.kit.sealed import parse_key

from .codec import KEY_BYTES
from .settings import MIN_SEALING_KEY_BYTES, SettingsError


@dataclass(frozen=True, kw_only=True)
class DatabaseKeys:
    """The keys kept beside a database, each as its setting writes it. `answers` is the private half of a pair."""

    sealing: SecretStr
    encryption: SecretStr
    answers: SecretStr


@contextmanager
def database_keys(database: Path) -> Iterator[DatabaseKeys]:
    """The keys kept beside `database`; nobody else has it open within the context.

    Raises:
        SettingsError: Another process has the database open, or the files cannot be used.
    """
    with _key_file(database, "key") as sealing:
        try:
            fcntl.flock(sealing, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SettingsError(f"--db {database}: another mcp-tasks dev has it open") from error
        with _key_file(database, "encryption-key") as encryption, _key_file(database, "answer-key") as answers:
            keys = DatabaseKeys(
                sealing=_kept(sealing, lambda: secrets.token_hex(MIN_SEALING_KEY_BYTES)),
                encryption=_kept(encryption, _new_key),
                answers=_kept(answers, _new_key),
            )
        yield keys


def new_answer_key() -> SecretStr:
    """A private key for answers that are sealed for the worker, as its setting writes it."""
    return SecretStr(_new_key())


def answer_public_key(private: SecretStr) -> str:
    """Its public half, as the bridge's setting writes it."""
    key_id, raw = parse_key(private.get_secret_value())
    public = X25519PrivateKey.from_private_bytes(raw).public_key().public_bytes_raw()
    return f"{key_id}:{base64.b64encode(public).decode()}"


def _new_key() -> str:
    """As settings write one; every 32 bytes are a key of AES-256, and a private key of X25519."""
    return f"dev:{base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()}"


def _key_file(database: Path, kind: str) -> IO[str]:
    path = database.with_name(f"{database.name}.{kind}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+", encoding="ascii")
    except OSError as error:
        raise SettingsError(f"--db {database}: {path} cannot be used: {error.strerror}") from error


def _kept(file: IO[str], make: Callable[[], str]) -> SecretStr:
    """The key in `file`, which gets one if there is none."""
    if not (key := file.read().strip()):
        key = make()
        file.write(key + "\n")
        file.flush()
    return SecretStr(key)
