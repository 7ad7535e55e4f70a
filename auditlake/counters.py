"""Counters: what this process has done since it started, and when its loops last ran, as numbers in memory.

A stage counts right after an effect. `metrics` exports the numbers on request; without it they are only kept. Counting
is an addition under a lock and never fails, so it is safe in any thread of any stage.

A label has one of few values that are known when the code is written: never a table, an LSN, a transaction or a value.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum


class Counter(StrEnum):
    """A number that only grows, as its metric is called; its label is in the comment."""

    CAPTURED_TRANSACTIONS = "captured_transactions"
    CAPTURED_CHANGES = "captured_changes"
    APPLIED_BATCHES = "applied_batches"  # engine
    APPLIED_SECONDS = "applied_batch_seconds"  # engine
    APPLIED_CHANGES = "applied_changes"  # engine
    COMMITS = "commits"  # stage
    RETRIES = "retries"  # cause
    STORE_REQUESTS = "store_requests"  # operation
    QUESTIONS = "questions"  # engine
    QUESTION_SECONDS = "question_seconds"  # engine
    REFUSED_QUESTIONS = "refused_questions"
    DELIVERED_TRANSACTIONS = "delivered_transactions"
    DELIVERY_ATTEMPTS = "delivery_attempts"  # outcome


class Beat(StrEnum):
    """A loop of a stage that runs as long as the stage does, busy or idle."""

    CAPTURE = "capture"
    APPLY = "apply"
    SERVE = "serve"
    WEBHOOK = "webhook"


class Mark(StrEnum):
    """Progress of a stage: a moment up to which it has done everything, a position, or a count."""

    APPLIED_TIME = "applied_time"
    APPLIED_LSN = "applied_lsn"
    DELIVERED_TIME = "delivered_time"
    SEALED_TIME = "sealed_time"
    SEALED_LSN = "sealed_lsn"
    DIGEST_TIME = "digest_time"
    DIGEST_INTERVAL_S = "digest_interval_s"


_lock = threading.Lock()
_counts: defaultdict[tuple[Counter, str], float] = defaultdict(float)
_beats: dict[Beat, float] = {}
_begun: set[Beat] = set()
_marks: dict[Mark, float] = {}


def count(counter: Counter, label: str = "", by: float = 1) -> None:
    """Add to a counter."""
    with _lock:
        _counts[counter, label] += by


@contextmanager
def counted(number: Counter, seconds: Counter, label: str) -> Iterator[None]:
    """Count the block and its seconds, unless it raises."""
    begun_s = time.monotonic()
    yield
    count(number, label)
    count(seconds, label, time.monotonic() - begun_s)


def beat(stage: Beat) -> None:
    """Record that the loop of a stage runs."""
    _beats[stage] = time.monotonic()


def begin(stage: Beat) -> None:
    """Record that a stage does its work from now on: it is connected, it listens."""
    _begun.add(stage)


def advance(of: Mark, value: float) -> None:
    """Record how far a stage is."""
    _marks[of] = value


def read_counts() -> Mapping[tuple[Counter, str], float]:
    """Return all counters that have counted, by label."""
    with _lock:
        return dict(_counts)


def read_beats() -> Mapping[Beat, float]:
    """Return when each loop of this process last ran, by the monotonic clock; none for a loop that has not begun."""
    return dict(_beats)


def read_begun() -> frozenset[Beat]:
    """Return the stages of this process that have begun their work."""
    return frozenset(_begun)


def read_marks() -> Mapping[Mark, float]:
    """Return how far the stages of this process are; none for a mark that was never made."""
    return dict(_marks)
