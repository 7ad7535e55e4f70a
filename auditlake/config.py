"""Settings: a flag, else the environment (`AUDITLAKE_*`), else `auditlake.toml` in the working folder.

`load_settings` returns frozen `Settings` or raises ConfigError, which names the setting, the origin of its value and
the problem. An unknown key is refused. The connection string may contain a password: it is a secret here, and messages
show only its `redacted` form.

Relative paths are relative to the working folder, whichever file names them.

pydantic checks the values. pydantic-settings would also collect them, but its import adds 0.11 s to the start of every
command (2026-11-22, bench/own_code.py).
"""

import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path
from threading import TIMEOUT_MAX
from typing import Annotated, Any, Literal, Self, TypeVar, cast
from urllib.parse import unquote, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    SecretStr,
    StringConstraints,
    ValidationError,
    model_validator,
)

from auditlake.engine import Engine
from auditlake.errors import ConfigError, Unsupported
from auditlake.settings.connection_strings import URI_SCHEMES, problem_of, redacted
from auditlake.settings.mask_rules import LEAST_SECRET_BYTES, MaskForm, Masking, Rule, parse_rule
from auditlake.settings.retention_rules import RetentionPeriod, RetentionPeriods, Rules, parse_period
from auditlake.settings.streaming_mode import Streaming, StreamingMode
from auditlake.store.given_files import read_given, read_given_text
from auditlake.store.objects import settings_for_spark
from auditlake.store.place import SCHEMES, parse_url

_LOCALTIME = Path("/etc/localtime")
_DOTS = 2
_LAST_PORT = 65_535
DEFAULT_FILE = Path("auditlake.toml")
_PREFIX = "AUDITLAKE_"
_FLAGS = {"tables": "--table"}
"""Flags that are not called as their setting."""
_NOT_IN_PATHS = re.compile(r"[%\\\[\]|^*?\x00-\x1f\x7f]")
"""Delta's readers and writers interpret these characters in a path, each in a different way."""
_SECRET_VARIABLE = "AUDITLAKE_MASK_SECRET"  # noqa: S105 - its name
_WEB = ("https://", "http://")
_PRINTABLE = re.compile(r"[!-~]+")


def _conninfo(value: object) -> object:
    """Refuse a string that libpq cannot parse, or takes for something else."""
    problem = problem_of(value.get_secret_value() if isinstance(value, SecretStr) else str(value))
    if problem is not None:
        raise ValueError(problem)
    return value


def _path(value: object) -> Path:
    """Return an absolute path; raises ValueError."""
    if not isinstance(value, str | os.PathLike) or not str(value).strip() or "\0" in str(value):
        raise ValueError(f"is {value!r}, need a path")
    try:
        return Path(value).expanduser().absolute()
    except RuntimeError:
        raise ValueError(f"is {str(value)!r}, and there is no such user") from None


def lake_place(value: object) -> Path:
    """Return an absolute path, of a file:// URI too, or the `Remote` of a URL; raises ValueError, Unsupported."""
    text = str(value)
    parts = urlsplit(text)
    if "://" not in text:
        return _unambiguous(_path(value))
    if parts.scheme in SCHEMES:
        return cast("Path", parse_url(text))  # as `lake.layout.Lake` has it
    if parts.scheme != "file":
        raise Unsupported(
            f"lake {parts.scheme}://… is on a store this version does not write to, need a local path or s3://",
            "give a folder, for example --lake ./lake, or s3://bucket/folder.",
        )
    if parts.netloc not in {"", "localhost"}:
        raise ValueError(f"is {text!r}, need three slashes before a path of this machine: file:///…")
    return _unambiguous(_path(unquote(parts.path)))


@dataclass(frozen=True, slots=True)
class DigestDatabase:
    """A PostgreSQL database that keeps digests; shown without its password."""

    conninfo: SecretStr

    def __str__(self) -> str:
        return redacted(self.conninfo.get_secret_value())


