"""Answers about the lake: moments, the timeline of commits, and the status.

A moment is the LSN that a request means; the timeline is the density of commits, and the commit next to another.

The status is the verdict, positions and lag of a lake, and charts of them. Lag and slot are sampled when the
status is requested, and never otherwise, so an idle page does not query the source; the samples of the last hours stay
in memory. Growth is computed from `transactions`, sizes from the log of each history.
"""

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from importlib.metadata import version

import numpy as np
from pydantic import Field

from auditlake.audit.lake_reader import Reader
from auditlake.delta.data_files import list_any_files
from auditlake.delta.sql import select
from auditlake.errors import NotAnswerable
from auditlake.lake.history import HistoryTable
from auditlake.lake.manifest import require_manifest
from auditlake.lsn import Lsn
from auditlake.serve import models
from auditlake.serve.resources import Resources, as_lsn
from auditlake.serve.timeline import CommitIndex
from auditlake.status import Status, as_json, judge, judge_tables, read_status
from auditlake.temporal.when import format_us

_SAMPLES = 2_000
_PARTS = 60
_MOST_UNKNOWN = 200
"""Every page has them, and thousands of tables may be parked."""
_FRESH_S = 2.0


class At(models.Model):
    """A moment: WHEN as on the command line; now by default."""

    at: str | None = Field(
        default=None, description="The moment: an LSN, a time, xid:N, -2h; now by default.", max_length=200
    )


def moment(resources: Resources, reader: Reader, at: str | None) -> tuple[Lsn, models.MomentJson]:
    """Resolve a moment; raises BadUsage, NotAnswerable."""
    lsn = reader.moment(at)
    return lsn, moment_at(resources, reader, lsn, is_now=at is None or at.strip().lower() == "now")


def moment_at(resources: Resources, reader: Reader, lsn: Lsn, *, is_now: bool = False) -> models.MomentJson:
    """Describe the moment at an LSN."""
    timeline = resources.timeline
    time_us = timeline.time_us(lsn)
    return models.MomentJson(
        lsn=str(lsn),
        time=None if time_us is None else format_us(time_us),
        commit=timeline.number(lsn),
        commits=timeline.number(reader.watermark),
        is_now=is_now,
    )


def lake_info(resources: Resources, asked: At) -> models.LakeInfoJson:
    """Return what the lake holds."""
    reader = resources.reader(asked.at)
    lsn, at = moment(resources, reader, asked.at)
    return models.LakeInfoJson(
        at=at,
        database=require_manifest(resources.lake).database,
        version=version("auditlake"),
        tables=sorted(map(str, reader.known.tables_at(lsn))),
        horizon=str(reader.known.horizon),
    )


class ChartPeriod(models.Model):
    """A period of the density chart; by default from the first commit to the last."""

    from_us: int | None = Field(default=None, description="Begin, in microseconds since 1970.", ge=-(2**62), le=2**62)
    to_us: int | None = Field(default=None, description="End, exclusive.", ge=-(2**62), le=2**62)
    bars: int = Field(default=200, ge=1, le=2000, description="The number of parts.")
    table: str | None = Field(default=None, description="Unknown stretches of this table alone.", max_length=300)


def timeline(resources: Resources, asked: ChartPeriod) -> models.TimelineJson:
    """Return the number of commits in equal parts of a period, and the stretches in which changes are unknown."""
    reader = resources.reader()
    commits = resources.timeline
    first, last = commits.commit(1), commits.commit(commits.count)
    begin = asked.from_us if asked.from_us is not None else first[1] if first else 0
    end = asked.to_us if asked.to_us is not None else last[1] + 1 if last else 1
    if end <= begin:
        raise NotAnswerable("the period is empty: from_us is not before to_us", "Ask for a longer one.")
    bars = commits.bars(begin, end, asked.bars)
    stretches = list(_unknown(reader, commits, None if asked.table is None else reader.table(asked.table)))
    return models.TimelineJson(
        first_us=first[1] if first else None,
        last_us=last[1] if last else None,
        from_us=begin,
        to_us=end,
        commits=sum(bar.commits for bar in bars),
        bars=bars,
        unknown=stretches[:_MOST_UNKNOWN],
        unknown_count=len(stretches),
    )


def _unknown(reader: Reader, commits: CommitIndex, table: HistoryTable | None) -> Iterator[models.StretchJson]:
    """Yield the gaps and parkings of a table, or of all, in order."""
    for each in sorted(reader.known.unknown(table), key=lambda each: each.after):
        of_table = None if each.table is None else reader.known.tables.get(each.table)
        yield models.StretchJson(
            table=None if of_table is None else str(of_table.last_name),
            lsn=str(each.after),
            to_lsn=None if each.upto is None else str(each.upto),
            from_us=each.from_us or commits.time_us(each.after),
            to_us=None if each.upto is None else each.to_us or commits.time_us(each.upto),
            reason=each.reason,
        )


