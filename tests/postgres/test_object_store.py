"""A lake in an object store without a JVM: capture is killed and continues, questions are answered."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

import psycopg
import pytest

import auditlake
from auditlake.failpoints import After
from auditlake.store.place import Remote
from tests import command
from tests.capture_lake import make_lake
from tests.crash.killed import killed_at
from tests.read_lake import positions_of
from tests.s3_server import SECRET

if TYPE_CHECKING:
    from auditlake.lake.layout import Lake

pytestmark = pytest.mark.pg


def _run(*arguments: str | Path) -> str:
    done = command.run(arguments)
    assert done.code == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    return done.stdout


def test_capture_is_killed_and_every_question_is_answered(database: str, remote_folder: Remote) -> None:
    """What PostgreSQL shows is what the lake shows; the secret of the store is nowhere."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table orders (id int primary key, note text, total numeric(10,2))")
        lake = make_lake(database, cast("Path", remote_folder))
        conn.execute("insert into orders select n, 'note ' || n, n * 1.5 from generate_series(1, 20) n")
        conn.execute("update orders set note = 'second' where id <= 3")
        task = ["capture", "--until-current", "--source", database, "--lake", str(remote_folder)]
        killed_at(After.ADDED, task)
        conn.execute("delete from orders where id = 20")
        _run(*task)
        expected = conn.execute("select id, note, total from orders order by id").fetchall()

    state = auditlake.Lake(str(remote_folder)).as_of().table("orders").to_arrow()
    found = sorted((row["id"], row["note"], row["total"]) for row in state.to_pylist())
    assert found == expected
    at = ["--lake", str(remote_folder)]
    assert len(_run("log", "--json", *at).splitlines()) == 3
    totals = "select count(*) as n, sum(total) as t, min(note) as m from orders where id > 2"
    assert _run("sql", "--engine", "duckdb", "--format", "csv", totals, *at) == "n,t,m\n17,280.50,note 10\n"
    assert "note 2 → second" in _run("row", "orders", "2", *at)
    assert "id=20" in _run("row", "orders", "20", *at)
    assert "public.orders" in _run("status", *at, "--source", database)
    _require_manifest_without_secret(lake)


def _require_manifest_without_secret(lake: "Lake") -> None:
    positions_of(lake)
    assert SECRET not in lake.manifest.read_text()


def test_a_lake_in_a_bucket_is_backed_up_to_a_disk_and_the_other_way_round(
    database: str, remote_folder: Remote, tmp_path: Path
) -> None:
    """A backup on a disk is restored there, and backed up into the bucket; each copy has the rows of the first."""
    lake = ["--source", database, "--lake", f"{remote_folder}/lake"]
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table orders (id int primary key)")
        made = make_lake(database, cast("Path", remote_folder / "lake"))
        conn.execute("insert into orders select generate_series(1, 20)")
        _run("capture", "--until-current", *lake)
        conn.execute("delete from orders where id > 10")
    _run("capture", "--until-current", *lake)
    copies: list[tuple[str | Path, str | Path]] = [
        (tmp_path / "backups", tmp_path / "restored"),
        (f"{remote_folder}/backups", f"{remote_folder}/restored"),
    ]
    source: str | Path = str(made.root)
    for folder, copy in copies:
        _run("backup", folder, "--lake", source)
        _run("backup", folder, "--lake", source)  # the second has nothing to copy
        _run("restore", folder, "--lake", copy)
        state = auditlake.Lake(str(copy)).as_of().table("orders").to_arrow()
        assert sorted(state["id"].to_pylist()) == list(range(1, 11))
        source = copy
