"""Check the files of a lake that everything else is read through: Delta logs, and JSON records.

`check_logs` checks the log of each table (`delta.log_check`). `check_records` reads each record as its readers do. Data
files and deletion vectors are checked by `delta.data_files`.

Not found is what leaves a lake as it could be: a table's last entry is lost, a record is deleted that not every lake
has (of a parked table, for example), or holds another valid value. `histories.json` and `_last_checkpoint` are hints,
without which readers only take longer.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from auditlake.capture.ddl_recorder import read_trigger_record
from auditlake.capture.partition_watch import read_partitions
from auditlake.delta.data_files import FileProblem
from auditlake.delta.log_check import log_problems
from auditlake.errors import LakeUnusable
from auditlake.lake.erasures import read_erasures
from auditlake.lake.expiries import read_runs
from auditlake.lake.holds import read_events
from auditlake.lake.layout import Lake
from auditlake.lake.parking import read_records
from auditlake.lake.records import read_capture_state, read_last_batch, read_recorded, read_shape
from auditlake.schema.catalog_snapshot import read_catalog_snapshot
from auditlake.store.place import Place
from auditlake.verify.report import Finding, TableReport


def check_logs(lake: Lake) -> Iterator[TableReport]:
    """Check the logs of all tables; report only damaged ones."""
    for name, place in tables_of(lake):
        if problems := log_problems(place):
            yield replace(report_of(name, problems), lost=True)


def report_of(name: str, problems: Iterable[FileProblem], limit: int | None = None) -> TableReport:
    """Return the report of a table whose files have problems."""
    findings = [Finding(problem.kind, file=problem.file, detail=problem.detail) for problem in problems]
    return TableReport(name).with_findings(findings, len(findings) if limit is None else limit)


def tables_of(lake: Lake) -> Iterator[tuple[str, Place]]:
    """Yield the Delta tables of a lake: its own, those of the ledger, and the histories."""
    for place in (*lake.own_tables, *lake.ledger_tables):
        if place.is_dir():
            yield (place.name if place.parent == lake.root else f"ledger/{place.name}"), place
    for name in lake.history_names():
        yield str(name), lake.history(name)


def check_records(lake: Lake) -> Iterator[TableReport]:
    """Read all records; report those that cannot be read, or are missing."""
    for name, read in _records(lake):
        try:
            read()
        except LakeUnusable as exc:
            yield TableReport(name, findings=(Finding("record", detail=exc.message),), lost=True)


def _records(lake: Lake) -> Iterator[tuple[str, Callable[[], object]]]:
    yield "capture.json", lambda: read_capture_state(lake)
    yield "apply.json", lambda: read_last_batch(lake)
    yield "publication.json", lambda: _read_publication(lake)
    yield "ddl_trigger.json", lambda: read_trigger_record(lake)
    yield "holds", lambda: read_events(lake)
    yield "expiries", lambda: read_runs(lake)
    yield "erasures", lambda: read_erasures(lake)
    yield "parked", lambda: read_records(lake)
    yield "partitions", lambda: [read_partitions(lake, name) for name in lake.partitioned_names()]
    yield "shapes", lambda: [read_shape(lake, name) for name in lake.shape_names()]
    yield "looks", lambda: [read_catalog_snapshot(lake, name) for name in lake.history_names()]


def _read_publication(lake: Lake) -> None:
    if read_recorded(lake) is None and lake.shape_names():
        raise LakeUnusable(f"{lake.publication} is missing")