def _digest_place(value: object) -> Path | DigestDatabase:
    """Turn the URI of a database into one, anything else into a folder or a bucket.

    Raises ValueError, also for a conninfo, which might be a folder; Unsupported.
    """
    text = str(value)
    if text.startswith(URI_SCHEMES):
        _conninfo(text)
        return DigestDatabase(SecretStr(text))
    if text.startswith(_WEB):
        raise ValueError("is a URL, need a folder or a bucket; a witness, which keeps no digests, is set as `witness`")
    if "=" in text and problem_of(text) is None:
        raise ValueError("is a conninfo, need the database as a URI: postgresql://user@host/dbname")
    return lake_place(value)


def _witness_url(value: str | None) -> str | None:
    """Require the URL of a witness, without credentials, which messages would show; raises ValueError."""
    if value is None:
        return None
    from auditlake.exchange import Address  # noqa: PLC0415 - few lakes have a witness, and it imports ssl

    wrong = ValueError("has no URL of a witness: write https://host/path, without credentials and parameters")
    try:
        Address.parse(value)
    except ValueError:
        raise wrong from None
    parts = urlsplit(value)
    if not _PRINTABLE.fullmatch(value) or parts.query or parts.fragment:
        raise wrong
    return value


def _unambiguous(path: Path) -> Path:
    """Refuse a path that cannot hold a lake, before anything is written there."""
    if found := _NOT_IN_PATHS.search(str(path)):
        raise ValueError(f"is {str(path)!r}, need a path without {found[0]!r}: readers take it for a different path")
    return path


def _number(value: object) -> object:
    """Refuse true and false, which Python takes for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError(f"is {str(value).lower()}, need a number")  # noqa: TRY004  # pydantic collects ValueErrors only
    return value


def _zone_name(value: str) -> str:
    """Require a time zone that this machine knows; `local` is the machine's own."""
    name = _local_zone() if value == "local" else value
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"is {value!r}, need a time zone such as Europe/Paris, or UTC or local") from None
    return name


def _local_zone() -> str:
    """Name the machine's zone: TZ, else the file that /etc/localtime links to; raises ValueError."""
    name = os.environ.get("TZ", "").removeprefix(":") or str(_LOCALTIME.resolve()).rpartition("/zoneinfo/")[2]
    if not name or name.startswith("/"):
        raise ValueError(f"is 'local', and neither TZ nor {_LOCALTIME} names a zone; give one such as Europe/Paris")
    return name


def _patterns(value: object) -> object:
    """Split a string at commas, the form used in the environment; keep a list."""
    patterns = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if isinstance(patterns, list | tuple) and (wrong := [p for p in patterns if "." not in str(p).strip(".")]):
        raise ValueError(f"has {wrong[0]!r}, need patterns of schema and table such as public.{wrong[0]} or sales.*")
    return patterns


def _masks(value: object) -> object:
    """Split a string at commas, the form used in the environment; keep a list."""
    patterns = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if isinstance(patterns, list | tuple) and (wrong := [p for p in patterns if str(p).count(".") < _DOTS]):
        raise ValueError(f"has {wrong[0]!r}, need patterns of schema, table and column such as public.people.email")
    return patterns


def _mask_table(value: object) -> object:
    """Take a table, in the environment as JSON; patterns alone are those of `mcp`."""
    if isinstance(value, str):
        value = _json(value) if value.lstrip().startswith("{") else _masks(value)
    return {"mcp": value} if isinstance(value, list | tuple) else value


_Rule = TypeVar("_Rule")


def _mask_rules(value: object) -> tuple[tuple[str, Rule], ...]:
    return _rules(value, parse_rule, _masks, '"public.people.email" = "hash"')


def _retention_rules(value: object) -> Rules:
    return _rules(value, parse_period, _patterns, '"public.sessions" = "90 days"')


def _rules(
    value: object, parse: Callable[[str], _Rule], check: Callable[[object], object], example: str
) -> tuple[tuple[str, _Rule], ...]:
    """Parse patterns and their rules, in order; TOML reads a pattern without quotes as tables in tables."""
    if not isinstance(value, Mapping):
        raise ValueError(f"is not a table, need for example {example}")  # noqa: TRY004  # as above
    rules = tuple((pattern, parse(text)) for pattern, text in _flat(value))
    check([pattern for pattern, _ in rules])
    return rules


