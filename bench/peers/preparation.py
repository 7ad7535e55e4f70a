"""What a job needs before its contest: a loaded server or a lake, the digest of its rows, and the contenders.

A job that grows is a contest for each of several sizes. Its lesser jobs, such as `open`, are in no list of their own.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from harness.versions import Versions

from peers import as_of, copies, latency, source, streams
from peers.arena import Arena
from peers.contest import Contender
from peers.digest import Digest

_SMALL_TABLES, _TPCB_SCALE, _STEADY_S = 200, 20, 20
_CHANGES_AMONG, _OPEN_ROWS, _KEYS = 1000, 1_000_000, 100_000
_CLOSED_TIMES, _MONTHS = 10, 12
_STREAMS = {
    "tpcb": (100_000, "transactions"),
    "tpcb-standard": (100_000, "transactions"),
    "insert": (1_000_000, "rows in one transaction"),
    "commits": (500_000, "transactions of one row"),
    "one-key": (100_000, "changes of one key"),
}
_RATES = {"latency-100": (100.0, 100), "latency-500": (500.0, 500), "latency-most": (math.inf, 1500)}
"""Commits per second, and how many of them there are for each second of the job."""


@dataclass(frozen=True)
class Prepared:
    """A job that can begin: its size in words, what every result must equal, and what makes a larger size larger."""

    size: str
    expected: Digest | None
    contenders: Sequence[Contender]
    grown: int = 0


@dataclass(frozen=True)
class Growth:
    """A job at several sizes; `slow` contenders take no part in the last one."""

    of: str
    sizes: Sequence[float]
    slow: frozenset[str] = frozenset()


_ROW_BY_ROW = frozenset({"debezium", "debezium-delta", "dlt-replication"})
_TABLE_BY_TABLE = frozenset({"debezium", "debezium-delta", "dlt", "spark-jdbc"})
GROWTH = {
    "growth-rows": Growth("insert", (0.01, 0.1, 1, 10), _ROW_BY_ROW),
    "growth-tables": Growth("small-tables", (0.05, 0.5, 5, 50), _TABLE_BY_TABLE),
    "growth-open": Growth("open", (0.1, 1, 10)),
    "growth-closed": Growth("closed", (0, 1, 10, 100)),
    "growth-months": Growth("months", (1, 12, 60, 240)),
}


def prepare(arena: Arena, job: str, scale: float, size: float = 1) -> Prepared:
    """Make what a job needs; `size` is that of one contest of a job that grows."""
    return _PREPARATIONS[job](arena, scale, size)


def _stream(job: str, arena: Arena, scale: float, size: float) -> Prepared:
    most, what = _STREAMS[job]
    count = max(100, int(most * scale * size))
    stream = streams.Stream(arena, streams.loads(max(1, int(_TPCB_SCALE * scale)))[job], count)
    return Prepared(f"{count:,} {what}, {stream.events:,} changes", stream.digest, stream.contenders(), count)


def _among_open(arena: Arena, scale: float, size: float) -> Prepared:
    rows = max(_CHANGES_AMONG, int(_OPEN_ROWS * scale * size))
    stream = streams.Stream(arena, streams.updates(rows), _CHANGES_AMONG)
    keeping = [each for each in stream.contenders() if each.name in {"auditlake-follow", "subscription"}]
    return Prepared(f"{_CHANGES_AMONG:,} updates among {rows:,} rows", stream.digest, keeping, rows)


def _closed(arena: Arena, scale: float, size: float) -> Prepared:
    return _over_versions(arena, scale, int(size), _MONTHS, 1 + int(size))


def _months(arena: Arena, scale: float, size: float) -> Prepared:
    return _over_versions(arena, scale, _CLOSED_TIMES, int(size), int(size))


def _over_versions(arena: Arena, scale: float, times: int, months: int, grown: int) -> Prepared:
    keys = max(100, int(_KEYS * scale))
    past = as_of.of_versions(arena, Versions(keys, times * keys, months))
    words = f"{keys:,} rows, {times * keys:,} closed versions in {months} months"
    return Prepared(words, past.answers, past.contenders(), grown)


def _latency(job: str, arena: Arena, scale: float, _: float) -> Prepared:
    rate, each_s = _RATES[job]
    count = int(each_s * max(3.0, _STEADY_S * scale))
    return Prepared(f"{count:,} single inserts", None, latency.contenders(arena, rate, count))


def _source(arena: Arena, scale: float, _: float) -> Prepared:
    seconds = max(3.0, _STEADY_S * scale)
    words = f"{seconds:.0f} s of TPC-B at scale 10, four clients"
    return Prepared(words, None, source.contenders(arena, seconds))


def _as_of(arena: Arena, scale: float, _: float) -> Prepared:
    past = as_of.of_tpch(arena, scale)
    return Prepared(f"TPC-H at scale factor {scale:g}", past.answers, past.contenders())


def _tpch(tables: Sequence[str], arena: Arena, scale: float, _: float) -> Prepared:
    return _copy(copies.load_tpch(arena, scale, tables))


def _small_tables(arena: Arena, scale: float, size: float) -> Prepared:
    return _copy(copies.load_small(arena, max(2, int(_SMALL_TABLES * scale * size))))


def _copy(loaded: copies.Source) -> Prepared:
    digest, tables = loaded.digest, len(loaded.tables)
    rows = f"{digest.rows:,} rows"
    words = f"{tables:,} tables, {rows}" if tables > 1 else rows
    return Prepared(words, digest, copies.contenders(loaded), tables)


_PREPARATIONS: dict[str, Callable[[Arena, float, float], Prepared]] = {
    **{job: partial(_stream, job) for job in _STREAMS},
    **{job: partial(_latency, job) for job in _RATES},
    "open": _among_open,
    "closed": _closed,
    "months": _months,
    "source": _source,
    "as-of": _as_of,
    "lineitem": partial(_tpch, ("lineitem",)),
    "tpch": partial(_tpch, copies.TPCH),
    "small-tables": _small_tables,
}
