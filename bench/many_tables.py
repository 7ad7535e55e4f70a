"""Cost of 10,000 tables that do not change: questions, an idle batch of apply, the start of capture, and `status`.

    python bench/many_tables.py [--tables 10000] [--files 10]

Makes two lakes of metadata only, one with ten tables and one with `--tables`, each table with `--files` entries of data
files in its log. Every measurement runs in a fresh process, in both lakes in turn, and prints the wall and CPU time of
the median of three, their ratio, and the files that the process opened inside the lake.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import harness  # noqa: F401 - the tests can be imported

from auditlake.engine import Engine
from auditlake.lake.layout import Lake
from auditlake.spark.on_demand import SparkOnDemand
from tests.many_tables import make_metadata_lake

_FEW = 10
_TIMES = 3
_PROBE = """
import json, resource, sys, time
from pathlib import Path
opened = 0
root = sys.argv[2]
def count(event, args):
    global opened
    if event == "open" and str(args[0]).startswith(root):
        opened += 1
sys.addaudithook(count)
begun = time.perf_counter()
sys.path.insert(0, sys.argv[3])
import many_tables
many_tables.QUESTIONS[sys.argv[1]](many_tables.Lake(Path(root)))
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([time.perf_counter() - begun, used.ru_utime + used.ru_stime, opened]))
"""


def ask_one_table(lake: Lake) -> None:
    """Read the state of one table as of now."""
    from auditlake.api.lake import Lake as Asked  # noqa: PLC0415 - its imports are part of the measurement

    if len(Asked(lake.root).as_of().table("public.t0").to_arrow()):
        raise SystemExit("an empty table has rows")


def list_tables(lake: Lake) -> None:
    """List the tables of a moment."""
    from auditlake.api.lake import Lake as Asked  # noqa: PLC0415 - as above

    if not Asked(lake.root).as_of().tables():
        raise SystemExit("the lake has no tables")


def start_capture(lake: Lake) -> None:
    """Open the tables that capture writes, and look for missing values, before it connects."""
    from auditlake.capture.change_log import CaptureLog  # noqa: PLC0415 - as above

    CaptureLog(lake, ask=lambda _: []).resolve_missing_values()


def ask_in_sql(lake: Lake) -> None:
    """Prepare a statement about one table, up to the files that an engine would read."""
    from auditlake.query.statement import prepare_sql  # noqa: PLC0415 - as above

    prepare_sql(lake, "select count(*) from public.t0")


def apply_nothing(lake: Lake) -> None:
    """Run a first batch of apply, and a second one, which a running apply repeats every two seconds."""
    from auditlake.follow import Applier  # noqa: PLC0415 - as above

    applier = Applier(lake, SparkOnDemand({}, Engine.DUCKDB), lambda _: None)
    applier.apply()


def repeat_batch(lake: Lake) -> None:
    """Run ten more idle batches of a running apply."""
    from auditlake.follow import Applier  # noqa: PLC0415 - as above

    applier = Applier(lake, SparkOnDemand({}, Engine.DUCKDB), lambda _: None)
    applier.apply()
    begun, cpu = time.perf_counter(), time.process_time()
    for _ in range(10):
        applier.apply()
    print(json.dumps([(time.perf_counter() - begun) / 10, (time.process_time() - cpu) / 10, 0]))
    sys.exit(0)


def show_status(lake: Lake) -> None:
    """Read the status, without a source."""
    from auditlake.status import judge, read_status  # noqa: PLC0415 - as above

    judge(read_status(lake, None))


QUESTIONS: dict[str, Callable[[Lake], None]] = {
    "question about one table": ask_one_table,
    "SQL about one table, prepared": ask_in_sql,
    "list of the tables": list_tables,
    "start of capture": start_capture,
    "first batch of apply, idle": apply_nothing,
    "each later batch, idle": repeat_batch,
    "status": show_status,
}


@dataclass(frozen=True)
class _Cost:
    wall_s: float
    cpu_s: float
    opened: int


def _measure(name: str, root: Path) -> _Cost:
    runs = sorted((_measure_once(name, root) for _ in range(_TIMES)), key=lambda run: run.wall_s)
    return runs[_TIMES // 2]


def _measure_once(name: str, root: Path) -> _Cost:
    command = [sys.executable, "-c", _PROBE, name, str(root), str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return _Cost(*json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Make both lakes, and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--files", type=int, default=10)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        few, many = Path(folder) / "few", Path(folder) / "many"
        make_metadata_lake(few, _FEW, asked.files)
        begun = time.perf_counter()
        make_metadata_lake(many, asked.tables, asked.files)
        made_s = time.perf_counter() - begun
        print(f"{asked.tables:,} tables, {asked.tables * asked.files:,} files; made in {made_s:.0f} s")
        for root in (few, many):
            _measure_once("first batch of apply, idle", root)  # saves `histories.json`, as any apply does
        print(f"{'':32}{_FEW:>7} tables{asked.tables:>18,} tables      ratio  CPU  files opened")
        for name in QUESTIONS:
            less, more = _measure(name, few), _measure(name, many)
            print(
                f"{name:32}{less.wall_s:9.3f} s {less.cpu_s:6.3f} CPU-s"
                f"{more.wall_s:9.3f} s {more.cpu_s:6.3f} CPU-s"
                f"{more.wall_s / less.wall_s:7.2f}{more.cpu_s / less.cpu_s:6.2f}  {less.opened} {more.opened}"
            )


if __name__ == "__main__":
    main()
