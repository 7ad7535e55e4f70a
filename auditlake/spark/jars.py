"""Delta jars, and those of S3, as files: a start of Spark needs no network.

The wheel contains the Delta jars (`scripts/wheel.py`). In a clone, and for S3, Spark's own Ivy resolves them once, and
they are kept in a folder of the user's cache.

`spark.jars.packages` contacts a repository at every start, even if everything is cached. `delta_jars` does so once, and
keeps the jars that Spark itself does not include. The folder appears by rename, so a killed or concurrent resolution
leaves no partial folder.

Spark decides the repository: by its defaults, or `spark.jars.repositories`, `spark.jars.ivySettings` and the proxy in
SPARK_SUBMIT_OPTS. AUDITLAKE_JARS names a folder prepared elsewhere.

Authority: spark.apache.org/docs/4.2.0/submitting-applications.html, "Advanced Dependency Management"
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from auditlake.config import load_settings
from auditlake.errors import ConfigError
from auditlake.spark.java import cache_folder, require_java
from auditlake.store.objects import S3_FILE_SYSTEM

DELTA_VERSION = "4.4.0"
PACKAGE = f"io.delta:delta-spark_4.2_2.13:{DELTA_VERSION}"

S3_PACKAGE = "org.apache.hadoop:hadoop-aws:3.5.0"
"""As the Hadoop of pyspark; brings the AWS SDK, 640 MB."""

# The others of PACKAGE are older copies of jars in pyspark.
DELTA_JARS = (
    f"delta-spark_4.2_2.13-{DELTA_VERSION}.jar",
    f"delta-storage-{DELTA_VERSION}.jar",
    f"delta-kernel-api-{DELTA_VERSION}.jar",
    f"delta-kernel-defaults-{DELTA_VERSION}.jar",
    f"delta-kernel-unitycatalog-{DELTA_VERSION}.jar",
    "unitycatalog-client-0.6.0.jar",
    "unitycatalog-hadoop-0.6.0.jar",
)
"""The jars of PACKAGE that pyspark does not include."""

PACKED = Path(__file__).with_name("delta_jars")
"""Folder of DELTA_JARS in a wheel; a clone has none."""

_NEEDED_FOR_S3 = ("hadoop-aws-3.5.0.jar", "bundle-2.35.4.jar", "analyticsaccelerator-s3-1.3.1.jar")
_RESOLUTION_TIMEOUT_S = 900
_RESOLVE = """
import sys
from auditlake.spark.jvm import launch

