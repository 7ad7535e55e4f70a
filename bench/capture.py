"""Capture compared with pg_recvlogical to /dev/null, in turns, on copies of one slot: seconds, CPU-seconds, memory.

    python bench/capture.py [--runs 3] [tpcb] [insert] [commits] [memory]

Start-up is included on both sides. Compare the ratio of the medians, not the seconds of different runs of the bench.
"""

import argparse
from collections.abc import Callable
from statistics import median

from harness.site import Run, Site, bench_server

_TPCB_SCALE, _TPCB_CLIENTS, _TPCB_TRANSACTIONS = 20, 4, 100_000
_TABLE = "create table t (id bigint primary key, name text, amount numeric(12,2), at timestamptz)"
_ROW = "n, 'name of row ' || n, n / 7.0, now()"


def tpcb(site: Site) -> None:
    """The 400,000 changes of 100,000 TPC-B transactions."""
    site.load_tpcb(_TPCB_SCALE)
    site.start_log()
    each = str(_TPCB_TRANSACTIONS // _TPCB_CLIENTS)
    site.tool("pgbench", "-n", "-c", str(_TPCB_CLIENTS), "-t", each, site.name)


def insert(site: Site, rows: int = 1_000_000) -> None:
    """One insert of 1,000,000 rows."""
    site.sql(_TABLE)
    site.start_log()
    site.sql(f"insert into t select {_ROW} from generate_series(1, {rows}) n")


def commits(site: Site) -> None:
    """500,000 commits of one row each."""
    site.sql(_TABLE)
    site.start_log()
    site.sql(f"alter database {site.name} set synchronous_commit = off")
    site.sql(f"do $$ begin for n in 1..500000 loop insert into t values ({_ROW}); commit; end loop; end $$")


def _memory(rows: int, streaming: str) -> None:
    with bench_server() as (server, folder):
        site = Site(server, folder, "memory")
        insert(site, rows)
        print(site.capture("--streaming", streaming).line(f"one transaction of {rows:,} rows, streaming {streaming}"))


def _large_values(streaming: str) -> None:
    with bench_server() as (server, folder):
        site = Site(server, folder, "memory")
        site.sql("create table t (id bigint primary key, v text)")
        site.start_log()
        site.sql("insert into t select n, repeat(chr(65 + n % 26), 1000000) from generate_series(1, 500) n")
        print(site.capture("--streaming", streaming).line(f"500 values of 1 MB, streaming {streaming}"))


def _compare(name: str, runs: int) -> None:
    with bench_server() as (server, folder):
        site = Site(server, folder, name)
        _COMPARED[name](site)
        until = site.sql("select pg_current_wal_insert_lsn()")
        pairs = [(site.receive(until), site.capture()) for _ in range(runs)]
    received, captured = (_middle([pair[side] for pair in pairs]) for side in (0, 1))
    print(received.line(f"pg_recvlogical: {(_COMPARED[name].__doc__ or '').rstrip('.')}"))
    print(captured.line("capture: durable and acknowledged", f"{captured.seconds / received.seconds:.2f} x"))


def _middle(runs: list[Run]) -> Run:
    return Run(*(median(getattr(run, name) for run in runs) for name in ("seconds", "cpu_s", "peak_mb")))


_COMPARED: dict[str, Callable[[Site], None]] = {"tpcb": tpcb, "insert": insert, "commits": commits}


def main() -> None:
    """Parse arguments, set up, measure, clean up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", help=f"{', '.join(_COMPARED)} or memory [all but memory]")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    for name in arguments.what or _COMPARED:
        if name != "memory":
            _compare(name, arguments.runs)
            continue
        for streaming in ("on", "off"):
            for rows in (10_000, 1_000_000, 10_000_000):
                _memory(rows, streaming)
            _large_values(streaming)


if __name__ == "__main__":
    main()
