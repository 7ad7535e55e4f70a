"""Doctor: what this installation has and lacks, one line each, with the command that fixes it.

It reads only, needs no settings, and starts no JVM. Each part is examined even if another is missing. A part that is
not set up yet, or that only some commands need, is `unused`, not `missing`. Messages are those of the commands that
would fail: no password is in them, and values of settings are not shown.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version

from auditlake.config import DEFAULT_FILE, Settings
from auditlake.errors import AuditlakeError
from auditlake.extras import EXTRAS, SPARK
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import read_manifest
from auditlake.settings.connection_strings import redacted
from auditlake.source.connection import connect
from auditlake.spark.jars import delta_jars, jars_folder, unresolved
from auditlake.spark.java import major_version, require_java

FETCH = "auditlake doctor --fetch"


class PartState(StrEnum):
    """Whether a part can be used."""

    OK = "ok"
    MISSING = "missing"
    UNUSED = "unused"


@dataclass(frozen=True, slots=True)
class Part:
    """One part of an installation; `fix` is what to do if it is not `ok`."""

    name: str
    state: PartState
    text: str
    fix: str | None = None


def examine(load: Callable[[], Settings]) -> Iterator[Part]:
    """Yield every part; `load` reads the settings, and raises ConfigError or Unsupported if they are wrong."""
    yield Part("python", PartState.OK, f"{sys.version.split()[0]}, auditlake {version('auditlake')}")
    settings, part = _settings(load)
    yield part
    yield from _for_spark(settings)
    yield _extras()
    yield _checked("postgresql", lambda: _source(settings))
    yield _checked("lake", lambda: _lake(settings))


def _checked(name: str, check: Callable[[], Part]) -> Part:
    """Return the part, or a missing one with the hint of the error."""
    try:
        return check()
    except AuditlakeError as error:
        return Part(name, PartState.MISSING, error.message, error.hint)


def _settings(load: Callable[[], Settings]) -> tuple[Settings, Part]:
    """Return the settings, or the defaults if they are wrong."""
    try:
        settings = load()
    except AuditlakeError as error:
        return Settings(), Part("settings", PartState.MISSING, error.message, error.hint)
    given = ", ".join(sorted(name for name in settings.model_fields_set if getattr(settings, name))) or "the defaults"
    file = f"; {DEFAULT_FILE.absolute()}" if DEFAULT_FILE.exists() else ""
    return settings, Part("settings", PartState.OK, f"{given}{file}")


def _for_spark(settings: Settings) -> Iterator[Part]:
    """Yield the parts of Spark; without the packages only that they are not installed."""
    packages = _checked("spark", _spark)
    yield packages
    if packages.state != PartState.OK:
        return
    others = [_checked("java", _java), _checked("jars", lambda: _jars(settings))]
    yield from others
    if all(each.state == PartState.OK for each in others):
        yield _checked("archive", lambda: _archive(settings))


def _java() -> Part:
    java = require_java()
    return Part("java", PartState.OK, f"version {major_version(java)} at {java}")


def _spark() -> Part:
    found = {}
    for package in ("pyspark", "delta-spark"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            return Part(
                "spark", PartState.UNUSED, f"{package} is not installed", f"{SPARK.command} for {SPARK.purpose}"
            )
    return Part("spark", PartState.OK, ", ".join(f"{package} {number}" for package, number in found.items()))


def _jars(settings: Settings) -> Part:
    """Look for the jars without resolving them."""
    if packages := unresolved(settings.spark):
        return Part("jars", PartState.MISSING, f"those of {' and '.join(packages)} are not there", FETCH)
    return Part("jars", PartState.OK, f"in {jars_folder()}")


def _archive(settings: Settings) -> Part:
    """Look for the class-data archive, whose name depends on Java, Spark and the jars."""
    from auditlake.spark.jvm import archive_path  # noqa: PLC0415 - imports pyspark, which another part may miss

    path = archive_path(delta_jars(settings.spark))
    if path.is_file():
        return Part("archive", PartState.OK, f"{path}")
    return Part(
        "archive", PartState.UNUSED, "no class-data archive: the first query of a JVM takes twice the time", FETCH
    )


def _extras() -> Part:
    ours = [extra for extra in EXTRAS if extra is not SPARK]  # a part of its own
    installed = [extra.name for extra in ours if extra.is_installed]
    others = [extra for extra in ours if not extra.is_installed]
    text = f"installed: {', '.join(installed) or 'none'}"
    if not others:
        return Part("extras", PartState.OK, text)
    return Part("extras", PartState.UNUSED, text, "; ".join(f"{extra.command} for {extra.purpose}" for extra in others))


def _source(settings: Settings) -> Part:
    """Connect to the source; `auditlake check` tells more."""
    if settings.source is None:
        return Part(
            "postgresql", PartState.UNUSED, "no source is set", "export AUDITLAKE_SOURCE=postgresql://user@host/db"
        )
    dsn = settings.source.get_secret_value()
    with connect(dsn) as conn:
        major = conn.info.server_version // 10_000
    return Part("postgresql", PartState.OK, f"version {major} at {redacted(dsn)}; auditlake check examines it")


def _lake(settings: Settings) -> Part:
    lake = Lake(settings.lake)
    manifest = read_manifest(lake)
    if manifest is None:
        return Part("lake", PartState.UNUSED, f"there is no lake in {lake.root}", "auditlake bootstrap")
    return Part("lake", PartState.OK, f"{lake.root}, of database {manifest.database}, slot {manifest.slot}")
