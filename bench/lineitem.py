"""Bootstrap of TPC-H lineitem: time from the start of `auditlake bootstrap` to a history that can be queried.

    python bench/lineitem.py [SCALE]    1 by default: 6,001,215 rows

For comparison, on the same server: binary COPY to /dev/null, which is the time of the server alone in one connection.
The data comes from tpchgen-cli (the extra `bench`). At scale 1 generating and loading it takes about a minute and 2 GB
of disk, each run some 20 s.
"""

import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import psycopg
from deltalake import DeltaTable
from harness.site import Run, Site, bench_server
from harness.usage import Sampler, resident_mb

from auditlake.lake.layout import Lake
from auditlake.relation import TableName

_SCHEMA = """
create table lineitem (
  l_orderkey bigint not null, l_partkey bigint not null, l_suppkey bigint not null, l_linenumber int not null,
  l_quantity numeric(15,2) not null, l_extendedprice numeric(15,2) not null, l_discount numeric(15,2) not null,
  l_tax numeric(15,2) not null, l_returnflag char(1) not null, l_linestatus char(1) not null,
  l_shipdate date not null, l_commitdate date not null, l_receiptdate date not null,
  l_shipinstruct char(25) not null, l_shipmode char(10) not null, l_comment varchar(44) not null)
"""
_CHUNK_BYTES = 1 << 20


def main() -> None:
    """Load the table, then run COPY and bootstrap twice each."""
    scale = sys.argv[1] if len(sys.argv) > 1 else "1"
    with bench_server() as (server, folder):
        site = Site(server, folder, "lineitem")
        started = time.monotonic()
        load_lineitem(site, scale)
        rows = int(site.sql("select count(*) from lineitem"))
        size = site.sql("select pg_size_pretty(pg_table_size('lineitem'))")
        print(f"lineitem at scale {scale}: {rows:,} rows, {size}, loaded in {time.monotonic() - started:.0f} s")
        for attempt in (1, 2):
            copy = site.tool("psql", "-d", site.name, "-c", "copy lineitem to stdout (format binary)")
            print(copy.line(f"{attempt}: binary COPY to /dev/null"))
            print(_bootstrap(site, rows, attempt))


def load_lineitem(site: Site, scale: str) -> None:
    """Create the table in a database and fill it."""
    command = [f"{sysconfig.get_path('scripts')}/tpchgen-cli", "csv", "-s", scale, "-T", "lineitem", "--stdout"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as generator,
        psycopg.connect(site.dsn, autocommit=True) as conn,
    ):
        conn.execute(_SCHEMA)
        assert generator.stdout is not None  # noqa: S101 - it is a pipe
        with conn.cursor().copy("copy lineitem from stdin (format csv, header)") as copy:
            while chunk := generator.stdout.read(_CHUNK_BYTES):
                copy.write(chunk)
        conn.execute("alter table lineitem add primary key (l_orderkey, l_linenumber)")
        conn.execute("vacuum (analyze, freeze) lineitem")
        conn.execute("checkpoint")
    if generator.returncode:
        raise SystemExit(f"tpchgen-cli ended with {generator.returncode}")


def _bootstrap(site: Site, rows: int, attempt: int) -> str:
    lake, name = site.folder / f"lake{attempt}", f"copy{attempt}"
    with _Memory() as memory:
        run: Run = site.auditlake("bootstrap", "--slot", name, "--publication", name, lake=lake)
    table = DeltaTable(Lake(lake).history(TableName("public", "lineitem")))
    copied = sum(table.get_add_actions(flatten=True)["num_records"].to_pylist())
    if copied != rows:
        raise SystemExit(f"{copied:,} of {rows:,} rows were copied")
    for statement in (f"select pg_drop_replication_slot('{name}')", f"drop publication {name}"):
        site.sql(statement)
    return str(run.line(f"{attempt}: auditlake bootstrap", f"{rows / run.seconds:,.0f} rows/s; {memory}"))


class _Memory(Sampler):
    """The largest resident memory of a command and of one of its workers."""

    def __init__(self) -> None:
        self._largest_mb: dict[str, float] = {}

    def __str__(self) -> str:
        return ", ".join(f"largest {name} {size:.0f} MB" for name, size in sorted(self._largest_mb.items()))

    def look(self, process: Path) -> None:
        command = (process / "cmdline").read_bytes().split(b"\0")
        name = "worker" if b"auditlake.snapshot.worker_pool" in command else "command"
        self._largest_mb[name] = max(self._largest_mb.get(name, 0), resident_mb(process))


if __name__ == "__main__":
    main()
