"""All settings, read once from the environment and frozen.

A setting that cannot be used ends the start with one line that names its variable and what is accepted; no value of a
secret is ever repeated, and a misspelt variable is an error, because a misspelt token would leave the door open.
Temporal's own address and credentials are not ours: they come from the standard TEMPORAL_* variables and profile file
(`temporalio.envconfig`).
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, get_args

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from temporalio.envconfig import ClientConfig, ClientConnectConfig

PREFIX: Final = "MCP_TASKS_"
DEFAULT_TEMPORAL_ADDRESS: Final = "localhost:7233"

MIN_SEALING_KEY_BYTES: Final = 32
"""The request-state seal is AES-256; a shorter secret would be the weakest part of it."""

MIN_TOKEN_CHARS: Final = 16

LogLevel = Literal["debug", "info", "warning", "error"]


class OperatorError(Exception):
    """The program cannot go on and its operator can do something about it; the message is one line that says what."""

    exit_status: ClassVar[int] = 1


class SettingsError(OperatorError):
    """A setting or an option cannot be used."""

    exit_status = 2


def _split(value: Any) -> Any:
    """A comma-separated variable as its parts; anything else unchanged."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


CommaSeparated = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
CommaSeparatedSecrets = Annotated[tuple[SecretStr, ...], NoDecode, BeforeValidator(_split)]


class _Settings(BaseSettings):
    """What bridge and worker have in common. Each field's description says what is accepted, and ends up in error
    lines."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", hide_input_in_errors=True)

    task_queue: str = Field("mcp-tasks", min_length=1, max_length=200, description="a Temporal task queue name")
    tasks: str = Field(
        "bridge.shipped",
        pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$",
        description="a Python module name, e.g. acme.tasks",
    )
    log_level: LogLevel = Field("info", description=f"one of {', '.join(get_args(LogLevel))}")

    @classmethod
    def load(cls, **overrides: Any) -> Self:
        """The settings from the environment; overrides that are not None (command-line options) win.

        Raises:
            SettingsError: A setting cannot be used.
        """
        _refuse_misspelt_variables(os.environ)
        try:
            return cls(**{name: value for name, value in overrides.items() if value is not None})
        except ValidationError as error:
            raise SettingsError(_explain(cls, error)) from None


class WorkerSettings(_Settings):
    """A worker's settings."""


