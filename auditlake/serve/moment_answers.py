"""Moments and the timeline: which LSN a request means, the density of commits, and the commit next to another."""

from importlib.metadata import version

from pydantic import Field

from auditlake.audit.lake_reader import Reader
from auditlake.errors import NotAnswerable
from auditlake.lake.manifest import require_manifest
from auditlake.lsn import Lsn
from auditlake.serve import models
from auditlake.serve.readings import Readings, as_lsn
from auditlake.temporal.when import format_us


class At(models.Model):
    """A moment: WHEN as on the command line; now by default."""

    at: str | None = Field(
        default=None, description="The moment: an LSN, a time, xid:N, -2h; now by default.", max_length=200
    )


def moment(readings: Readings, reader: Reader, at: str | None) -> tuple[Lsn, models.Moment]:
    """Resolve a moment.

    Raises BadUsage, NotAnswerable.
    """
    lsn = reader.moment(at)
    return lsn, moment_at(readings, reader, lsn, is_now=at is None or at.strip().lower() == "now")


def moment_at(readings: Readings, reader: Reader, lsn: Lsn, *, is_now: bool = False) -> models.Moment:
    """Describe the moment at an LSN."""
    timeline = readings.timeline
    time_us = timeline.time_us(lsn)
    return models.Moment(
        lsn=str(lsn),
        time=None if time_us is None else format_us(time_us),
        commit=timeline.number(lsn),
        commits=timeline.number(reader.watermark),
        is_now=is_now,
    )


def lake_info(readings: Readings, asked: At) -> models.LakeInfo:
    """Return what the lake holds."""
    reader = readings.reader(asked.at)
    names = sorted(str(name) for name in reader.known.tables)
    return models.LakeInfo(
        at=moment(readings, reader, asked.at)[1],
        database=require_manifest(readings.lake).database,
        version=version("auditlake"),
        tables=names,
        horizon=str(Lsn(min(table.horizon for table in reader.known.tables.values()))),
    )


class Period(models.Model):
    """A period of the density chart; by default from the first commit to the last."""

    from_us: int | None = Field(default=None, description="Begin, in microseconds since 1970.", ge=-(2**62), le=2**62)
    to_us: int | None = Field(default=None, description="End, exclusive.", ge=-(2**62), le=2**62)
    bars: int = Field(default=200, ge=1, le=2000, description="The number of parts.")


def timeline(readings: Readings, asked: Period) -> models.Timeline:
    """Return the number of commits in equal parts of a period."""
    readings.reader()
    commits = readings.timeline
    first, last = commits.commit(1), commits.commit(commits.count)
    begin = asked.from_us if asked.from_us is not None else first[1] if first else 0
    end = asked.to_us if asked.to_us is not None else last[1] + 1 if last else 1
    if end <= begin:
        raise NotAnswerable("the period is empty: from_us is not before to_us", "Ask for a longer one.")
    bars = commits.bars(begin, end, asked.bars)
    return models.Timeline(
        first_us=first[1] if first else None,
        last_us=last[1] if last else None,
        from_us=begin,
        to_us=end,
        commits=sum(bar.commits for bar in bars),
        bars=[
            models.Bar(
                from_us=bar.from_us, to_us=bar.to_us, commits=bar.commits, lsn=None if bar.lsn is None else str(bar.lsn)
            )
            for bar in bars
        ],
    )


class Step(models.Model):
    """A commit relative to another, by its number, or by time."""

    at: str | None = Field(default=None, description="The LSN to start from; now by default.", max_length=50)
    by: int = Field(default=0, description="How many commits later; negative: earlier.", ge=-(2**40), le=2**40)
    number: int | None = Field(
        default=None, description="Or: the commit with this number, from 1.", ge=-(2**40), le=2**40
    )
    time_us: int | None = Field(
        default=None, description="Or: the last commit at or before this time.", ge=-(2**62), le=2**62
    )


def step(readings: Readings, asked: Step) -> models.Commit:
    """Return a commit: the first or the last if the step would leave the lake."""
    reader = readings.reader(asked.at)
    commits = readings.timeline
    if asked.time_us is not None:
        found = commits.at_time(asked.time_us)
        number = 1 if found is None else commits.number(found[0])
    elif asked.number is not None:
        number = asked.number
    else:
        number = commits.number(reader.watermark if asked.at is None else as_lsn(asked.at)) + asked.by
    number = min(max(number, 1), commits.count)
    commit = commits.commit(number)
    if commit is None:
        raise NotAnswerable("the lake has no transaction yet", "Run auditlake follow.")
    return models.Commit(number=number, lsn=str(commit[0]), time=format_us(commit[1]), time_us=commit[1])