class OtherCommit(models.Model):
    """A commit relative to another, by its number, or by time."""

    at: str | None = Field(default=None, description="The LSN to start from; now by default.", max_length=50)
    by: int = Field(default=0, description="How many commits later; negative: earlier.", ge=-(2**40), le=2**40)
    number: int | None = Field(
        default=None, description="Or: the commit with this number, from 1.", ge=-(2**40), le=2**40
    )
    time_us: int | None = Field(
        default=None, description="Or: the last commit at or before this time.", ge=-(2**62), le=2**62
    )


def step(resources: Resources, asked: OtherCommit) -> models.CommitJson:
    """Return a commit, or the beginning of the lake before it; the first or the last if the step would leave it."""
    reader = resources.reader(asked.at)
    commits = resources.timeline
    if asked.time_us is not None:
        found = commits.at_time(asked.time_us)
        number = 0 if found is None else commits.number(found[0])
    elif asked.number is not None:
        number = asked.number
    else:
        number = commits.number(reader.watermark if asked.at is None else as_lsn(asked.at)) + asked.by
    first = commits.commit(1)
    if first is None:
        raise NotAnswerable("the lake has no transaction yet", "Run auditlake follow.")
    begin = reader.known.horizon
    if number < 1 and begin < first[0]:
        return models.CommitJson(number=0, lsn=str(begin), time=None, time_us=first[1])
    number = min(max(number, 1), commits.count)
    commit = commits.commit(number) or first
    return models.CommitJson(number=number, lsn=str(commit[0]), time=format_us(commit[1]), time_us=commit[1])


_Sample = tuple[int, tuple[float | None, ...]]
"""A time in microseconds since 1970, and the value of each chart then."""
_CHARTS = (
    ("lag", "bytes of WAL"),
    ("retained by the slot", "bytes of WAL"),
    ("age of the newest known moment", "seconds"),
    ("parked tables", "tables"),
)


def _sample(status: Status) -> _Sample:
    lag = status.source.lag_bytes if status.source else None
    retained = status.source.slot.retained_bytes if status.source and status.source.slot else None
    numbers = (lag, retained, status.current_age_s, len(status.parked))
    values = tuple(None if number is None else float(number) for number in numbers)
    return int(status.read_at_s * 1_000_000), values


def _charts(samples: Sequence[_Sample]) -> Iterator[models.ChartJson]:
    times = [time_us for time_us, _ in samples]
    for place, (name, unit) in enumerate(_CHARTS):
        values = [values[place] for _, values in samples]
        yield models.ChartJson(name=name, unit=unit, times_us=times, values=values)


class StatusAnswers:
    """Status with the samples of one server, of the times of the last requests for it."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=_SAMPLES)
        self._last: Status | None = None
        self._read_at = 0.0
        self._lock = threading.Lock()

    def _read(self, resources: Resources) -> tuple[Status, tuple[_Sample, ...]]:
        """Return the status and all samples, the last of this status; it is read at most once per `_FRESH_S`."""
        with self._lock:
            if self._last is None or time.monotonic() - self._read_at > _FRESH_S:
                self._last = read_status(resources.lake, resources.source)
                self._read_at = time.monotonic()
                self._samples.append(_sample(self._last))
            return self._last, tuple(self._samples)

    def status(self, resources: Resources, asked: At) -> models.StatusReportJson:
        """Return verdict, positions, lag and growth; for some tables alone, theirs without lag and growth."""
        reader = resources.reader()
        status, samples = self._read(resources)
        at = moment(resources, reader, asked.at)[1]
        sizes = [_size(table) for _, table in sorted(reader.known.tables.items())]
        if reader.known.only is not None:
            status = status.of_tables(reader.known.only)
            found = judge_tables(status)
            remedy = "Ask who runs this server." if found.code else None
            shown = as_json(status) | {"source_problem": None}
            return models.StatusReportJson(
                at=at, code=found.code, verdict=found.sentence, remedy=remedy, status=shown, charts=[], sizes=sizes
            )
        verdict = judge(status)
        code, sentence, remedy = verdict.code, verdict.sentence, verdict.remedy
        if status.source is None and status.refusal is None:
            sentence = "this server has no source, so it shows what the lake knows, not the state of the slot"
            remedy = "Start auditlake serve with --source to see lag and slot."
        return models.StatusReportJson(
            at=at,
            code=code,
            verdict=sentence,
            remedy=remedy,
            status=as_json(status),
            charts=[*_growth(reader), *_charts(samples)],
            sizes=sizes,
        )


def _growth(reader: Reader) -> list[models.ChartJson]:
    """Return commits and changed rows over the life of the lake, in equal parts of time."""
    if reader.transactions is None:
        return []
    rows = select(
        "select epoch_us(time_mono) as t, coalesce(inserts, 0) as i, coalesce(updates, 0) as u,"
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
            models.ChartJson(
                name=name,
                unit="since the beginning",
                times_us=[int(t) for t in edges[1:]],
                values=[float(s) for s in sums],
            )
        )
    return found


def _size(table: HistoryTable) -> models.TableSizeJson:
    files = list_any_files(table.path, table.delta_version)
    counted = all(file.is_counted for file in files)
    return models.TableSizeJson(
        table=str(table.last_name),
        history=str(table.name),
        files=len(files),
        bytes=sum(file.size_bytes for file in files),
        versions=sum(file.rows for file in files) if counted else None,
    )
