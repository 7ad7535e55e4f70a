"""Exposition: the metrics of a process in Prometheus's and OpenMetrics' text formats.

1. Everything is in memory: a scrape shows counters, and facts that `readings` has read, so it waits for nothing.
2. A gauge whose fact is unknown is absent. A loop's last run and the moments that a stage has reached are timestamps,
   not ages: an age that is not written any more looks young for ever.
3. A counter is exported with all its labels from the start, with 0, so that its first increase is an increase.
4. No label has a value from the source or the lake, except `auditlake_lake_info`, which has one series.

Authority: prometheus.io/docs/practices/naming; github.com/prometheus/OpenMetrics
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from auditlake.counters import Beat, Counter, Mark, read_beats, read_counts, read_marks
from auditlake.lake.parking import Cause
from auditlake.metrics.children import children_bytes
from auditlake.metrics.facts import ENDED, FOLLOWED, PARKED, LakeFacts, SlotFacts

_CAPTURE, _APPLY = frozenset({Beat.CAPTURE}), frozenset({Beat.APPLY})
_SERVE, _WEBHOOK = frozenset({Beat.SERVE}), frozenset({Beat.WEBHOOK})
_ALL = frozenset(Beat)
_EVERYTHING = "Everything captured by this moment"
_WAL_STATUSES = ("reserved", "extended", "unreserved", "lost")
_CAPTURE_STATES = ("running", "trying again", "ended")


@dataclass(frozen=True, slots=True)
class Exported:
    """A counter as processes that run one of the stages export it; `labels` has all values of its label `label`."""

    counter: Counter
    documentation: str
    stages: frozenset[Beat]
    label: str | None = None
    labels: Sequence[str] = ("",)


_ENGINE = "engine", ("duckdb", "spark")
_ENGINE_OR_AUDIT = "engine", ("audit", "duckdb", "spark")
_STAGE = "stage", ("capture", "apply")
_CAUSE = "cause", ("source", "commit", "store")
_OPERATION = "operation", ("get", "head", "list", "put", "copy", "delete")
_OUTCOME = "outcome", ("received", "failed")
_REQUESTS = "Requests of this process to an object store; those of deltalake and Spark are not among them."
COUNTERS = (
    Exported(Counter.CAPTURED_TRANSACTIONS, "Transactions made durable in changes.", _CAPTURE),
    Exported(Counter.CAPTURED_CHANGES, "Changes made durable in changes.", _CAPTURE),
    Exported(Counter.APPLIED_BATCHES, "Tails folded and committed to a history.", _APPLY, *_ENGINE),
    Exported(Counter.APPLIED_SECONDS, "Seconds of folding and committing tails.", _APPLY, *_ENGINE),
    Exported(Counter.APPLIED_CHANGES, "Changes folded into histories.", _APPLY, *_ENGINE),
    Exported(Counter.COMMITS, "Commits with a position, to changes or to a history.", _CAPTURE | _APPLY, *_STAGE),
    Exported(
        Counter.RETRIES,
        "Attempts repeated after a lost source, a conflicting commit or a lost reply.",
        _CAPTURE | _APPLY | _SERVE,
        *_CAUSE,
    ),
    Exported(Counter.STORE_REQUESTS, _REQUESTS, _ALL, *_OPERATION),
    Exported(Counter.QUESTIONS, "Questions answered: SQL by engine, and audit questions.", _SERVE, *_ENGINE_OR_AUDIT),
    Exported(Counter.QUESTION_SECONDS, "Seconds of answering questions.", _SERVE, *_ENGINE_OR_AUDIT),
    Exported(Counter.REFUSED_QUESTIONS, "Questions refused: too many, or too slow.", _SERVE),
    Exported(Counter.DELIVERED_TRANSACTIONS, "Transactions that the receiver has.", _WEBHOOK),
    Exported(Counter.DELIVERY_ATTEMPTS, "Requests to the receiver.", _WEBHOOK, *_OUTCOME),
)

_MARKS = (
    (Mark.APPLIED_TIME, Beat.APPLY, "applied_timestamp_seconds", f"{_EVERYTHING} is in the histories."),
    (Mark.DELIVERED_TIME, Beat.WEBHOOK, "delivered_timestamp_seconds", f"{_EVERYTHING} was received."),
    (Mark.SEALED_TIME, Beat.CAPTURE, "sealed_timestamp_seconds", f"{_EVERYTHING} is sealed."),
    (Mark.SEALED_LSN, Beat.CAPTURE, "sealed_lsn", "Commit LSN up to which the ledger is sealed, in bytes."),
    (Mark.DIGEST_TIME, Beat.CAPTURE, "digest_timestamp_seconds", "A digest names everything captured by this moment."),
    (Mark.DIGEST_INTERVAL_S, Beat.CAPTURE, "digest_interval_seconds", "How often a digest is kept."),
)


@dataclass(frozen=True, slots=True)
class Sources:
    """What is exported: the stages of this process, and how to get the facts that it reads, None if it does not."""

    stages: frozenset[Beat]
    lake: Callable[[], LakeFacts | None] | None = None
    slot: Callable[[], SlotFacts | None] | None = None


def make_registry(sources: Sources) -> CollectorRegistry:
    """Return a registry with our metrics, and those of process, Python and garbage collection."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in (Measurements(sources), PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
        registry.register(collector)
    return registry


