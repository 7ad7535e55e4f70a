"""A new snapshot of a table against its first copy: `auditlake resync` and `auditlake bootstrap` of the same rows.

    python bench/new_snapshot.py [--rows 2000000]

Each command is measured from the start of its process; its CPU time includes the workers. A resync
copies the table as bootstrap does, then compares the copy with the open versions. It is run after no change, after a
change of every hundredth row, and after a change of every row, each without row messages. For comparison: the same
resync of an empty table, which is what its process and the slot take.
"""

import argparse

from harness.site import Run, Site, bench_server
from harness.usage import CpuOfChildren

_SCHEMA = """
create table accounts (id bigint primary key, branch int not null, balance numeric(15,2) not null, opened date not null,
  kind char(10) not null, note varchar(60) not null);
insert into accounts select n, n % 100, n * 0.07, date '2026-01-01' + (n % 900)::int, 'kind ' || n % 7,
  'a note of about forty characters, ' || n from generate_series(1, {rows}) n;
create table nothing (id int primary key);
vacuum (analyze, freeze) accounts
"""
_SILENT = "alter table accounts set unlogged; {}; alter table accounts set logged"
_CHANGES = {
    "nothing changed": "",
    "every hundredth row changed": _SILENT.format("update accounts set balance = balance + 1 where id % 100 = 0"),
    "every row changed": _SILENT.format("update accounts set balance = balance + 1"),
}


def main() -> None:
    """Load the table, copy it, then take a new snapshot after each change."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    rows = parser.parse_args().rows
    with bench_server() as (server, folder):
        site = Site(server, folder, "snapshots")
        site.sql("create publication auditlake for all tables")
        for statement in _SCHEMA.format(rows=rows).split(";"):
            site.sql(statement)
        first = _measure(site, "auditlake bootstrap", rows, "bootstrap")
        _measure(site, "auditlake resync, empty table", 0, "resync", "--table", "public.nothing")
        for what, change in _CHANGES.items():
            for statement in filter(None, change.split("; ")):
                site.sql(statement)
            run = _measure(site, f"auditlake resync, {what}", rows, "resync", "--table", "public.accounts")
            print(f"    {run.seconds / first.seconds:.2f} x the first copy")


def _measure(site: Site, what: str, rows: int, *arguments: str) -> Run:
    with CpuOfChildren() as cpu:
        run = site.auditlake(*arguments)
    print(
        run.line(
            what, f"{cpu.seconds:.1f} CPU-s with its children" + (f", {rows / run.seconds:,.0f} rows/s" if rows else "")
        )
    )
    return run


if __name__ == "__main__":
    main()
