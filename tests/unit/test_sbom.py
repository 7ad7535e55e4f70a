"""The bill of materials has what `pip install 'auditlake[spark]'` brings, and the jars, but no tool of development."""

from pathlib import Path

from auditlake.spark.jars import DELTA_JARS
from scripts.sbom import complete, direct_requirements, required

_DIRECT = direct_requirements(Path(__file__).parents[2] / "pyproject.toml")


def test_needed_packages_follow_extras_and_leave_out_those_not_asked_for() -> None:
    """`psycopg[binary]` brings psycopg-binary; nothing brings pytest or ruff."""
    needs = required(_DIRECT)
    assert {"psycopg", "psycopg-binary", "pyspark", "py4j", "deltalake"} <= set(needs)
    assert not {"pytest", "ruff", "mypy", "grpcio"} & set(needs)
    assert "py4j" in needs["pyspark"]


def test_jars_are_dependencies_of_the_root() -> None:
    """Each with its address in Maven; packages that are not needed are gone."""
    found = [{"name": name, "bom-ref": name} for name in ("Click", "pytest")]
    document = {"metadata": {"component": {"bom-ref": "root"}}, "components": found, "dependencies": []}
    done = complete(document, {"click": set()}, ["click>=8"])
    jars = [each["purl"] for each in done["components"][1:]]
    assert len(jars) == len(DELTA_JARS)
    assert "pkg:maven/io.delta/delta-spark_4.2_2.13@4.4.0" in jars
    assert "pkg:maven/io.unitycatalog/unitycatalog-client@0.6.0" in jars
    graph = {each["ref"]: each["dependsOn"] for each in done["dependencies"]}
    assert graph["root"] == sorted(["Click", *jars])
