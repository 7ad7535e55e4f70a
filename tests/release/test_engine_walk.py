"""The main walk through the product with each engine: first copy, follow, a kill, questions in both engines, verify."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from auditlake.lake.histories import list_histories
from auditlake.lake.layout import Lake
from tests import command, oracle
from tests.crash.killed import SPARK
from tests.running import await_true
from tests.s3_server import chosen_lake
from tests.writers import LEDGER, SCHEMA, TABLES, Writers

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(900)]

_ALL = (*TABLES, LEDGER)


@pytest.mark.parametrize("engine", ["auto", "spark", "duckdb"])
def test_the_main_walk(database: str, tmp_path: Path, engine: str) -> None:
    """Every answer is PostgreSQL's; only `spark` starts a JVM, as every batch fits into memory."""
    with psycopg.connect(database) as conn:
        conn.execute(SCHEMA)
    lake = chosen_lake(tmp_path / "lake")
    settings = {**SPARK, "AUDITLAKE_SOURCE": database, "AUDITLAKE_LAKE": str(lake.root), "AUDITLAKE_ENGINE": engine}
    moments = [_written(database, 1)]
    _done(settings, "bootstrap")
    moments.append(_kill_follow(settings, database, lake, engine))
    moments.append(_written(database, 3))
    said = _done(settings, "follow", "--until-current").stderr
    assert ("in Spark" in said, "in DuckDB" in said) == (engine == "spark", engine != "spark")
    assert json.loads(_done(settings, "status", "--json").stdout)["apply_engine"] == said_engine(engine)
    _done(settings, "maintain")

    assert oracle.assert_histories_at(lake, moments[1:]) == [len(_ALL)] * 2
    oracle.assert_periods(lake)
    for asked in ("spark", "duckdb"):
        for moment in moments[1:]:
            rows = _done(settings, "sql", "--engine", asked, "--as-of", str(moment.lsn), "--format", "csv", _COUNT)
            assert int(rows.stdout.split()[1]) == sum(moment.states["accounts"].values()), asked
    assert "equal" in _done(settings, "verify").stdout


_COUNT = "select count(*) as n from public.accounts"


def said_engine(engine: str) -> str:
    """Return the engine of batches that fit into memory."""
    return "spark" if engine == "spark" else "duckdb"


def _written(database: str, seed: int) -> oracle.Moment:
    with Writers(database, seed) as writers:
        writers.await_transactions(30)
    return oracle.take_moment(database, _ALL)


def _kill_follow(settings: dict[str, str], database: str, lake: Lake, engine: str) -> oracle.Moment:
    """Kill `follow` by SIGKILL once it has applied something, while the writers run."""
    with command.start(["follow"], settings) as process, Writers(database, 2) as writers:
        try:
            await_true(lambda: process.poll() is not None or _is_applied(lake), 240)
            assert process.poll() is None, process.communicate()[1]
            assert bool(list(_jvms(process.pid))) == (engine == "spark")
            writers.await_transactions(10)
        finally:
            process.send_signal(signal.SIGKILL)
    return oracle.take_moment(database, _ALL)


def _is_applied(lake: Lake) -> bool:
    return any(table.position > table.horizon for table in list_histories(lake))


def _jvms(pid: int) -> Iterator[int]:
    """Yield the JVMs among the children of a process."""
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, tasks.read_text().split()):
            if Path(f"/proc/{child}/comm").read_text().strip() == "java":
                yield child


def _done(settings: dict[str, str], *arguments: str) -> command.Done:
    done = command.run(arguments, settings)
    assert done.code == 0, (arguments, done.stderr)
    return done