def exposed(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """Return the metrics in the format that an Accept header asks for, and their content type."""
    try:
        encode, content_type = choose_encoder(accept)
    except (TypeError, ValueError):  # it has a version that is none
        encode, content_type = choose_encoder("")
    return encode(registry), content_type


class Measurements(Collector):
    """Our metrics, computed for each scrape."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        yield InfoMetricFamily("auditlake_build", "Version of auditlake.", value={"version": version("auditlake")})
        yield _gauge("children_resident_memory_bytes", "Memory of the JVM and workers.", children_bytes())
        yield from _counters(self._sources.stages)
        yield from _moments(self._sources.stages)
        lake = self._sources.lake() if self._sources.lake else None
        slot = self._sources.slot() if self._sources.slot else None
        if self._sources.lake:
            yield _gauge("lake_up", "1 if the lake could be read, else 0.", lake is not None)
        if self._sources.slot:
            yield _gauge("source_up", "1 if the source answered, else 0.", slot is not None)
        if lake is not None:
            yield from _of_lake(lake)
        if slot is not None:
            yield from _of_slot(slot)
        yield from _lags(lake, slot)


def _gauge(name: str, documentation: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"auditlake_{name}", documentation, value=float(value))


def _labelled(name: str, documentation: str, labels: Sequence[str], values: Mapping[Any, float]) -> Metric:
    family = GaugeMetricFamily(f"auditlake_{name}", documentation, labels=labels)
    for of, value in values.items():
        family.add_metric(of, value)
    return family


def _counters(stages: frozenset[Beat]) -> Iterator[Metric]:
    counts = read_counts()
    for each in COUNTERS:
        if not each.stages & stages:
            continue
        labels = [] if each.label is None else [each.label]
        family = CounterMetricFamily(f"auditlake_{each.counter}", each.documentation, labels=labels)
        for label in each.labels:
            family.add_metric([label] if labels else [], counts.get((each.counter, label), 0.0))
        yield family


def _moments(stages: frozenset[Beat]) -> Iterator[Metric]:
    since_s = time.time() - time.monotonic()
    beats = {(str(stage),): since_s + at for stage, at in read_beats().items() if stage in stages}
    yield _labelled("heartbeat_timestamp_seconds", "When the loop of a stage last ran.", ["stage"], beats)
    marks = read_marks()
    for of, stage, name, documentation in _MARKS:
        if of in marks and stage in stages:
            yield _gauge(name, documentation, marks[of])


def _of_lake(facts: LakeFacts) -> Iterator[Metric]:
    manifest, positions = facts.manifest, facts.positions
    where = {"database": manifest.database, "slot": manifest.slot, "publication": manifest.publication}
    yield InfoMetricFamily("auditlake_lake", "Names that the lake records.", value=where)
    causes = [(state, str(cause)) for state in (PARKED, ENDED) for cause in Cause]
    tables = {of: float(facts.tables.get(of, 0)) for of in [(FOLLOWED, ""), *causes]}
    yield _labelled("tables", "Tables with a history, by state and by cause of that.", ["state", "cause"], tables)
    states = {(state,): float(state == facts.capture) for state in _CAPTURE_STATES}
    yield _labelled("capture_state", "1 for the state that capture recorded last.", ["state"], states)
    if facts.free_bytes is not None:
        yield _gauge("lake_free_bytes", "Space left on the disk of the lake; absent in a store.", facts.free_bytes)
    if positions is not None:
        yield _gauge("watermark_lsn", "Commit LSN of the last complete transaction, in bytes.", positions.watermark)
        yield _gauge("acknowledged_lsn", "LSN that capture has acknowledged, in bytes.", positions.acknowledged)
        if positions.current_us:
            moment = positions.current_us / 1_000_000
            yield _gauge("current_timestamp_seconds", "Every commit up to this moment is in the lake.", moment)


def _of_slot(facts: SlotFacts) -> Iterator[Metric]:
    slot = facts.slot
    yield _gauge("slot_exists", "1 if the source has the slot.", slot is not None)
    if facts.keep_bytes is not None:
        yield _gauge("slot_wal_keep_bytes", "max_slot_wal_keep_size; absent without a limit.", facts.keep_bytes)
    if slot is None:
        return
    yield _gauge("slot_active", "1 if a client reads the slot.", slot.active_pid is not None)
    yield _gauge("slot_lost", "1 if PostgreSQL has invalidated the slot.", slot.lost)
    statuses = {(status,): float(status == slot.wal_status) for status in _WAL_STATUSES}
    yield _labelled("slot_wal_status", "1 for the wal_status of the slot.", ["wal_status"], statuses)
    yield _gauge("source_wal_end_lsn", "End of the source's log, in bytes.", slot.wal_end)
    if slot.retained_bytes is not None:
        yield _gauge("slot_retained_bytes", "WAL that the source retains for the slot.", slot.retained_bytes)
    if slot.safe_wal_bytes is not None:
        yield _gauge("slot_safe_wal_bytes", "WAL until the slot is lost; absent without a limit.", slot.safe_wal_bytes)
    if facts.left_s is not None:
        yield _gauge("slot_loss_seconds", "Seconds until the slot is lost, at the rate of ten minutes.", facts.left_s)


def _lags(lake: LakeFacts | None, slot: SlotFacts | None) -> Iterator[Metric]:
    positions, applied = (lake.positions if lake else None), read_marks().get(Mark.APPLIED_LSN)
    if positions is None:
        return
    if slot is not None and slot.slot is not None:
        lag = max(0, slot.slot.wal_end - positions.acknowledged)
        yield _gauge("capture_lag_bytes", "WAL that is written and not captured.", lag)
    if applied is not None:
        yield _gauge("applied_lsn", "LSN up to which all tables that are not parked are applied, in bytes.", applied)
        lag = max(0, positions.watermark - int(applied))
        yield _gauge("apply_lag_bytes", "WAL between the applied LSN and the watermark.", lag)
    if lake is not None and lake.backlog is not None:
        yield _gauge("apply_lag_transactions", "Transactions that are captured and not applied.", lake.backlog)
