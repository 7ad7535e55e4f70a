"""Write a software bill of materials (CycloneDX, JSON): auditlake's dependencies and the Delta jars of its wheel.

Usage: python scripts/sbom.py FILE. cyclonedx-bom lists the whole environment, with the tools of development; here only
those packages stay that `pip install 'auditlake[spark]'` brings. It knows no jars: they are added with the digests that
`scripts/wheel.py` requires.
"""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from importlib.metadata import requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.wheel import SHA256

_ROOT = Path(__file__).parents[1]
_JAR = re.compile(r"(?P<name>.+)-(?P<version>\d+\.\d+\.\d+)\.jar")
_GROUPS = {"delta": "io.delta", "unitycatalog": "io.unitycatalog"}
"""Groups in Maven, by the first word of a jar's name."""


def required(direct: Iterable[str]) -> dict[str, set[str]]:
    """Return every package that these requirements bring, with what each needs itself, by canonical names."""
    needs: dict[str, set[str]] = {}
    waiting = [Requirement(line) for line in direct]
    seen: set[tuple[str, str]] = set()
    while waiting:
        asked = waiting.pop()
        name = canonicalize_name(asked.name)
        for extra in {"", *asked.extras} - {extra for known, extra in seen if known == name}:
            seen.add((name, extra))
            found = [Requirement(line) for line in requires(name) or []]
            chosen = [each for each in found if each.marker is None or each.marker.evaluate({"extra": extra})]
            needs.setdefault(name, set()).update(canonicalize_name(each.name) for each in chosen)
            waiting += chosen
    return needs


def direct_requirements(project: Path) -> list[str]:
    """Return the dependencies of auditlake and those of Spark, for which the wheel has the jars."""
    declared = tomllib.loads(project.read_text())["project"]
    return [*declared["dependencies"], *declared["optional-dependencies"]["spark"]]


def complete(document: dict[str, Any], needs: Mapping[str, set[str]], direct: Iterable[str]) -> dict[str, Any]:
    """Keep the packages that are needed, and add the jars; both are dependencies of the root."""
    named = {str(canonicalize_name(each["name"])): each for each in document["components"]}
    kept = {name: each for name, each in named.items() if name in needs}
    jars = [_jar(name, digest) for name, digest in SHA256.items()]
    root = document["metadata"]["component"]["bom-ref"]
    names = {canonicalize_name(Requirement(line).name) for line in direct}
    graph = {root: [*(kept[name]["bom-ref"] for name in names), *(jar["bom-ref"] for jar in jars)]}
    for name, each in kept.items():
        graph[each["bom-ref"]] = [kept[other]["bom-ref"] for other in needs[name] if other in kept]
    graph |= {jar["bom-ref"]: [] for jar in jars}
    dependencies = [{"ref": ref, "dependsOn": sorted(others)} for ref, others in sorted(graph.items())]
    return {**document, "components": [*(kept[name] for name in sorted(kept)), *jars], "dependencies": dependencies}


def _jar(file: str, digest: str) -> dict[str, Any]:
    parts = _JAR.fullmatch(file)
    if parts is None:
        sys.exit(f"sbom: error: {file} is not NAME-VERSION.jar")
    name, version = parts["name"], parts["version"]
    group = _GROUPS[name.split("-")[0]]
    purl = f"pkg:maven/{group}/{name}@{version}"
    return {
        "bom-ref": purl,
        "type": "library",
        "group": group,
        "name": name,
        "version": version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": digest}],
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }


def main() -> None:
    """Write the document, and check it against the schema of CycloneDX."""
    target, project = Path(sys.argv[1]), _ROOT / "pyproject.toml"
    direct = direct_requirements(project)
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--pyproject", str(project)]
    listed = subprocess.run([*command, "--output-reproducible", "--of", "JSON"], check=True, stdout=subprocess.PIPE)
    text = json.dumps(complete(json.loads(listed.stdout), required(direct), direct), indent=2)
    _check(text)
    target.write_text(text + "\n")


def _check(text: str) -> None:
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415 - in the extra `release`
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415

    if (problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)) is not None:
        sys.exit(f"sbom: error: {problem}")


if __name__ == "__main__":
    main()
