"""A lake of many tables that consists of metadata only: real logs, and data files that exist in the logs alone.

The first table, `public.t0`, has no data files, so it can be read. Every table has one relation version, older than its
position, as after a change of each that has been applied.
"""

import json
import os
import time
from pathlib import Path

from auditlake.capture.change_log import CaptureLog
from auditlake.delta.log_entry import entry_name
from auditlake.delta.log_writer import added_file, moved, put_commit
from auditlake.lake.history import create_history
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.lake.manifest import Manifest, write_manifest
from auditlake.lake.records import record_publication
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.source.publication_membership import Member, Membership
from tests.damage import summed

_SNAPSHOT, _WATERMARK = Lsn(1_000), Lsn(50_000)
_TIME_US = 1_700_000_000_000_000
_FIRST_OID = 16_384
_COLUMNS = (
    Column("id", 23, -1, key=True, attnum=1),
    *(Column(f"c{number}", 25, -1, key=False, attnum=number) for number in range(2, 13)),
)


def make_metadata_lake(root: Path, tables: int, files: int) -> Lake:
    """Make the lake; `files` data files in each log."""
    root.mkdir(parents=True)
    lake = Lake(root)
    write_manifest(lake, Manifest("7000000000000000000", 1, "shop", "auditlake", "auditlake"))
    relations = [_relation(number) for number in range(tables)]
    log = CaptureLog(lake)
    log.start_at(Lsn(_SNAPSHOT + 101))
    for relation in relations:
        log.relations.register(relation, Lsn(_SNAPSHOT + 10))
    log.relations.flush()
    log.record_idle(_WATERMARK, _TIME_US + 1_000_000)
    members = {each.name: Member(each.oid, None) for each in relations}
    record_publication(lake, Membership(1, frozenset({"insert", "update", "delete", "truncate"}), members))
    entries = _first_table(lake, relations[0])
    for number, relation in enumerate(relations[1:], 1):
        texts = [_renamed(version, text, relations[0], relation) for version, text in enumerate(entries)]
        _write_log(lake.history(relation.name), [*texts, _files_entry(number, files)])
    return lake


def _relation(number: int) -> Relation:
    return Relation(_FIRST_OID + number, TableName("public", f"t{number}"), ReplicaIdentity.DEFAULT, _COLUMNS)


def _first_table(lake: Lake, relation: Relation) -> list[str]:
    """Create the table, and return the entries of its log."""
    create_history(lake, relation.name, _COLUMNS, relation.oid)
    path = lake.history(relation.name)
    positions = {HISTORY_APP: _SNAPSHOT + 100, SNAPSHOT_APP: _SNAPSHOT, SNAPSHOT_TIME_APP: _TIME_US}
    put_commit(path, 1, "WRITE", moved(positions))
    _make_old(path / "_delta_log")
    return [(path / "_delta_log" / f"{version:020}.json").read_text() for version in range(2)]


def _renamed(version: int, text: str, of: Relation, to: Relation) -> str:
    changed = text.replace(str(of.name), str(to.name)).replace(f'"{of.oid}"', f'"{to.oid}"')
    return summed(entry_name(version), map(json.loads, changed.splitlines())).decode()


def _files_entry(number: int, files: int) -> str:
    statistics = json.dumps({"numRecords": 1000, "minValues": {"id": 1}, "maxValues": {"id": 1000}})
    names = (f"part-{number}-{each}.parquet" for each in range(files))
    added = [added_file(name, {"_part": "open"}, 100_000, statistics) for name in names]
    return "".join(f"{json.dumps(action)}\n" for action in ({"commitInfo": {}}, *added))


def _write_log(path: Path, entries: list[str]) -> None:
    """Write a log that was complete an hour ago."""
    log = path / "_delta_log"
    log.mkdir(parents=True)
    for version, text in enumerate(entries):
        (log / f"{version:020}.json").write_text(text)
    _make_old(log)


def _make_old(log: Path) -> None:
    then_s = time.time() - 3600
    os.utime(log, (then_s, then_s))
