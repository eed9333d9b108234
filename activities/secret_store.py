"""The worker's secret store: named credentials for named sites, in a file that only its owner may read.

Workflows and clients see names, never secrets: a secret is read in the activity that uses it, put into one header
of one request to one of its own sites, and nowhere else. `MCP_TASKS_SECRETS_FILE` names the file (TOML, or JSON by
its ending):

    [[credentials]]
    name = "intranet"
    kind = "basic"                       # or "bearer" with a token
    username = "crawler"
    password = "…"
    hosts = ["wiki.example.org"]         # https only; plain http must be spelled: "http://127.0.0.1:8080"
"""

from __future__ import annotations

import base64
import json
import logging
import os
import stat
import tomllib
from collections import Counter
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, TypeAdapter, ValidationError, field_validator
from yarl import URL

from workflows.kit.errors import ToolError

FILE_VARIABLE: Final = "MCP_TASKS_SECRETS_FILE"

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO

log = logging.getLogger(__name__)


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    hosts: tuple[str, ...] = Field(min_length=1)

    @field_validator("hosts")
    @classmethod
    def _origins(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(origin(URL(host if "://" in host else f"https://{host}")) for host in hosts)


class Basic(_Entry):
    """A user name and a password."""

    kind: Literal["basic"]
    username: str
    password: SecretStr

    def authorization(self) -> str:
        """The value of the Authorization header."""
        return basic(self.username, self.password.get_secret_value())


class Bearer(_Entry):
    """A token."""

    kind: Literal["bearer"]
    token: SecretStr

    def authorization(self) -> str:
        """The value of the Authorization header."""
        return bearer(self.token.get_secret_value())


Credential = Annotated[Basic | Bearer, Field(discriminator="kind")]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    credentials: tuple[Credential, ...] = ()

    @field_validator("credentials")
    @classmethod
    def _unique_names(cls, credentials: tuple[Basic | Bearer, ...]) -> tuple[Basic | Bearer, ...]:
        if any(count > 1 for count in Counter(credential.name for credential in credentials).values()):
            raise ValueError("two credentials have the same name")
        return credentials


_FILE: Final = TypeAdapter(_File)


class SecretStore:
    """The credentials, by the sites that they are for."""

    def __init__(self, credentials: tuple[Basic | Bearer, ...] = ()) -> None:
        """Hold `credentials`, whose names are unique."""
        self._credentials = credentials

    def names_for(self, url: URL) -> list[str]:
        """The names of the credentials that may be used at `url`, in the file's order."""
        return [credential.name for credential in self._credentials if origin(url) in credential.hosts]

    def authorization(self, name: str, url: URL) -> str | None:
        """The Authorization header of the credential `name` at `url`; None if there is none, or it is not for that
        site."""
        for credential in self._credentials:
            if credential.name == name and origin(url) in credential.hosts:
                return credential.authorization()
        return None


def open_store() -> SecretStore:
    """The store named by the environment; an empty one if none is. Reads a file: call it in a thread.

    Raises:
        ToolError: The file cannot be used, or somebody else could read it.
    """
    path = os.environ.get(FILE_VARIABLE)
    if not path:
        return SecretStore()
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())  # of the file that is read, not of one put there afterwards
            if status.st_mode & _OTHERS or status.st_uid not in {0, os.geteuid()}:
                log.error("secrets.exposed", extra={"variable": FILE_VARIABLE})
                raise ToolError("The worker's secret store may be read by others than its owner, so it is not used.")
            text = file.read().decode()
        data = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
        return SecretStore(_FILE.validate_python(data).credentials)
    except (OSError, ValueError) as error:
        # a parser's message may quote the file
        detail = str(error) if isinstance(error, ValidationError | OSError) else type(error).__name__
        log.error("secrets.unusable", extra={"variable": FILE_VARIABLE, "detail": detail})  # noqa: TRY400 - no traceback either
        raise ToolError("The worker's secret store cannot be used. Its operator must correct it.") from None


def basic(username: str, password: str) -> str:
    """The value of an Authorization header (RFC 7617)."""
    return f"Basic {base64.b64encode(f'{username}:{password}'.encode()).decode()}"


def bearer(token: str) -> str:
    """The value of an Authorization header (RFC 6750)."""
    return f"Bearer {token}"


def origin(url: URL) -> str:
    """`scheme://host:port` of a http or https URL, in lower case and with the port always there."""
    return f"{url.scheme}://{url.host}:{url.port}"
