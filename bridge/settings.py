"""All settings, read once from the environment and frozen.

A setting that cannot be used ends the start with one line that names its variable and what is accepted; no value of a
secret is ever repeated, and a misspelt variable is an error, because a misspelt token would leave the door open.
Temporal's own address and credentials are not ours: they come from the standard TEMPORAL_* variables and profile file
(`temporalio.envconfig`).
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Mapping
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from temporalio.envconfig import ClientConfig
from temporalio.service import GrpcCompression

from bridge.codec import KEY_BYTES, key_ring
from bridge.urls import canonical_url, is_safe_url
from workflows.kit.delegates import Delegates
from workflows.kit.sealed import parse_key

PREFIX: Final = "MCP_TASKS_"
DEFAULT_TEMPORAL_ADDRESS: Final = "localhost:7233"

MIN_SEALING_KEY_BYTES: Final = 32
"""The request-state seal is AES-256; a shorter secret would be the weakest part of it."""

MIN_TOKEN_CHARS: Final = 16

AUTHENTICATION: Final = tuple(
    PREFIX + name for name in ("BEARER_TOKEN", "OAUTH_ISSUERS", "TRUSTED_PROXIES", "CLIENT_CA_FILE")
)
"""How callers are known: at most one of these is set."""

_HEADER_NAME: Final = r"^[A-Za-z0-9-]{1,100}$"

_LIMIT: Final = "a number from 0 to 1000000, where 0 means no limit"

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


def _from_json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


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
    encryption_keys: CommaSeparatedSecrets = Field(
        (),
        description=f"different keys of {KEY_BYTES} bytes, comma-separated, each as ID:BASE64 with an id of its own of "
        "A-Z a-z 0-9 . _ - (openssl rand -base64 32 makes a key); the first encrypts, all decrypt",
    )

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

    @field_validator("encryption_keys")
    @classmethod
    def _keys_encrypt(cls, keys: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        key_ring(keys)
        return keys


class WorkerSettings(_Settings):
    """A worker's settings."""

    answer_private_keys: CommaSeparatedSecrets = Field(
        (), description="different X25519 private keys, comma-separated, each as ID:BASE64 with an id of its own"
    )

    @field_validator("answer_private_keys")
    @classmethod
    def _keys_open(cls, keys: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        parsed = [parse_key(key.get_secret_value()) for key in keys]
        if len({key_id for key_id, _ in parsed}) < len(parsed):
            raise ValueError("repeated id")
        return keys


class ServiceSettings(_Settings):
    """What is served, and within which limits, over whatever transport."""

    catalog: Path | None = Field(None, description="the path of a catalog file, e.g. tools.toml")
    delegates: Annotated[Mapping[str, Delegates], NoDecode, BeforeValidator(_from_json)] = Field(
        {},
        description='a JSON object, by tool of the tasks module, of lists of groups, e.g. {"refund": {"read": '
        '["auditors"], "answer": ["managers"], "cancel": ["on-call"]}}',
    )
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
    open_tasks_per_owner: int = Field(1000, ge=0, le=1_000_000, description=_LIMIT)
    waiting_calls_per_owner: int = Field(500, ge=0, le=1_000_000, description=_LIMIT)
    streams: int = Field(2000, ge=0, le=1_000_000, description=_LIMIT)
    streams_per_owner: int = Field(100, ge=0, le=1_000_000, description=_LIMIT)
    stream_tasks_per_owner: int = Field(5000, ge=0, le=1_000_000, description=_LIMIT)

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


_QUOTABLE: Final = re.compile(r"[!#-\[\]-~]+")
"""What can be between the quotes of a header's parameter as it is, and in a URL at all."""


class OAuthSettings(_Settings):
    """Whose access tokens are taken, and for which resource."""

    resource_url: str | None = Field(
        None, description="the public URL of the MCP endpoint, https or on loopback, e.g. https://mcp.example.com/mcp"
    )
    oauth_issuers: CommaSeparated = Field(
        (),
        description="issuers of access tokens, https or on loopback, comma-separated; each may be followed by a blank "
        "and the URL of its keys",
    )
    oauth_groups_claim: str = Field("groups", min_length=1, max_length=200, description="the name of a claim")
    oauth_clock_skew_seconds: int = Field(30, ge=0, le=300, description="seconds from 0 to 300")

    @field_validator("resource_url")
    @classmethod
    def _resource_is_canonical(cls, url: str | None) -> str | None:
        if url is None:
            return None
        if not is_safe_url(canonical_url(url)) or not _QUOTABLE.fullmatch(url):
            raise ValueError("not over TLS, or not to be written into a challenge")
        return canonical_url(url)

    @field_validator("oauth_issuers")
    @classmethod
    def _issuers_are_safe(cls, issuers: tuple[str, ...]) -> tuple[str, ...]:
        parts = [issuer.split() for issuer in issuers]
        fit = (len(urls) <= 2 and all(map(is_safe_url, urls)) and not set("?#@") & set(urls[0]) for urls in parts)
        if not all(fit):
            raise ValueError("unfit issuer")
        if len({urls[0] for urls in parts}) < len(parts):
            raise ValueError("repeated issuer")
        return issuers

    @model_validator(mode="after")
    def _issuers_have_a_resource(self) -> Self:
        if self.oauth_issuers and self.resource_url is None:
            raise ValueError(
                f"{PREFIX}RESOURCE_URL is not set: {PREFIX}OAUTH_ISSUERS needs it, because a token must be for this "
                "endpoint's public URL"
            )
        return self


class BridgeSettings(ServiceSettings, OAuthSettings):
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
    trusted_proxies: CommaSeparated = Field((), description="networks such as 10.1.2.0/24 or 10.1.2.3, comma-separated")
    proxy_user_header: str = Field("X-Forwarded-User", pattern=_HEADER_NAME, description="the name of a header")
    proxy_groups_header: str = Field("X-Forwarded-Groups", pattern=_HEADER_NAME, description="the name of a header")
    proxy_scopes_header: str | None = Field(None, pattern=_HEADER_NAME, description="the name of a header")
    tls_cert_file: Path | None = Field(None, description="the path of a certificate chain in PEM")
    tls_key_file: Path | None = Field(None, description="the path of a private key in PEM")
    client_ca_file: Path | None = Field(None, description="the path of certificates of authorities in PEM")
    pages_url: str | None = Field(
        None,
        description="the public URL of the pages for answers, https or on loopback, with a path of its own, e.g. "
        "https://mcp.example.com/pages",
    )
    pages_client_id: str | None = Field(None, min_length=1, max_length=500, description="the id of an OAuth client")
    pages_client_secret: SecretStr | None = Field(None, min_length=1, description="the secret of an OAuth client")
    answer_public_key: str | None = Field(None, description="an X25519 public key as ID:BASE64")
    single_replica: bool = Field(False, description="true or false")
    task_name_required: bool = Field(True, description="true or false")
    requests_per_second: int = Field(500, ge=0, le=1_000_000, description=_LIMIT)
    request_burst: int = Field(1000, ge=1, le=1_000_000, description="a number from 1 to 1000000")
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

    @property
    def authentication(self) -> list[str]:
        """The variables that are set of those that say how callers are known."""
        return [variable for variable in AUTHENTICATION if getattr(self, variable.removeprefix(PREFIX).lower())]

    @field_validator("bearer_token")
    @classmethod
    def _token_is_long_and_header_safe(cls, token: SecretStr | None) -> SecretStr | None:
        return _fit_token(token)

    @field_validator("pages_url")
    @classmethod
    def _pages_have_a_path(cls, url: str | None) -> str | None:
        if url is None:
            return None
        if not is_safe_url(canonical_url(url)) or not _PAGES_PATH.fullmatch(urlsplit(canonical_url(url)).path):
            raise ValueError("not over TLS, or without a path")
        return canonical_url(url)

    @field_validator("answer_public_key")
    @classmethod
    def _key_seals(cls, key: str | None) -> str | None:
        if key is not None:
            parse_key(key)
        return key

    @field_validator("trusted_proxies")
    @classmethod
    def _proxies_are_networks(cls, networks: tuple[str, ...]) -> tuple[str, ...]:
        for network in networks:
            ipaddress.ip_network(network)
        return networks

    @model_validator(mode="after")
    def _callers_are_known_in_one_way(self) -> Self:
        for variable in AUTHENTICATION:
            name = variable.removeprefix(PREFIX).lower()
            value = getattr(self, name)
            if name in self.model_fields_set and value is not None and not value:
                raise ValueError(f"{variable} is set and empty: give it a value, or leave it out if others may come in")
        if len(self.authentication) > 1:
            raise ValueError(f"{' and '.join(self.authentication)} are set: callers are known in one way, so keep one")
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError(f"{PREFIX}TLS_CERT_FILE and {PREFIX}TLS_KEY_FILE belong together: set both or none")
        if self.client_ca_file is not None and self.tls_cert_file is None:
            raise ValueError(f"{PREFIX}CLIENT_CA_FILE needs {PREFIX}TLS_CERT_FILE and {PREFIX}TLS_KEY_FILE")
        return self

    @model_validator(mode="after")
    def _people_can_sign_in(self) -> Self:
        if self.pages_url and self.oauth_issuers and not self.pages_client_id:
            raise ValueError(
                f"{PREFIX}PAGES_CLIENT_ID is not set: {PREFIX}PAGES_URL needs it with {PREFIX}OAUTH_ISSUERS, so that "
                "people can sign in"
            )
        if self.pages_client_id and not (self.pages_url and self.oauth_issuers):
            raise ValueError(f"{PREFIX}PAGES_CLIENT_ID needs {PREFIX}PAGES_URL and {PREFIX}OAUTH_ISSUERS")
        if self.pages_url and urlsplit(self.pages_url).path == self.path:
            raise ValueError(f"{PREFIX}PAGES_URL and {PREFIX}PATH have one path: each needs its own")
        return self

    @model_validator(mode="after")
    def _nothing_is_open_by_accident(self) -> Self:
        if not self.on_loopback and not self.authentication:
            raise ValueError(
                f"{PREFIX}HOST is {self.host!r}, which others can reach: "
                f"set {', '.join(AUTHENTICATION[:-1])} or {AUTHENTICATION[-1]} too, or bind 127.0.0.1"
            )
        if not self.sealing_keys and not (self.single_replica and self.on_loopback):
            raise ValueError(
                f"{PREFIX}SEALING_KEYS is not set: set it to one or more secrets of at least {MIN_SEALING_KEY_BYTES} "
                "bytes, comma-separated, the same on every replica (openssl rand -hex 32 makes one), "
                f"or set {PREFIX}SINGLE_REPLICA=true for one bridge on loopback, which then makes a key of its own"
            )
        return self


_PAGES_PATH: Final = re.compile(r"(/[A-Za-z0-9._~-]+)+")


class CodecServerSettings(OAuthSettings):
    """The settings of a codec server, which decrypts for Temporal's web page and CLI.

    It needs keys, and operators: with a token of its own, else with access tokens that the bridge would take. Without
    either it starts on loopback alone, and only if that is said.
    """

    codec_host: str = Field("127.0.0.1", min_length=1, description="an address to bind, e.g. 127.0.0.1")
    codec_port: int = Field(8081, ge=0, le=65535, description="a TCP port from 0 to 65535, where 0 means any free one")
    codec_token: SecretStr | None = Field(
        None, description=f"a secret of at least {MIN_TOKEN_CHARS} characters of A-Z a-z 0-9 - . _ ~ + / ="
    )
    codec_open: bool = Field(False, description="true or false")
    codec_origins: CommaSeparated = Field(
        (), description="web origins of Temporal's web page, in full, such as https://temporal.example.com"
    )

    @property
    def on_loopback(self) -> bool:
        """Whether nothing but this machine can reach it."""
        return is_loopback(self.codec_host)

    @property
    def tells_operators(self) -> bool:
        """Whether callers have to show that they are operators."""
        return self.codec_token is not None or bool(self.oauth_issuers)

    @field_validator("codec_token")
    @classmethod
    def _token_is_long_and_header_safe(cls, token: SecretStr | None) -> SecretStr | None:
        return _fit_token(token)

    @field_validator("codec_origins")
    @classmethod
    def _origins_are_in_full(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        if not all(_ORIGIN.fullmatch(origin) for origin in origins):
            raise ValueError("no origin")
        return origins

    @model_validator(mode="after")
    def _nothing_is_open_by_accident(self) -> Self:
        if not self.encryption_keys:
            raise ValueError(
                f"{PREFIX}ENCRYPTION_KEYS is not set: a codec server decrypts with the keys of bridge and worker"
            )
        if not (self.tells_operators or self.codec_open):
            raise ValueError(
                f"{PREFIX}CODEC_TOKEN is not set: set it, or {PREFIX}OAUTH_ISSUERS, or {PREFIX}CODEC_OPEN=true to "
                "decrypt on loopback for everybody on this machine"
            )
        if not (self.tells_operators or self.on_loopback):
            raise ValueError(
                f"{PREFIX}CODEC_HOST is {self.codec_host!r}, which others can reach: "
                f"set {PREFIX}CODEC_TOKEN or {PREFIX}OAUTH_ISSUERS too, or bind 127.0.0.1"
            )
        return self


_ORIGIN: Final = re.compile(r"https?://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")
"""As browsers write it: in lower case, without a path."""


def _fit_token(token: SecretStr | None) -> SecretStr | None:
    value = None if token is None else token.get_secret_value()  # an empty one is falsy
    if value is not None and (len(value) < MIN_TOKEN_CHARS or not all("!" <= character <= "~" for character in value)):
        raise ValueError("unfit token")
    return token


def is_loopback(host: str) -> bool:
    """Whether `host`, a name or an address to bind, is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() in BridgeSettings.LOOPBACK_NAMES


def temporal_connect_config() -> dict[str, Any]:
    """Keyword arguments for `Client.connect` from the standard TEMPORAL_* variables and profile file, without the SDK's
    compression of calls: most are a kilobyte or two, and it takes more of both sides than it saves
    (docs/performance.md).

    Raises:
        SettingsError: They contradict themselves or name something that is not there.
    """
    try:
        config = ClientConfig.load_client_connect_config(config_file_strict=True)
    except (RuntimeError, OSError, ValueError, TypeError) as error:  # the SDK's ConfigError is a RuntimeError
        raise SettingsError(f"TEMPORAL_* variables or Temporal profile file: {error}") from error
    return {"target_host": DEFAULT_TEMPORAL_ADDRESS, **config, "grpc_compression": GrpcCompression.NONE}


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
    models = (BridgeSettings, StdioSettings, WorkerSettings, CodecServerSettings)
    known = {name for model in models for name in model.model_fields}
    for variable in sorted(environment):
        name = variable.removeprefix(PREFIX).lower()
        if variable.startswith(PREFIX) and name not in known and (meant := get_close_matches(name, known, 1, 0.8)):
            raise SettingsError(f"{variable} is no setting; is {PREFIX}{meant[0].upper()} meant?")
