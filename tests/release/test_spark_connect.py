"""Spark Connect: questions about a lake in S3, answered by a server that is started as documented."""

import csv
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import psycopg
import pytest

from auditlake.lake.layout import Lake
from auditlake.store.objects import settings_for_spark
from auditlake.store.place import Remote, parse_url
from tests import command
from tests.capture_once import capture
from tests.release.test_jobs import await_line, daemon
from tests.server import execute, free_port

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(900)]  # the server is a JVM of its own

_ROOT = Path(__file__).parent.parent.parent
_NO_JAVA = {"JAVA_HOME": "/nonexistent"}
_ALL = "select id, note, total from public.orders order by id"


@pytest.fixture
def connect_server(bucket: str, tmp_path: Path) -> Iterator[str]:
    """A Spark Connect server with Delta and the jars of S3; gives its URL."""
    port = str(free_port())
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "AUDITLAKE_LAKE": f"{bucket}/any"}
    jars = subprocess.check_output([sys.executable, "-m", "auditlake.spark.jars"], env=environment, text=True).strip()
    options = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]"]
    options += ["--properties-file", str(_ROOT / "conf" / "spark-defaults.conf"), "--jars", jars]
    options += ["--conf", f"spark.connect.grpc.binding.port={port}"]
    options += ["--conf", "spark.connect.grpc.binding.address=127.0.0.1"]
    for name, value in settings_for_spark(parse_url(f"{bucket}/any")).items():
        options += ["--conf", f"{name}={value}"]
    log = tmp_path / "connect.log"
    with daemon(log, "org.apache.spark.deploy.SparkSubmit", *options, memory="1g"):  # as spark-submit starts it
        await_line(log, "Spark Connect server started")
        yield f"sc://127.0.0.1:{port}"


def test_questions_are_answered_as_postgresql_does(connect_server: str, database: str, remote_folder: Remote) -> None:
    """From the command line and from Python, on machines without Java; nothing is applied, so the server folds."""
    folder = str(remote_folder)
    lake, source = ["--lake", folder], ["--source", database]
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table orders (id int primary key, note text, total numeric)")
        conn.execute("insert into orders select n, 'note ' || n, n / 3.0 from generate_series(1, 200) n")
        conn.execute("insert into orders values (1000, 'special', 'NaN')")
        _done("bootstrap", *lake, *source)
        before = conn.execute(_ALL).fetchall()
        conn.execute("update orders set note = 'second' where id % 3 = 0")
        conn.execute("delete from orders where id = 7")
        after = conn.execute(_ALL).fetchall()
    capture(database, Lake(cast("Path", remote_folder)))
    asked = ["sql", *lake, "--remote", connect_server, "--format", "csv"]
    assert _rows(_done(*asked, _EXACT)) == _text(after)
    (first,) = _rows(_done(*asked, "select min(_from_lsn) from orders for system_time all"))[0]
    assert _rows(_done(*asked, "--as-of", f"0/{int(first):X}", _EXACT)) == _text(before)
    defined = "create temp view v as select * from orders where id < 10; select count(*), sum(id) from v"
    assert _rows(_done(*asked, defined)) == [("8", "38")]

    line = [sys.executable, "-c", _PROGRAM, connect_server, folder]
    environment = {**os.environ, **_NO_JAVA, "PYTHONPATH": str(_ROOT)}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False, cwd="/")
    assert done.stdout.splitlines() == ["200 66", "orders public__orders", "267"], done.stderr[-3000:]


def test_what_spark_connect_cannot_do_is_refused_by_name(connect_server: str, database: str, tmp_path: Path) -> None:
    """Stages on Spark need a JVM here; a server that cannot read the lake, or is not there, is named, not a token."""
    execute(database, "create table orders (id int primary key, note text)")
    execute(database, "insert into orders values (1, 'secret note')")
    local = ["--lake", str(tmp_path / "lake")]
    _done("bootstrap", *local, "--source", database)
    execute(database, "update orders set note = 'another secret'")
    capture(database, Lake(tmp_path / "lake"))
    remote = {**_NO_JAVA, "SPARK_REMOTE": connect_server}
    for asked in (["apply", "--until-current", "--engine", "spark"], ["verify", "--no-source"]):
        refused = command.run([*asked, *local], remote)
        assert (refused.code, "Spark Connect can only answer questions" in refused.stderr) == (3, True), refused.stderr
    (tmp_path / "lake").rename(tmp_path / "elsewhere")
    elsewhere = ["--lake", str(tmp_path / "elsewhere")]
    failing = command.run(["sql", *elsewhere, "select cast(note as int) from orders"], remote)
    assert failing.code == 2
    assert "CAST_INVALID_INPUT" in failing.stderr
    assert "secret" not in failing.stderr
    absent = command.run(["sql", *elsewhere, "--remote", "sc://127.0.0.1:9/;token=secret", "select 1"], _NO_JAVA)
    assert (absent.code, "no Spark Connect server answers at 127.0.0.1:9" in absent.stderr) == (3, True)
    assert "secret" not in absent.stderr


_EXACT = "select id, note, exact_text(total) from public.orders order by id"
_PROGRAM = """
import sys, auditlake
from pyspark.sql import SparkSession
remote, lake = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
orders = auditlake.read(spark, lake, "public.orders")
print(orders.count(), orders.where("note = 'second'").count())
print(*auditlake.register(spark, lake))
print(auditlake.sql(spark, lake, "select count(*) from orders for system_time all").first()[0])
"""


def _done(*arguments: str) -> str:
    done = command.run(arguments, _NO_JAVA)
    assert done.code == 0, done.stderr[-3000:]
    return done.stdout


def _rows(text: str) -> list[tuple[str, ...]]:
    return [tuple(row) for row in list(csv.reader(io.StringIO(text)))[1:]]


def _text(rows: list[tuple[object, ...]]) -> list[tuple[str, ...]]:
    return [tuple(str(value) for value in row) for row in rows]
