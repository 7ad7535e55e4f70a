"""Sealing beside capture: a thread that seals what is durable, at an interval, and keeps a digest on a schedule.

It seals if the lake has a ledger or `[digest]` is set. A pass of an idle lake reads the positions of capture. A failure
is reported once, whatever it is, and tried again with the next pass: capture goes on. Another process that seals
meanwhile is no failure. When capture stops, a witness that does not answer is given up at once, and asked once more for
the last digest, for five seconds.

A pass gives way to a capture that lags: it begins no block, until capture has caught up or the pass is ten minutes
late. So a source that capture never catches up with is sealed, too, and a seal is at most an interval, ten minutes and
the time of a pass old.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from auditlake.config import DigestSettings
from auditlake.counters import Mark, advance
from auditlake.errors import LakeConflict
from auditlake.lake.layout import Lake
from auditlake.ledger.blocks import Block, has_ledger
from auditlake.ledger.seal import Sealer, sealable_upto
from auditlake.lsn import Lsn
from auditlake.messages import FailureReports, Say

_LOOK_S = 600.0
"""So often a lake is searched for new copies, relations and gaps although nothing was captured."""

_LAST_S = 5.0
"""So long the witness of the last digest is waited for."""

_LATE_S = 600.0
"""A pass that is so late does not give way any more."""

_GIVING_WAY_S = 1.0
"""While a pass gives way, capture is asked so often whether it lags."""


@dataclass(slots=True)
class Sealing:
    """The passes of one process, one every `every_s` seconds, which give way while `capture_lags`."""

    lake: Lake
    settings: DigestSettings | None
    command: str
    report: Say
    every_s: float
    capture_lags: Callable[[], bool]
    stop: threading.Event = field(default_factory=threading.Event)
    _sealer: Sealer = field(init=False)
    _late_s: float = field(init=False)
    _watermark: Lsn | None = None
    _looked_s: float = float("-inf")
    _sealed_s: float = 0.0
    _kept_s: float = float("-inf")
    _kept: Block | None = None
    _is_last: bool = False
    _failures: FailureReports = field(init=False)

    def __post_init__(self) -> None:
        self._sealer = Sealer(self.lake, lambda: self.stop.is_set() or self._gives_way())
        self._late_s = self._late_after(time.monotonic())
        self._failures = FailureReports(self.report)

    def run(self) -> None:
        """Seal until `stop`, and once more then."""
        while not self.stop.wait(self.every_s):
            self.once()

    def once(self) -> None:
        """Make one pass, if there may be something to seal; report a failure that was not reported yet."""
        failed = "sealing failed"
        try:
            if not self._seal():
                return
            failed = "no digest is kept"
            self._keep()
        except LakeConflict:
            return
        except Exception as exc:  # noqa: BLE001 - a store that fails for a moment must not end sealing
            if self.stop.is_set():  # `finish` tries again
                return
            again = "" if self._is_last else ", trying again while capture goes on"
            self._failures.report(f"{failed}{again}", exc)
        else:
            self._failures.forget()

    def _late_after(self, begun_s: float) -> float:
        """Return when the pass after one that began then is late."""
        return begun_s + self.every_s + _LATE_S

    def _gives_way(self) -> bool:
        return self.capture_lags() and time.monotonic() < self._late_s

    def _await_turn(self) -> bool:
        """Wait while the pass gives way; return False if `stop` came meanwhile."""
        while self._gives_way():
            if self.stop.wait(_GIVING_WAY_S):
                return False
        return True

    def _seal(self) -> bool:
        """Wait for the turn of the pass, and seal everything durable; return False if `stop` came before the end."""
        if not self._await_turn():
            return False
        begun_s, now_s, watermark = time.time(), time.monotonic(), sealable_upto(self.lake)
        if watermark != self._watermark or now_s - self._looked_s >= _LOOK_S:
            self._sealer.seal(self.command)
            while self._sealer.was_stopped:
                if self.stop.is_set() or not self._await_turn():
                    return False
                self._sealer.seal(self.command)
            self._watermark, self._looked_s = watermark, time.monotonic()
        self._sealed_s, self._late_s = begun_s, self._late_after(now_s)
        advance(Mark.SEALED_TIME, begun_s)
        if self._sealer.last is not None:
            advance(Mark.SEALED_LSN, self._sealer.last.upto.commit)
        return True

    def _keep(self) -> None:
        block = self._sealer.last
        if self.settings is None or block is None:
            return
        from auditlake.ledger.digest import keep  # noqa: PLC0415 - few lakes keep digests, and it imports cryptography

        if block != self._kept:
            if time.monotonic() - self._kept_s < self.settings.every_s:
                return
            until_s = time.monotonic() + (_LAST_S if self._is_last else float("inf"))
            kept = keep(self.lake, self.settings, block, lambda: self.stop.is_set() or time.monotonic() > until_s)
            if kept.is_new:
                self.report(f"digest kept in {kept.where}")
            self._kept, self._kept_s = block, time.monotonic()
        advance(Mark.DIGEST_TIME, self._sealed_s)

    def finish(self) -> None:
        """Seal what became durable since the last pass, and keep its digest."""
        self.stop.clear()
        self._kept_s, self._is_last = float("-inf"), True
        self.once()


@contextmanager
def sealing(passes: Sealing) -> Iterator[None]:
    """Seal beside the block, and once more when it ends without an error; not at all if `every_s` is 0."""
    if passes.every_s == 0 or (passes.settings is None and not has_ledger(passes.lake)):
        yield
        return
    if passes.settings is not None:
        advance(Mark.DIGEST_INTERVAL_S, max(passes.settings.every_s, passes.every_s))
    with ThreadPoolExecutor(1, thread_name_prefix="sealing") as pool:
        running = pool.submit(passes.run)
        try:
            yield
        finally:
            passes.stop.set()
            running.result()
    passes.finish()
