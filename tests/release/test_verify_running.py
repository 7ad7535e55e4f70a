"""`verify` while sessions write, capture appends and apply commits."""

from contextlib import closing
from threading import Event, Thread
from typing import TYPE_CHECKING

import psycopg
import pytest

from auditlake.apply.apply import apply_pending
from tests.spark.test_verify import CHANGES, Site, site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["site"]

pytestmark = [pytest.mark.pg, pytest.mark.spark]


def test_an_intact_lake_is_equal_while_both_sides_change(site: Site, spark: "SparkSession") -> None:
    """Sessions write, capture appends, apply merges between two runs, a column is added: all tables are equal."""
    tables = ("--table", "kinds", "--table", "events", "--table", "public.part*")
    stop, runs = Event(), []

    def write() -> None:
        for number in range(30):
            site.execute(CHANGES.format(number))
            if stop.wait(0.1):
                return

    writer = Thread(target=write)
    writer.start()
    try:
        runs.append(site.verify(*tables))
        site.captured()
        apply_pending(lambda: spark, site.lake)
        site.execute("alter table parts add w int default 7; update parts set v = 'w' where id = 3")
        site.captured()
        runs.append(site.verify(*tables))
    finally:
        stop.set()
        writer.join()
    for done in runs:
        assert (done.code, done.stdout.count(" equal ")) == (0, 3), done.stdout + done.stderr
    assert "3 tables with the source at " in runs[0].stderr
    with closing(psycopg.connect(site.dsn)) as conn:
        assert conn.execute("select count(*) from pg_replication_slots").fetchone() == (1,)
