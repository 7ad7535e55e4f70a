"""All stages under pgbench's TPC-B-like load: bootstrap, capture, follow, a query; seconds, CPU-seconds, memory.

    python bench/tpcb.py [--scale 20] [--transactions 100000]

Each step is a process of its own, start-up included. pgbench_history gets a primary key, because it has none.
`capture.py` compares capture with pg_recvlogical.
"""

import argparse

from harness.site import Site, bench_server

_CLIENTS = 4


def _run(site: Site, scale: int, transactions: int) -> None:
    site.load_tpcb(scale)
    rows = 100_011 * scale
    copied = site.auditlake("bootstrap")
    print(copied.line(f"bootstrap, pgbench scale {scale}", f"{rows / copied.seconds:,.0f} rows/s"))
    site.tool("pgbench", "-n", "-c", str(_CLIENTS), "-t", str(transactions // _CLIENTS), site.name)
    print(site.auditlake("capture", "--until-current").line(f"capture: {transactions:,} transactions"))
    print(site.auditlake("follow", "--until-current").line("follow: fresh JVM, all of them into history"))
    question = "select count(*), sum(abalance) from public.pgbench_accounts"
    print(site.auditlake("sql", question).line("sql: fresh JVM, count and sum of accounts"))


def main() -> None:
    """Parse arguments, set up, measure, clean up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--transactions", type=int, default=100_000)
    arguments = parser.parse_args()
    with bench_server() as (server, folder):
        _run(Site(server, folder, "tpcb"), arguments.scale, arguments.transactions)


if __name__ == "__main__":
    main()
