"""A subscription of PostgreSQL's own to a database's changes, as the peer of `follow`.

It has a database of its own on the same server, with the same rows. Its time ends when the server has received its
confirmation of all changes; its CPU-seconds are those of its apply worker and its walsender.
"""

import time
from pathlib import Path

import psycopg

from harness.site import Run, Site
from harness.usage import used_by

_POLL_S = 0.05
_WORKERS = """
select array_agg(pid) from pg_stat_activity
where backend_type like 'logical replication%worker' or (backend_type = 'walsender' and application_name = 'native')
"""


def load(site: Site, transactions: int, clients: int = 4) -> None:
    """Run TPC-B on the site's database, whose changes then wait in both slots."""
    site.tool("pgbench", "-n", "-c", str(clients), "-t", str(transactions // clients), site.name)


def subscribe(site: Site) -> str:
    """Copy the database and create a subscription to ours in the copy, not enabled yet."""
    name = f"{site.name}_native"
    with psycopg.connect(site.server.dsn(), autocommit=True) as conn:
        conn.execute(f'create database "{name}" template "{site.name}"')
    site.sql("select pg_create_logical_replication_slot('native', 'pgoutput')")
    with psycopg.connect(site.server.dsn(name), autocommit=True) as conn:
        conn.execute("drop publication if exists auditlake")
        conn.execute(
            f"create subscription native connection '{site.dsn}' publication auditlake with "
            "(create_slot = false, slot_name = 'native', copy_data = false, enabled = false)"
        )
    return name


def run_subscription(site: Site, name: str) -> Run:
    """Let it apply all changes made so far."""
    until = site.sql("select pg_current_wal_insert_lsn()")
    begun_s = time.monotonic()
    with psycopg.connect(site.server.dsn(name), autocommit=True) as conn:
        conn.execute("alter subscription native enable")
        used = (0.0, 0.0)
        confirmed = f"select confirmed_flush_lsn >= '{until}' from pg_replication_slots where slot_name = 'native'"
        while site.sql(confirmed) != "True":
            row = conn.execute(_WORKERS).fetchone()
            if row and row[0]:
                used = used_by(Path(f"/proc/{pid}") for pid in row[0])
            time.sleep(_POLL_S)
        seconds = time.monotonic() - begun_s
        conn.execute("alter subscription native disable")
    return Run(seconds, *used)


def unsubscribe(site: Site, name: str) -> None:
    """Drop the subscription and its slot."""
    with psycopg.connect(site.server.dsn(name), autocommit=True) as conn:
        conn.execute("drop subscription native")