gateway = launch(dict(a.split("=", 1) for a in sys.argv[1:]))
print("\\n".join(gateway.jvm.System.getProperty("spark.jars").split(",")))
"""


def delta_jars(settings: Mapping[str, str]) -> list[Path]:
    """Return the jars to start Spark with; without those of a wheel, resolve them the first time.

    Only the `spark.jars.*` settings matter here. Raises ConfigError if they cannot be resolved.
    """
    return _resolved(jars_folder(), PACKAGE, DELTA_JARS, settings)


def s3_jars(settings: Mapping[str, str]) -> list[Path]:
    """Return the jars for lakes in S3, as `delta_jars`."""
    return _resolved(_s3_folder(), S3_PACKAGE, _NEEDED_FOR_S3, settings)


def all_jars(settings: Mapping[str, str]) -> list[Path]:
    """Return the jars that these settings need, as `delta_jars`: those of S3 only if the lake is there."""
    return [*delta_jars(settings), *(s3_jars(settings) if S3_FILE_SYSTEM in settings else [])]


def unresolved(settings: Mapping[str, str]) -> list[str]:
    """Return the packages that `all_jars` would download; raises ConfigError if a folder lacks some jars."""
    wanted: list[tuple[Path, str, tuple[str, ...]]] = [(jars_folder(), PACKAGE, DELTA_JARS)]
    if S3_FILE_SYSTEM in settings:
        wanted.append((_s3_folder(), S3_PACKAGE, _NEEDED_FOR_S3))
    present = {package: bool(folder.is_dir() and _complete(folder, needed)) for folder, package, needed in wanted}
    return [package for package, is_there in present.items() if not is_there]


def _resolved(folder: Path, package: str, needed: tuple[str, ...], settings: Mapping[str, str]) -> list[Path]:
    if not folder.is_dir():
        _resolve_once(folder, package, needed, settings)
    return _complete(folder, needed)


def jars_folder() -> Path:
    """Return the folder of the Delta jars, which may not exist yet."""
    return _chosen_folder() or (PACKED if PACKED.is_dir() else _cached(f"delta-{DELTA_VERSION}"))


def _s3_folder() -> Path:
    return _chosen_folder() or _cached(S3_PACKAGE.partition(":")[2].replace(":", "-"))


def _chosen_folder() -> Path | None:
    chosen = os.environ.get("AUDITLAKE_JARS")
    return Path(chosen).expanduser().absolute() if chosen else None


def _cached(name: str) -> Path:
    return cache_folder() / "jars" / name


def _complete(folder: Path, needed: tuple[str, ...]) -> list[Path]:
    paths = [(name, _find(folder, name)) for name in needed]
    if missing := [name for name, path in paths if path is None]:
        raise ConfigError(
            f"folder of jars {folder} lacks {', '.join(missing)}",
            "remove the folder to have it filled again, or set AUDITLAKE_JARS to one that has them.",
        )
    return [path for _, path in paths if path is not None]


def _find(folder: Path, name: str) -> Path | None:
    # Ivy puts the organisation in front of the name, other tools do not.
    return next(iter(sorted([*folder.glob(name), *folder.glob(f"*_{name}")])), None)


def _resolve_once(folder: Path, package: str, needed: tuple[str, ...], settings: Mapping[str, str]) -> None:
    with _locked(folder):
        if folder.is_dir():  # another process was faster
            return
        resolved = _resolve(package, settings)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".resolving-") as temporary:
            fresh = Path(temporary, "jars")
            fresh.mkdir()
            for jar in resolved:
                if jar.name.endswith(needed):
                    _link_or_copy(jar, fresh / jar.name)
            _complete(fresh, needed)
            fresh.rename(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = folder.with_name(f".{folder.name}.lock").open("w")
    except OSError as exc:
        raise ConfigError(
            f"folder of jars {folder} cannot be made: {exc.strerror}",
            "set AUDITLAKE_JARS to a folder that can be written.",
        ) from exc
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _link_or_copy(jar: Path, to: Path) -> None:
    try:
        to.hardlink_to(jar)
    except OSError:  # on another file system
        shutil.copyfile(jar, to)


def _resolve(package: str, settings: Mapping[str, str]) -> list[Path]:
    require_java()
    arguments = {k: v for k, v in settings.items() if k.startswith("spark.jars.")} | {"spark.jars.packages": package}
    command = [sys.executable, "-c", _RESOLVE, *(f"{key}={value}" for key, value in arguments.items())]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_RESOLUTION_TIMEOUT_S, check=True)
    except subprocess.SubprocessError as exc:
        raise ConfigError(
            f"the jars of {package} could not be resolved: {_reason(exc)}",
            "allow the network once, or set spark.jars.repositories or spark.jars.ivySettings under [spark], "
            "or set AUDITLAKE_JARS to a folder that holds them.",
        ) from exc
    return [Path(line.removeprefix("file:")) for line in run.stdout.splitlines() if line.endswith(".jar")]


def _reason(failure: subprocess.SubprocessError) -> str:
    if isinstance(failure, subprocess.TimeoutExpired):
        return f"no answer within {failure.timeout:.0f} s"
    stderr = failure.stderr if isinstance(failure, subprocess.CalledProcessError) else ""
    reasons = (line.strip() for line in stderr.splitlines() if "unresolved dependenc" in line or "Exception" in line)
    return next(reasons, "Spark gave no reason")


def main() -> None:
    """Resolve the jars before the first start, with S3's if the lake is there; print them as for `--jars`."""
    try:
        jars = all_jars(load_settings().spark)
    except ConfigError as exc:
        sys.stderr.write(f"auditlake: error: {exc.message}\nauditlake: hint: {exc.hint}\n")
        sys.exit(exc.exit_code)
    sys.stdout.write(",".join(map(str, jars)) + "\n")


if __name__ == "__main__":
    main()
