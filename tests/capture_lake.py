"""A lake made without a JVM: as `bootstrap` makes it of tables that are empty, so that there is nothing to copy."""

from collections.abc import Container
from contextlib import closing
from pathlib import Path

from auditlake.capture.change_log import CaptureLog
from auditlake.capture.preconditions import current_manifest
from auditlake.capture.shape_watch import record_shapes
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import write_manifest
from auditlake.schema.catalog_snapshot import save_first_snapshots
from auditlake.snapshot.ctid_ranges import SnapshotMark
from auditlake.snapshot.scheduler import begin_table, commit_table
from auditlake.source.catalog import read_sizes, read_tables
from auditlake.source.connection import connect, connect_replication
from auditlake.source.publication import create_publication
from auditlake.source.server import wal_end
from auditlake.source.slot import Waiting, create_slot
from tests.s3_server import chosen_lake


def make_lake(  # noqa: PLR0913 - each has a default
    dsn: str,
    root: Path,
    without: Container[str] = (),
    *,
    copied: bool = True,
    name: str = "auditlake",
    lsn_offset: int = 0,
) -> Lake:
    """Make publication and slot, and the lake with a history of every table but those, all of them empty.

    Unless `copied`, only the log is made, and the tables may hold rows.
    """
    lake = chosen_lake(root)
    with connect(dsn, lsn_offset) as control:
        tables = [table for table in read_tables(control) if table.name.table not in without]
        write_manifest(lake, current_manifest(control, name, name))
        create_publication(control, name, [table.name for table in tables])
        oids = {table.name: table.relation.oid for table in tables}
        save_first_snapshots(control, lake, oids)
        record_shapes(control, lake, oids)
        with closing(connect_replication(dsn)) as replication:
            created = create_slot(replication, control, name, temporary=False, waiting=Waiting(60))
        mark = SnapshotMark(created.snapshot_lsn, wal_end(control).time_us)
        CaptureLog(lake).start_at(created.consistent_point)
        sizes = read_sizes(control, [table.relation.oid for table in tables])
        for table in tables if copied else []:
            assert sizes[table.relation.oid].pages == 0
            commit_table(begin_table(lake, table.name, table.relation.columns, table.relation.oid), [], mark)
    return lake
