"""Java for Spark: find one that Spark accepts, without starting it, and without pyspark.

It reads the `release` file of the runtime.

Authority: spark.apache.org/docs/4.2.0, "Downloading" (Java 17 and up)
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from auditlake.errors import ConfigError

MINIMUM_JAVA = 17
_HINT = (
    "install Java 17, on Debian or Ubuntu with `apt-get install openjdk-17-jre-headless`, "
    "and set JAVA_HOME if it is not the one on the PATH."
)


def require_java() -> Path:
    """Return the Java that Spark will start; raises ConfigError without one that is new enough."""
    java = _java()
    major = major_version(java)
    if major < MINIMUM_JAVA:
        raise ConfigError(f"java at {java} is version {major}, Spark needs {MINIMUM_JAVA} or newer", _HINT)
    return java


def _java() -> Path:
    if home := os.environ.get("JAVA_HOME"):
        java = Path(home, "bin", "java")
        if not os.access(java, os.X_OK):
            raise ConfigError(f"JAVA_HOME is {home}, but there is no java in its bin folder", _HINT)
        return java
    on_path = shutil.which("java")
    if on_path is None:
        raise ConfigError(f"no java on the PATH, Spark needs version {MINIMUM_JAVA} or newer", _HINT)
    return Path(on_path)


def major_version(java: Path) -> int:
    """Return the major version of a Java; raises ConfigError if it cannot be determined."""
    release = java.resolve().parent.parent / "release"
    text = release.read_text() if release.is_file() else _version_output(java)
    match = re.search(r'(?:JAVA_VERSION="|version ")(?:1\.)?(\d+)', text)
    if match is None:
        raise ConfigError(f"cannot determine the version of java at {java}", _HINT)
    return int(match[1])


def _version_output(java: Path) -> str:
    # A launcher script or a stub (the one of macOS only prints where to download Java).
    return subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr


def cache_folder() -> Path:
    """Return the folder for files that any start can recreate."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser().absolute() / "auditlake"
