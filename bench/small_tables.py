"""Bootstrap of many small tables: time per table.

python bench/small_tables.py [TABLES]    200 by default, of 100 rows each
"""

import sys

import psycopg
from deltalake import DeltaTable
from harness.site import Site, bench_server

from auditlake.lake.layout import Lake

_ROWS = 100


def main() -> None:
    """Create the tables and copy them."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with bench_server() as (server, folder):
        site = Site(server, folder, "small")
        with psycopg.connect(site.dsn) as conn:
            for number in range(count):
                conn.execute(f"create table t{number} (id int primary key, v text, n numeric(10,2))")
                conn.execute(f"insert into t{number} select n, md5(n::text), n from generate_series(1, {_ROWS}) n")
        one = site.auditlake("bootstrap", "--slot", "one", "--publication", "one", "--table", "public.t0")
        print(one.line("one table"))
        site.sql("select pg_drop_replication_slot('one')")
        lake = folder / "lake"
        every = site.auditlake("bootstrap", lake=lake)
        names = Lake(lake).history_names()
        copied = [DeltaTable(Lake(lake).history(name)).get_add_actions(flatten=True) for name in names]
        if [sum(actions["num_records"].to_pylist()) for actions in copied] != [_ROWS] * count:
            raise SystemExit("rows are missing")
        print(every.line(f"{count} tables", f"{every.seconds / count:.3f} s each, including start-up"))
        print(f"{'each further table':<58}{(every.seconds - one.seconds) / (count - 1):8.3f} s")


if __name__ == "__main__":
    main()
