"""A copy gives way to sessions that wait for its readers alone, and begins again by itself."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from auditlake.lake.layout import Lake
from auditlake.snapshot.bootstrap import Target, bootstrap
from auditlake.snapshot.scheduler import SourceLoad
from auditlake.snapshot.worker_pool import LocalWorkers
from tests.running import await_true

pytestmark = pytest.mark.pg

_ROWS = 60_000
_COPYING = (
    "select from pg_locks l join pg_stat_activity a on a.pid = l.pid"
    " where l.relation = to_regclass('public.t_pkey') and l.granted and a.application_name ~ '^auditlake copy'"
)


def _copied_during(database: str, root: Path, *statements: str) -> list[str]:
    """Run statements while a table is copied, none of which may take long; return what was reported."""
    limits, said = SourceLoad(bytes_per_s=6_000_000), list[str]()
    with psycopg.connect(database, autocommit=True) as conn, ThreadPoolExecutor(1) as pool:
        conn.execute("create table t (id int primary key, v text)")
        conn.execute("insert into t select n, repeat(md5(n::text), 20) from generate_series(1, %s) n", [_ROWS])
        target = Target(database, Lake(root / "lake"), "auditlake", "auditlake", None, limits=limits)
        copying = pool.submit(bootstrap, target, lambda: LocalWorkers(1), said.append)
        await_true(lambda: conn.execute(_COPYING).fetchall())
        conn.execute("set statement_timeout = '4s'")
        for statement in statements:
            conn.execute(statement.encode())
        (copied,) = copying.result()
    assert copied.rows == _ROWS
    return said


def test_a_copy_gives_way_to_reindex(database: str, tmp_path: Path) -> None:
    """The reader of a table locks its indexes, which the session that holds the snapshot does not."""
    said = _copied_during(database, tmp_path, "reindex index t_pkey")
    lost = r"failed: table public.t could not be copied: .* waited for a lock on public.t_pkey, and the copy gave way"
    assert any(re.match(lost, each) for each in said)


def test_a_copy_is_not_in_the_way_of_the_catalog(database: str, tmp_path: Path) -> None:
    """Behind VACUUM FULL pg_class every session would wait, also the one that looks for those that wait."""
    said = _copied_during(database, tmp_path, *(f"vacuum full {name}" for name in ("pg_class", "pg_type", "pg_index")))
    assert not any("failed" in each for each in said)
