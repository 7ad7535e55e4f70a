"""Verdict on a status: the deciding cause, its sentence, and the exit code of `status --check`."""

import io
import re
from dataclasses import replace

import pytest

from auditlake import terminal
from auditlake.errors import AuditlakeError, SourceUnreachable, WrongSource
from auditlake.lake.erasures import Erasure
from auditlake.lake.manifest import Manifest
from auditlake.lake.parking import Cause, Parked
from auditlake.lake.positions import Positions
from auditlake.lake.records import CaptureState
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.source.ddl_trigger import DdlTrigger
from auditlake.source.slot import SlotState
from auditlake.status import SourceStatus, Status, TableStatus, as_json, judge

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_NOW_S = 1_700_000_000.0
_ORDERS = TableName("public", "orders")
_PARKED = Parked(_ORDERS, Cause.APPLY, Lsn(0x1A), Lsn(0x1A), "column total was dropped", "Bootstrap it again.")
_ERASED = Erasure(0, "orders", "public", ("a" * 64,), (), (), 1, (), 1, 2, 1, 1, "request 7", "dpo", 0, done_us=1)
_SLOT = SlotState(
    plugin="pgoutput",
    database="shop",
    temporary=False,
    two_phase=False,
    active_pid=7,
    confirmed_flush_lsn=Lsn(0x300),
    wal_status="reserved",
    retained_bytes=4096,
    safe_wal_bytes=None,
    failover=None,
    synced=None,
    invalidation=None,
    wal_end=Lsn(0x400),
)


def _status(age_s: float = 2.0) -> Status:
    positions = Positions(1, Lsn(0x300), Lsn(0x300), int((_NOW_S - age_s) * 1_000_000))
    return Status(
        Manifest("1", 1, "shop", "auditlake", "auditlake"),
        positions,
        (TableStatus("public.orders", "public.orders", Lsn(0x100), Lsn(0x300)),),
        CaptureState("running", "2026-11-21T09:00:00+00:00"),
        SourceStatus(_SLOT, None, 256, None, (), (), 0.02, DdlTrigger(frozenset(), frozenset(), server_fires=True)),
        None,
        _NOW_S,
    )


def _with_source(status: Status, **changes: object) -> Status:
    assert status.source is not None
    return replace(status, source=replace(status.source, **changes))  # type: ignore[arg-type]


def _with_parked(status: Status, parked: Parked) -> Status:
    return replace(status, tables=(replace(status.tables[0], parked=parked),))


def _refused(error: AuditlakeError) -> Status:
    return replace(_status(), refusal=error)


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (_status(), 0, "healthy: 1 table, every commit"),
        (_status(3 * 3600), 0, "behind: 1 table, every commit up to 3 h ago"),
        (_with_parked(_status(), replace(_PARKED, ended=True)), 0, "healthy"),
        (_with_source(_status(), unfollowed=(_ORDERS,)), 0, "healthy"),
        (_with_source(_status(), new=None, unfollowed=None), 0, "healthy"),
        (_with_parked(_status(), _PARKED), 3, "public.orders is parked at 0/1A: column total was dropped"),
        (
            replace(_status(), returned=((_ERASED, Lsn(0x2A)),)),
            3,
            "1 erased row is in the lake again: of public.orders",
        ),
        (_with_source(_status(), new=(_ORDERS,)), 3, "public.orders is a new table without a history"),
        (
            _with_source(_status(), slot=replace(_SLOT, active_pid=None)),
            3,
            "nothing captures, and PostgreSQL retains 4,096",
        ),
        (replace(_status(), positions=None), 3, "capture has never started"),
        (replace(_status(), source=None), 3, "no source is set"),
        (_refused(SourceUnreachable("cannot connect to shop", "Start it.")), 4, "cannot connect to shop"),
        (_refused(WrongSource("slot auditlake is gone", "Make a new lake.")), 5, "slot auditlake is gone"),
        (_with_source(_status(), slot=replace(_SLOT, wal_status="unreserved")), 5, "about to be invalidated"),
    ],
)
def test_each_cause_has_a_sentence_and_a_code(status: Status, code: int, words: str) -> None:
    """Every problem has a remedy too."""
    verdict = judge(status)
    assert (verdict.code, words in verdict.sentence) == (code, True), verdict
    assert verdict.remedy is not None or not code
    assert "\n" not in verdict.sentence


def test_the_remedy_of_what_ended_capture_is_that_of_the_verdict() -> None:
    """Another capture would end for the same reason."""
    idle = _with_source(_status(), slot=replace(_SLOT, active_pid=None))
    ended = CaptureState("ended", "2026-11-21T09:00:00+00:00", "the slot can be read no further", "Run resync.")
    verdict = judge(replace(idle, capture=ended))
    assert verdict.sentence.endswith("the last capture ended: the slot can be read no further")
    assert verdict.remedy == "Run resync."
    assert judge(idle).remedy == "Start auditlake follow."


def test_the_most_severe_cause_decides() -> None:
    """A lost slot comes before a parked table, and a parked table before a new one."""
    both = _with_source(_with_parked(_status(), _PARKED), new=(TableName("public", "late"),))
    assert "parked" in judge(both).sentence
    assert judge(replace(both, refusal=WrongSource("slot auditlake is gone", "Make a new lake."))).code == 5


@pytest.mark.parametrize("width", [80, None])
def test_a_status_is_complete_at_any_width(monkeypatch: pytest.MonkeyPatch, width: int | None) -> None:
    """On 80 columns values continue below; without a terminal no label or reason is truncated or wrapped."""
    out = io.StringIO()
    to = terminal.console_for(out, terminal_width=width)
    monkeypatch.setattr(terminal, "console_for", lambda: to)
    reason = "this reason has quite a number of words, " * 6
    status = _with_parked(_refused(WrongSource(reason.strip(" ,"))), replace(_PARKED, reason=reason.strip(" ,")))
    terminal.show_status(as_json(_with_source(status, new=(TableName("public", "late"),))))
    lines = out.getvalue().splitlines()
    text = " ".join(" ".join(lines).split())
    assert "…" not in text
    assert text.count(reason.strip(" ,")) == 2
    missing = {label for label in as_json(status) if label.replace("_", " ") not in text}
    assert missing == {"tables", "new_tables", "unfollowed_tables", "holds", "unfinished_erasures", "returned_rows"}
    assert "public.late" in text
    if width is not None:
        assert max(len(_STYLE.sub("", line)) for line in lines) <= width


def test_a_source_with_another_clock_is_reported() -> None:
    """Times are resolved by the source's clock, and the currency is limited by ours."""
    ahead = judge(_with_source(_status(), clock_skew_s=3600.2))
    assert "the source's clock is 3,600 s ahead of this machine's" in ahead.sentence
    assert "clock" not in judge(_status()).sentence
