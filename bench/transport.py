"""Capture beside pg_recvlogical, over TLS and on a plain connection.

    python bench/transport.py [--transactions 300000] [--runs 3]

TPC-B transactions from copies of one slot of one server, all four in turn, start-up included. Every capture must hold
the same changes. Compare the ratios of the medians, not seconds of different runs. Needs the `dev` extra: its
PostgreSQL 17 has OpenSSL.
"""

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import duckdb
from deltalake import DeltaTable
from harness.site import Run, Site

from tests.tls import tls_server

_SCALE, _CLIENTS = 20, 4


def _content(changes: Path) -> tuple[object, ...] | None:
    """Return count and digest of the captured changes, independent of their files; needs much memory."""
    captured = DeltaTable(changes).to_pyarrow_table()
    print_of = 'sum(hash(lsn, ordinal, xid, time, op, schema, "table", old, new, unchanged)::hugeint)'
    return duckdb.from_arrow(captured).aggregate(f"count(*), {print_of}").fetchone()


def _measure(site: Site, tls: str, transactions: int, runs: int) -> dict[str, list[Run]]:
    site.load_tpcb(_SCALE)
    site.start_log()
    site.tool("pgbench", "-n", "-c", str(_CLIENTS), "-t", str(transactions // _CLIENTS), site.name)
    until = site.sql("select pg_current_wal_insert_lsn()")
    found: dict[str, list[Run]] = {}
    contents = set()
    for _ in range(runs):
        found.setdefault("TLS: pg_recvlogical", []).append(site.receive(until, tls))
        for what, dsn in (("TLS: capture", tls), ("plain: capture", site.dsn)):
            found.setdefault(what, []).append(site.capture(dsn=dsn))
            with ProcessPoolExecutor(1, get_context("spawn")) as beside:  # a child would count our memory as its own
                contents.add(beside.submit(_content, site.folder / "captured" / "changes").result())
            if len(contents) > 1:
                raise SystemExit(f"{what}: other changes were captured than before: {contents}")
        found.setdefault("plain: pg_recvlogical", []).append(site.receive(until))
    return found


def _middle(runs: list[Run]) -> Run:
    return Run(*(median(getattr(run, name) for run in runs) for name in ("seconds", "cpu_s", "peak_mb")))


def main() -> None:
    """Parse, set up, measure, clean up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transactions", type=int, default=300_000)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="auditlake-bench-") as name, tls_server(Path(name)) as server:
        print(f"PostgreSQL {server.server.version}, {os.cpu_count()} cores")
        site = Site(server.server, Path(name), "transport")
        found = _measure(site, server.dsn(site.name), arguments.transactions, arguments.runs)
    middle = {what: _middle(runs) for what, runs in found.items()}
    for what, run in middle.items():
        peer = middle[f"{what.partition(':')[0]}: pg_recvlogical"]
        print(run.line(what, f"{run.seconds / peer.seconds:.2f} x pg_recvlogical"))


if __name__ == "__main__":
    main()
