"""Status: the verdict, positions and lag of a lake, and charts of them.

Lag and slot are sampled whenever somebody looks at the status, so nothing asks the source while nobody does; the
samples of the last hours stay in memory. Growth is computed from `transactions`, sizes from the log of each history.
"""

import threading
import time
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from auditlake.audit.lake_reader import Reader
from auditlake.delta.data_files import list_any_files
from auditlake.serve import models
from auditlake.serve.moment_answers import At, moment
from auditlake.serve.readings import Readings
from auditlake.status import Status, as_json, judge, read_status

_SAMPLES = 2_000
_PARTS = 60
_FRESH_S = 2.0


@dataclass
class Samples:
    """Lag and slot at the times when somebody looked."""

    kept: deque[tuple[int, float | None, float | None, float | None, float]] = field(
        default_factory=lambda: deque(maxlen=_SAMPLES)
    )
    _last: Status | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, readings: Readings) -> Status:
        """Read the status, and keep a sample of it; at most once per `_FRESH_S`."""
        with self._lock:
            if self._last is None or time.time() - self._last.read_at_s > _FRESH_S:
                self._last = read_status(readings.lake, readings.source)
                self.kept.append(_sample(self._last))
            return self._last

    def charts(self) -> list[models.Chart]:
        """Return the samples as charts."""
        names = (
            ("lag", "bytes of WAL"),
            ("retained by the slot", "bytes of WAL"),
            ("age of the newest known moment", "seconds"),
            ("parked tables", "tables"),
        )
        times = [sample[0] for sample in self.kept]
        return [
            models.Chart(name=name, unit=unit, times_us=times, values=[_number(sample[at]) for sample in self.kept])
            for at, (name, unit) in enumerate(names, 1)
        ]


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def _sample(status: Status) -> tuple[int, float | None, float | None, float | None, float]:
    source = status.source
    slot = source.slot if source else None
    return (
        int(status.read_at_s * 1_000_000),
        source.lag_bytes if source else None,
        slot.retained_bytes if slot else None,
        status.current_age_s,
        float(sum(table.parked is not None and not table.parked.ended for table in status.tables)),
    )


class StatusAnswers:
    """Status with the samples of one server."""

    def __init__(self) -> None:
        self._samples = Samples()

    def status(self, readings: Readings, asked: At) -> models.StatusReport:
        """Return verdict, positions, lag and growth."""
        reader = readings.reader()
        status = self._samples.read(readings)
        verdict = judge(status)
        code, sentence, remedy = verdict.code, verdict.sentence, verdict.remedy
        if status.source is None and status.refusal is None:
            sentence = "this server has no source, so it shows what the lake knows, not the state of the slot"
            remedy = "Start auditlake serve with --source to see lag and slot."
        return models.StatusReport(
            at=moment(readings, reader, asked.at)[1],
            code=code,
            verdict=sentence,
            remedy=remedy,
            status=as_json(status),
            charts=[*_growth(reader), *self._samples.charts()],
            sizes=[_size(reader, name) for name in sorted(str(each) for each in reader.known.tables)],
        )


def _growth(reader: Reader) -> list[models.Chart]:
    """Return commits and changed rows over the life of the lake, in equal parts of time."""
    if reader.transactions is None:
        return []
    rows = reader.query(
        "select arrow_cast(time_mono, 'Int64') as t, coalesce(inserts, 0) as i, coalesce(updates, 0) as u,"
        f" coalesce(deletes, 0) as d from transactions where lsn <= {reader.watermark:d} order by lsn",
        transactions=reader.transactions,
    )
    if not rows.num_rows:
        return []
    times = rows["t"].to_numpy()
    edges = np.linspace(times[0], times[-1], _PARTS + 1)
    places = np.searchsorted(times, edges[1:], side="right")
    found = []
    for name, column in (("inserted rows", "i"), ("updated rows", "u"), ("deleted rows", "d")):
        sums = np.concatenate([[0], np.cumsum(rows[column].to_numpy().astype(np.int64))])[places]
        found.append(
            models.Chart(
                name=name,
                unit="since the beginning",
                times_us=[int(t) for t in edges[1:]],
                values=[float(s) for s in sums],
            )
        )
    return found


def _size(reader: Reader, name: str) -> models.TableSize:
    table = reader.table(name)
    files = list_any_files(table.path, table.delta_version)
    counted = all(file.is_counted for file in files)
    return models.TableSize(
        table=name,
        files=len(files),
        bytes=sum(file.size_bytes for file in files),
        versions=sum(file.rows for file in files) if counted else None,
    )