def _period(value: object) -> RetentionPeriod:
    return parse_period(str(value))


def _secret_file(value: object) -> Path:
    """Return an absolute path; another text is refused without being shown, as it may be the secret itself."""
    try:
        return _path(value)
    except ValueError:
        raise ValueError("has a secret that is not a path") from None


def _spark_settings(value: object) -> object:
    """Flatten tables (TOML reads a dotted key as one) and complete the names: `master` is `spark.master`."""
    table = _json(value) if isinstance(value, str) else value
    if not isinstance(table, Mapping):
        raise ValueError("is not a table of Spark settings")  # noqa: TRY004  # pydantic collects ValueErrors only
    single = (name for name, value in table.items() if not isinstance(value, Mapping))
    if ours := next((name for name in single if name in Settings.model_fields), None):
        raise ValueError(f"has {ours}, a setting of auditlake: write it above the first [table] of the file")
    return {key if key.startswith("spark.") else f"spark.{key}": text for key, text in _flat(table)}


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as exc:
        raise ValueError('is not JSON, need for example {"master": "local[4]"}') from exc


def _flat(table: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}.{inner}", text) for inner, text in _flat(value))
        else:
            yield key, str(value).lower() if isinstance(value, bool) else str(value)


def _table(value: object) -> object:
    """Take a table as JSON, the form used in the environment."""
    return _json(value) if isinstance(value, str) else value


Seconds = Annotated[float, BeforeValidator(_number), Field(gt=0, le=TIMEOUT_MAX)]
SecondsOrZero = Annotated[float, BeforeValidator(_number), Field(ge=0, le=TIMEOUT_MAX)]
Count = Annotated[int, BeforeValidator(_number), Field(ge=1)]


class MaskSettings(BaseModel):
    """What is masked: columns by a rule before they are captured, and columns that `auditlake mcp` never shows.

    In `strict` tables every column needs a rule. `secret` is the file of the secret of `hash`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    columns: Annotated[tuple[tuple[str, Rule], ...], PlainValidator(_mask_rules)] = ()
    strict: Annotated[tuple[str, ...], BeforeValidator(_patterns)] = ()
    secret: Annotated[Path | None, PlainValidator(_secret_file)] = None
    mcp: Annotated[tuple[str, ...], BeforeValidator(_masks)] = ()


class DigestSettings(BaseModel):
    """Digests of the ledger: where they are stored, how often, the file of the signing key, and the witness."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    to: Annotated[Path | DigestDatabase, PlainValidator(_digest_place)]
    every_s: Seconds = 3600.0
    key: Annotated[Path | None, BeforeValidator(_path)] = None
    witness: Annotated[str | None, AfterValidator(_witness_url)] = None
    witness_key: str | None = None

    @model_validator(mode="after")
    def _with_its_key(self) -> Self:
        if (self.witness is None) != (self.witness_key is None):
            raise ValueError("has one of `witness` and `witness_key`, which need each other")
        return self


