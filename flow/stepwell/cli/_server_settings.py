"""The settings of `stepwell server`: from flags, the environment and a file, in this order."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ByteSize, Field, FilePath, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from stepwell.cli._refusal import Refusal
from stepwell_runtime.log import log

PREFIX = "STEPWELL_SERVER_"
CLIENT_PREFIX = "STEPWELL_"
"""The token has the same names for clients, so that both sides can share one environment."""
CONFIG = f"{PREFIX}CONFIG"
TOKENS = ("token", "token_file")

Count = Annotated[int, Field(ge=1)]


class ServerSettings(BaseSettings):
    """What was given; the default of what was not is that of ServerConfig, or stands here."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, extra="forbid")

    store: str
    host: str | None = None
    port: Annotated[int, Field(ge=0, le=65535)] | None = None
    durability: Literal["full", "process"] | None = None
    lease: float | None = None
    token: str | None = Field(None, repr=False)
    token_file: FilePath | None = None
    certificate: FilePath | None = None
    key: FilePath | None = None
    client_ca: FilePath | None = None
    max_connections: Count | None = None
    max_in_flight: Count | None = None
    max_queued: Annotated[ByteSize, Field(ge=1)] | None = None
    grace: Annotated[float, Field(ge=0)] = 10.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, Environment(settings_cls), File(settings_cls)


class Environment(EnvSettingsSource):
    def __call__(self) -> dict[str, Any]:
        found = super().__call__()
        if not found.keys() & set(TOKENS):
            given = {name: os.environ.get(CLIENT_PREFIX + name.upper()) for name in TOKENS}
            found |= {name: value for name, value in given.items() if value}
        return one_token(found, self.current_state)


class File(TomlConfigSettingsSource):
    def __call__(self) -> dict[str, Any]:
        return one_token(super().__call__(), self.current_state)


def one_token(found: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Drop the token if it came from before; in whichever form, it is one setting."""
    if before.keys() & set(TOKENS):
        return {key: value for key, value in found.items() if key not in TOKENS}
    if found.keys() >= set(TOKENS):
        raise Refusal("token and token_file are given side by side: give one of them")
    return found


def read_settings(flags: Mapping[str, object], file: Path | None) -> ServerSettings:
    """Return the settings; `flags` holds those that were given. Refuses what is unknown or bad."""

    class Settings(ServerSettings):
        model_config = SettingsConfigDict(toml_file=file)

    if file is not None and not file.is_file():
        raise Refusal(f"--config {file}: there is no such file")
    given: dict[str, Any] = dict(flags)
    try:
        settings = Settings(**given)
    except ValidationError as error:
        told = [complaint(one, flags, file) for one in error.errors(include_url=False)]
        raise Refusal("; ".join(told)) from None
    except tomllib.TOMLDecodeError as error:
        raise Refusal(f"{file}: this is no TOML: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(f"{file}: {error}") from None
    known = {PREFIX + name.upper() for name in ServerSettings.model_fields} | {CONFIG}
    unknown = [key for key in os.environ if key.startswith(PREFIX) and key not in known]
    if unknown:  # not refused: in Kubernetes, names of services are the prefixes of others
        log.warning("environment_not_understood", variables=sorted(unknown))
    return settings


def complaint(error: ErrorDetails, flags: Mapping[str, object], file: Path | None) -> str:
    name = str(error["loc"][0])
    if error["type"] == "missing":
        return f"no {name}: give --{name}, {PREFIX}{name.upper()}, or `{name} = …` in the file"
    if error["type"] == "extra_forbidden":
        known = ", ".join(ServerSettings.model_fields)
        return f"{file}: unknown key {name!r}; the keys are {known}"
    value = "" if name in TOKENS else f", not {error['input']!r}"
    return f"{origin(name, flags, file)}: {error['msg']}{value}"


def origin(name: str, flags: Mapping[str, object], file: Path | None) -> str:
    """Return where the value of a setting was taken from."""
    if name in flags:
        return f"--{name.replace('_', '-')}"
    for prefix in (PREFIX, CLIENT_PREFIX) if name in TOKENS else (PREFIX,):
        if os.environ.get(prefix + name.upper()):
            return prefix + name.upper()
    return f"{file}: {name}"
