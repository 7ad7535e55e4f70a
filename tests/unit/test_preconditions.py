"""Tests of the slot check: the slot can continue, or the error has the range of LSNs that is missing."""

from dataclasses import replace

import pytest

from auditlake.capture.preconditions import check_database, check_slot
from auditlake.errors import WrongSource
from auditlake.lsn import Lsn
from auditlake.source.slot import SlotState

SLOT = SlotState(
    plugin="pgoutput",
    database="shop",
    temporary=False,
    two_phase=False,
    active_pid=None,
    confirmed_flush_lsn=Lsn(0x100),
    wal_status="reserved",
    retained_bytes=0x200,
    safe_wal_bytes=None,
    failover=False,
    synced=False,
    invalidation=None,
    wal_end=Lsn(0x280),
)
LAKE = Lsn(0x100)


@pytest.mark.parametrize("confirmed", [0x90, 0x100])
def test_a_slot_at_or_behind_the_lake_can_continue(confirmed: int) -> None:
    """A crash of the server loses acknowledgements, so the slot may be behind."""
    check_slot("s", replace(SLOT, confirmed_flush_lsn=Lsn(confirmed)), LAKE)
    check_slot("s", replace(SLOT, wal_status="unreserved", wal_end=LAKE), LAKE)


@pytest.mark.parametrize(
    ("slot", "words"),
    [
        (None, ["is gone", "from 0/100 on"]),
        (replace(SLOT, plugin=None, database=None, confirmed_flush_lsn=None), ["physical"]),
        (replace(SLOT, plugin="wal2json"), ["wal2json", "pgoutput"]),
        (replace(SLOT, temporary=True, active_pid=7), ["temporary", "pid 7"]),
        (replace(SLOT, two_phase=True), ["two_phase", "need one without"]),
        (replace(SLOT, wal_status="lost"), ["lost its log", "from 0/100 to 0/280"]),
        (replace(SLOT, invalidation="idle_timeout"), ["idle_timeout", "from 0/100 to 0/280"]),
        (replace(SLOT, confirmed_flush_lsn=Lsn(0x101)), ["stands at 0/101", "lake at 0/100", "missing"]),
        (replace(SLOT, wal_end=Lsn(0xFF)), ["ends at 0/FF", "lake at 0/100", "earlier state"]),
    ],
)
def test_any_other_slot_is_refused(slot: SlotState | None, words: list[str]) -> None:
    """The error has the cause, the missing range, and a hint."""
    with pytest.raises(WrongSource) as refusal:
        check_slot("s", slot, LAKE)
    for word in ("slot s", *words) if slot is None or slot.wal_end > LAKE else words:
        assert word in refusal.value.message
    assert refusal.value.hint


def test_a_slot_of_another_database_is_refused() -> None:
    """The error names both databases."""
    check_database("s", SLOT, "shop")
    with pytest.raises(WrongSource, match=r"database shop, need one of stock"):
        check_database("s", SLOT, "stock")