class RetentionSettings(BaseModel):
    """How long closed versions are kept after their end, by patterns of tables, and the log; by default for ever."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    versions: Annotated[Rules, PlainValidator(_retention_rules)] = ()
    changes: Annotated[RetentionPeriod, PlainValidator(_period)] = RetentionPeriod()
    transactions: Annotated[RetentionPeriod, PlainValidator(_period)] = RetentionPeriod()

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.kept.require_transactions()
        return self

    @property
    def kept(self) -> RetentionPeriods:
        """The periods."""
        return RetentionPeriods(self.versions, self.changes, self.transactions)


def parse_address(value: object) -> tuple[str, int]:
    """Parse a port of this machine alone, or ADDRESS:PORT; an IPv6 address is in brackets. Raises ValueError."""
    address, _, port = str(value).rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > _LAST_PORT:
        raise ValueError(f"is {str(value)!r}, need PORT or ADDRESS:PORT")
    return address.strip("[]") or "127.0.0.1", int(port)


_TABLES: Mapping[str, type[BaseModel]] = {
    "mask": MaskSettings,
    "digest": DigestSettings,
    "retention": RetentionSettings,
}
"""Settings that are tables of settings."""

SlotName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]{1,63}$")]  # slot.c, ReplicationSlotValidateName
Identifier = Annotated[str, StringConstraints(min_length=1, max_length=63)]


class Settings(BaseModel):
    """Settings, the same for every command."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: Annotated[SecretStr | None, BeforeValidator(_conninfo)] = None
    lake: Annotated[Path, PlainValidator(lake_place)] = Field(
        default_factory=Path("lake").absolute, validate_default=True
    )
    slot: SlotName = "auditlake"
    publication: Identifier = "auditlake"
    tables: Annotated[tuple[str, ...] | None, BeforeValidator(_patterns)] = None
    failover: bool = True
    streaming: StreamingMode = "on"
    spool: Annotated[Path | None, BeforeValidator(_path)] = None
    heartbeat_s: Seconds | None = None
    copy_connections: Count = 8
    copy_bytes_per_s: Count | None = None
    resync: bool = True
    allow_gap: bool = False
    metrics_port: Annotated[tuple[str, int] | None, PlainValidator(parse_address)] = None
    log_format: Literal["text", "json"] = "text"
    tz: Annotated[str, AfterValidator(_zone_name)] = "UTC"
    dialect: Literal["spark", "postgres"] = "postgres"
    mask: Annotated[MaskSettings, BeforeValidator(_mask_table)] = MaskSettings()
    seal_every_s: SecondsOrZero = 30.0
    digest: Annotated[DigestSettings | None, BeforeValidator(_table)] = None
    retention: Annotated[RetentionSettings, BeforeValidator(_table)] = RetentionSettings()
    engine: Engine = Engine.AUTO
    spark_idle_s: SecondsOrZero = 300.0
    spark: Annotated[dict[str, str], BeforeValidator(_spark_settings)] = {}

    @property
    def how_to_stream(self) -> Streaming:
        """How PostgreSQL sends large transactions."""
        return Streaming(self.streaming, self.spool)

    @property
    def masking(self) -> Masking:
        """The rules of masking, and their secret: that of the environment, else of the file; raises ConfigError."""
        rules = self.mask.columns
        needed = any(rule.form is MaskForm.HASH for _, rule in rules)
        return Masking(rules, self.mask.strict, _read_secret(self.mask.secret) if needed else None)

    @property
    def zone(self) -> tzinfo:
        """The reader's time zone."""
        return UTC if self.tz == "UTC" else ZoneInfo(self.tz)

    def source_required(self) -> str:
        """Return the connection string; raises ConfigError if none is set."""
        if self.source is None:
            raise ConfigError(
                "no source is set",
                f"give --source postgresql://user@host/database, or {_PREFIX}SOURCE, or `source` in {DEFAULT_FILE}.",
            )
        return self.source.get_secret_value()


def _read_secret(path: Path | None) -> bytes:
    """Read the secret of `hash`; raises ConfigError without showing it or the path, which may be the secret itself."""
    advice = f"Put at least {LEAST_SECRET_BYTES} random bytes there, for example from openssl rand -hex 32."
    if given := os.environ.get(_SECRET_VARIABLE):
        found, where = given.encode(errors="surrogateescape"), _SECRET_VARIABLE
    elif path is None:
        raise ConfigError(
            "[mask] has the rule hash and no secret", f"Set {_SECRET_VARIABLE}, or mask.secret to a file."
        )
    else:
        where = "the file that mask.secret names"
        found = read_given(path, lambda why: ConfigError(f"{where} cannot be read: {why}", advice))
    secret = found.strip()
    if len(secret) < LEAST_SECRET_BYTES:
        raise ConfigError(f"{where} has {len(secret)} bytes, need at least {LEAST_SECRET_BYTES}", advice)
    return secret


