"""Build the wheel into `dist/`: the package with the Delta jars, which are in no repository (`make wheel`).

It builds from a copy of the package, so that no earlier build gets in; the jars are those that
`auditlake.spark.jars` resolved, and must have the digests below.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from auditlake.spark.jars import DELTA_JARS, delta_jars

ROOT = Path(__file__).parents[1]
_SOURCES = ("pyproject.toml", "LICENSE", "README.md")
SHA256 = {
    "delta-spark_4.2_2.13-4.4.0.jar": "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    "delta-storage-4.4.0.jar": "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    "delta-kernel-api-4.4.0.jar": "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11",
    "delta-kernel-defaults-4.4.0.jar": "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b",
    "delta-kernel-unitycatalog-4.4.0.jar": "cea22dfb4ac562b3cd27bf652697750e8336009d73fb06631363aaaad5345ffa",
    "unitycatalog-client-0.6.0.jar": "48257499a86b801a3e2372cec55ac226ca1c1c7eabe5c118e7302f29a1fdbc19",
    "unitycatalog-hadoop-0.6.0.jar": "c47b63c961c87102b9e1d63809a0915ba4c86b7652f57c8d39ca3a05b441a150",
}


def main() -> None:
    """Build the wheel, and print its path."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist").absolute()
    with tempfile.TemporaryDirectory() as folder:
        _copy_sources(Path(folder))
        _copy_jars(Path(folder, "auditlake", "spark", "delta_jars"))
        command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(target), folder]
        build = subprocess.run(command, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if build.returncode != 0:
            sys.exit(f"{build.stdout}wheel: error: {' '.join(command)} failed, see above")
    sys.stdout.write(f"{max(target.glob('auditlake-*.whl'), key=lambda wheel: wheel.stat().st_mtime_ns)}\n")


def _copy_sources(folder: Path) -> None:
    for name in _SOURCES:
        shutil.copy(ROOT / name, folder)
    ignored = shutil.ignore_patterns("__pycache__", "delta_jars")
    shutil.copytree(ROOT / "auditlake", folder / "auditlake", ignore=ignored)


def _copy_jars(folder: Path) -> None:
    """Copy the jars under their names in Maven.

    Raises SystemExit if one is not the one that was tested.
    """
    folder.mkdir()
    for name, jar in zip(DELTA_JARS, delta_jars({}), strict=True):
        found = hashlib.sha256(jar.read_bytes()).hexdigest()
        if found != SHA256[name]:
            sys.exit(f"wheel: error: {jar} has the SHA-256 {found}, not {SHA256[name]}")
        shutil.copyfile(jar, folder / name)


if __name__ == "__main__":
    main()
