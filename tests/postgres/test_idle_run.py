"""Runs with nothing to apply, or nothing that needs Spark, start no JVM: proved by a JAVA_HOME without a Java."""

from pathlib import Path

import psycopg
import pytest

from tests import command
from tests.capture_lake import make_lake

pytestmark = pytest.mark.pg


def test_a_run_that_needs_no_spark_starts_no_jvm(database: str, tmp_path: Path) -> None:
    """With nothing to do, after rows were changed, and to maintain their history; a value for older rows needs Java."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key, name text)")
        lake = make_lake(database, tmp_path / "lake")
        follow: list[str | Path] = ["follow", "--until-current", "--source", database, "--lake", lake.root]
        apply: list[str | Path] = ["apply", "--until-current", "--lake", lake.root]
        no_java = {"JAVA_HOME": str(tmp_path)}
        for arguments in (follow, apply):
            done = command.run(arguments, no_java)
            assert done.code == 0, done.stderr
        conn.execute("insert into t select n, repeat(n::text, 3000) from generate_series(1, 9) n")
        conn.execute(
            "update t set id = id + 100 where id < 3; update t set name = 'x' where id = 3; delete from t where id = 4"
        )
        done = command.run(follow, no_java)
        assert (done.code, "applied 13 changes" in done.stderr) == (0, True), done.stderr
        done = command.run(["maintain", "--lake", lake.root], no_java)
        assert (done.code, "maintained public.t" in done.stderr) == (0, True), done.stderr
        conn.execute("truncate t")
        done = command.run(follow, no_java)
        assert (done.code, "applied 1 changes" in done.stderr) == (0, True), done.stderr
        conn.execute("insert into t values (1); alter table t add added int default 7; insert into t values (2)")
        for arguments in (follow, apply):
            done = command.run(arguments, no_java)
            assert (done.code, "JAVA_HOME" in done.stderr) == (3, True), done.stderr