def load_settings(config_file: Path | None = None, **flags: object) -> Settings:
    """Merge settings: flags before environment before file; a flag that is None or empty is not set.

    Raises ConfigError for an invalid setting, Unsupported for a lake on another kind of store.

    For a lake in an object store, `spark` contains what Hadoop needs for it; settings that are given have precedence.
    """
    given = {name: value for name, value in flags.items() if value not in (None, (), "")}
    for name, value in given.items():
        _require_utf8(_flag(name), *(value if isinstance(value, tuple) else (value,)))
    from_file = _read_file(config_file)
    from_environment = _read_environment()
    try:
        settings = Settings(**(from_file | from_environment | given))
    except ValidationError as exc:
        origins = {**dict.fromkeys(from_file, str(config_file or DEFAULT_FILE))}
        origins |= {name: f"{_PREFIX}{name.upper()}" for name in from_environment}
        origins |= {name: _flag(name) for name in given}
        raise ConfigError("; ".join(_problems(exc, origins)), _hint(exc)) from None  # pydantic repeats the input
    return settings.model_copy(update={"spark": {**settings_for_spark(settings.lake), **settings.spark}})


def _read_file(config_file: Path | None) -> dict[str, Any]:
    path = config_file or DEFAULT_FILE
    if config_file is None and not path.exists():
        return {}
    if config_file is None and is_foreign(path.stat(), path.absolute().parent.stat(), os.geteuid()):
        raise ConfigError(
            f"{path.absolute()} belongs to another user, and everyone may write its folder",
            "Settings start programs. Name the file by --config if you trust it.",
        )
    hint = "Name another by --config."
    text = read_given_text(path, lambda why: ConfigError(f"settings file {path} cannot be read: {why}", hint))
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(f"settings file {path} is not TOML: {exc}") from exc
    except RecursionError as exc:
        raise ConfigError(f"settings file {path} is nested too deeply") from exc


def is_foreign(file: os.stat_result, folder: os.stat_result, user: int) -> bool:
    """Return whether a file may be another user's trap: in a folder such as /tmp, neither the user's own nor root's."""
    return bool(folder.st_mode & stat.S_IWOTH) and file.st_uid not in {user, 0}


def _read_environment() -> dict[str, str]:
    names = {name: f"{_PREFIX}{name.upper()}" for name in Settings.model_fields}
    for variable in names.values():
        _require_utf8(variable, os.environ.get(variable, ""))
    return {name: os.environ[variable] for name, variable in names.items() if os.environ.get(variable)}


def _flag(name: str) -> str:
    """Return the flag of a setting."""
    return _FLAGS.get(name) or f"--{name.replace('_', '-')}"


def _require_utf8(origin: str, *values: object) -> None:
    """Require that no text is from bytes that are not UTF-8, which pydantic cannot report; raises ConfigError."""
    try:
        "".join(str(value) for value in values).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{origin} is not UTF-8", "Write it in UTF-8.") from None


def _problems(failure: ValidationError, origins: Mapping[str, str]) -> Iterator[str]:
    for error in failure.errors(include_url=False, include_context=False):
        where = f"{_name(error['loc'])} (from {origins[str(error['loc'][0])]})"
        if error["type"] == "extra_forbidden":
            yield f"{where} is not a setting"
        elif error["type"] == "missing":
            yield f"{where} is not set"
        elif error["type"] == "value_error":
            yield f"{where} {error['msg'].removeprefix('Value error, ')}"
        else:
            yield f"{where} is {error['input']!r}: {error['msg'][:1].lower()}{error['msg'][1:]}"


def _name(location: tuple[int | str, ...]) -> str:
    """Name a setting as in TOML, such as `retention.changes`."""
    return ".".join(part for part in location if isinstance(part, str))


def _hint(failure: ValidationError) -> str:
    unknown = [error["loc"] for error in failure.errors() if error["type"] == "extra_forbidden"]
    if not unknown:
        return "conf/auditlake.toml has an example of each setting."
    *table, name = map(str, unknown[0])
    return _hint_for(_name(tuple(table)), name)


def _hint_for(table: str, name: str) -> str:
    """Return the hint for a name that is not a setting of a table, of the file itself if `table` is empty."""
    from difflib import get_close_matches  # noqa: PLC0415 - only after a failure

    if table and name in Settings.model_fields:
        return f"Write {name} above the first [table] of the file: what follows belongs to the table."
    known = list((_TABLES[table] if table else Settings).model_fields)
    close = get_close_matches(name, known, 1)
    return f"Did you mean {close[0]}?" if close else f"Settings are {', '.join(known)}."
