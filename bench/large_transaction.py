"""One large transaction, from the slot into the history: `capture`, then `apply`, each from the start of its process.

    python bench/large_transaction.py [--rows 1000000] [--engine auto]

The table gets its rows by an INSERT; then an UPDATE changes all of them, and a DELETE removes them. CPU-seconds include
the JVM, if one starts; memory is that of Python.
"""

import argparse

from harness.site import Run, Site, bench_server
from harness.usage import CpuOfChildren

_TABLE = "create table t (id bigint primary key, name text, amount numeric(12,2), at timestamptz)"
_CHANGES = {
    "inserted": "insert into t select n, 'name of row ' || n, n / 7.0, now() from generate_series(1, {rows}) n",
    "updated": "update t set amount = amount + 1",
    "deleted": "delete from t",
}


def main() -> None:
    """Parse arguments, change the table, measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--engine", default="auto")
    given = parser.parse_args()
    with bench_server() as (server, folder):
        site = Site(server, folder, "large")
        site.sql(_TABLE)
        site.auditlake("bootstrap")
        for what, change in _CHANGES.items():
            site.sql(change.format(rows=given.rows))
            print(_measured(site, "capture").line(f"capture, {given.rows:,} rows {what}"))
            print(_measured(site, "apply", "--engine", given.engine).line(f"apply, {given.rows:,} rows {what}"))


def _measured(site: Site, *arguments: str) -> Run:
    with CpuOfChildren() as cpu:
        run = site.auditlake(*arguments, "--until-current")
    return Run(run.seconds, cpu.seconds, run.peak_mb)


if __name__ == "__main__":
    main()