class ServiceSettings(_Settings):
    """What is served, and within which limits, over whatever transport."""

    catalog: Path | None = Field(None, description="the path of a catalog file, e.g. tools.toml")
    sealing_keys: CommaSeparatedSecrets = Field(
        (),
        description=f"different secrets of at least {MIN_SEALING_KEY_BYTES} bytes, comma-separated; "
        "the first seals, all unseal",
    )
    max_body_bytes: int = Field(
        4 * 1024 * 1024, ge=1024, le=64 * 1024 * 1024, description="bytes from 1024 to 67108864"
    )
    answer_window_seconds: int = Field(
        900,
        ge=1,
        le=30 * 86400,
        description="seconds from 1 to 2592000 that a caller without a task handle has to answer",
    )
    longest_call_seconds: int = Field(
        3600, ge=1, le=86400, description="seconds from 1 to 86400 that one call may wait for its result"
    )

    @property
    def offers_tasks(self) -> bool:
        """Whether the tools of the tasks module are offered: a catalog takes the place of the sample tools, not of a
        module that was named.
        """
        return self.catalog is None or "tasks" in self.model_fields_set

    @property
    def answer_window(self) -> timedelta:
        """How long a question waits for a caller that holds no task handle; a tool may lengthen it."""
        return timedelta(seconds=self.answer_window_seconds)

    @property
    def longest_call(self) -> timedelta:
        """How long a caller who gets no task is kept waiting in one request."""
        return timedelta(seconds=self.longest_call_seconds)

    @field_validator("sealing_keys")
    @classmethod
    def _keys_are_long(cls, keys: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        secrets = [key.get_secret_value() for key in keys]
        if len(set(secrets)) < len(secrets) or any(len(key.encode()) < MIN_SEALING_KEY_BYTES for key in secrets):
            raise ValueError("short or repeated key")
        return keys


class StdioSettings(ServiceSettings):
    """The settings of a server on standard input and output.

    It may go without sealing keys: nobody but this one process is ever shown what it sealed.
    """


class BridgeSettings(ServiceSettings):
    """A bridge's settings.

    Without sealing keys a bridge starts only where it says that it is alone (`single_replica`) and is bound to
    loopback: a second replica, or the same one after a restart, could not read what it sealed.
    """

    LOOPBACK_NAMES: ClassVar[frozenset[str]] = frozenset({"localhost"})

    host: str = Field("127.0.0.1", min_length=1, description="an address to bind, e.g. 127.0.0.1")
    port: int = Field(8000, ge=0, le=65535, description="a TCP port from 0 to 65535, where 0 means any free one")
    path: str = Field("/mcp", pattern=r"^(/[A-Za-z0-9._~-]+)+$", description="a URL path such as /mcp")
    bearer_token: SecretStr | None = Field(
        None, description=f"a secret of at least {MIN_TOKEN_CHARS} characters of A-Z a-z 0-9 - . _ ~ + / ="
    )
    single_replica: bool = Field(False, description="true or false")
    task_name_required: bool = Field(True, description="true or false")
    allowed_hosts: CommaSeparated = Field(
        (), description="host names that requests may be addressed to, comma-separated"
    )
    allowed_origins: CommaSeparated = Field(
        (), description="web origins such as https://app.example.com, comma-separated"
    )

    @property
    def on_loopback(self) -> bool:
        """Whether nothing but this machine can reach the bridge."""
        return is_loopback(self.host)

    @field_validator("bearer_token")
    @classmethod
    def _token_is_long_and_header_safe(cls, token: SecretStr | None) -> SecretStr | None:
        value = token.get_secret_value() if token else None
        if value is not None and (
            len(value) < MIN_TOKEN_CHARS or not all("!" <= character <= "~" for character in value)
        ):
            raise ValueError("unfit token")
        return token

    @model_validator(mode="after")
    def _nothing_is_open_by_accident(self) -> Self:
        if not self.on_loopback and self.bearer_token is None:
            raise ValueError(
                f"{PREFIX}HOST is {self.host!r}, which others can reach: "
                f"set {PREFIX}BEARER_TOKEN too, or bind 127.0.0.1"
            )
        if not self.sealing_keys and not (self.single_replica and self.on_loopback):
            raise ValueError(
                f"{PREFIX}SEALING_KEYS is not set: set it to one or more secrets of at least {MIN_SEALING_KEY_BYTES} "
                "bytes, comma-separated, the same on every replica (openssl rand -hex 32 makes one), "
                f"or set {PREFIX}SINGLE_REPLICA=true for one bridge on loopback, which then makes a key of its own"
            )
        return self


def is_loopback(host: str) -> bool:
    """Whether `host`, a name or an address to bind, is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() in BridgeSettings.LOOPBACK_NAMES


def temporal_connect_config() -> ClientConnectConfig:
    """Keyword arguments for `Client.connect` from the standard TEMPORAL_* variables and profile file.

    Raises:
        SettingsError: They contradict themselves or name something that is not there.
    """
    try:
        config = ClientConfig.load_client_connect_config(config_file_strict=True)
    except (RuntimeError, OSError, ValueError, TypeError) as error:  # the SDK's ConfigError is a RuntimeError
        raise SettingsError(f"TEMPORAL_* variables or Temporal profile file: {error}") from error
    config.setdefault("target_host", DEFAULT_TEMPORAL_ADDRESS)
    return config


def _field(model: type[_Settings], name: str) -> str:
    return model.model_fields[name].description or name


def _explain(model: type[_Settings], error: ValidationError) -> str:
    """The first problem as one line; all of them would bury it."""
    problem = error.errors(include_url=False, include_input=False)[0]
    if not problem["loc"]:
        return problem["msg"].removeprefix("Value error, ")
    name = str(problem["loc"][0])
    return f"{PREFIX}{name.upper()} must be {_field(model, name)}"


def _refuse_misspelt_variables(environment: Mapping[str, str]) -> None:
    """Other MCP_TASKS_ variables belong to tools, so only what looks like one of ours is an error."""
    known = {name for model in (BridgeSettings, StdioSettings, WorkerSettings) for name in model.model_fields}
    for variable in sorted(environment):
        name = variable.removeprefix(PREFIX).lower()
        if variable.startswith(PREFIX) and name not in known and (meant := get_close_matches(name, known, 1, 0.8)):
            raise SettingsError(f"{variable} is no setting; is {PREFIX}{meant[0].upper()} meant?")
