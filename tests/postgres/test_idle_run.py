"""Runs with nothing to apply start no JVM: proved by a JAVA_HOME without a Java."""

from pathlib import Path

import psycopg
import pytest

from tests import command
from tests.capture_lake import make_lake

pytestmark = pytest.mark.pg


def test_a_run_with_nothing_to_apply_starts_no_jvm(database: str, tmp_path: Path) -> None:
    """`follow` and `apply` to a target end with 0; once a change waits, Java is needed."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key)")
        lake = make_lake(database, tmp_path / "lake")
        follow: list[str | Path] = ["follow", "--until-current", "--source", database, "--lake", lake.root]
        apply: list[str | Path] = ["apply", "--until-current", "--lake", lake.root]
        no_java = {"JAVA_HOME": str(tmp_path)}
        for arguments in (follow, apply):
            done = command.run(arguments, no_java)
            assert done.code == 0, done.stderr
        conn.execute("insert into t values (1)")
        for arguments in (follow, apply):
            done = command.run(arguments, no_java)
            assert (done.code, "JAVA_HOME" in done.stderr) == (3, True), done.stderr
