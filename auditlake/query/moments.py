"""From WHEN to commit LSN, and whether the lake can answer for it. Reads Delta without a JVM.

`read_known` looks once, the positions first and then every history: what a statement asks is answered from that look,
so all its tables are read at one place however far the lake moves meanwhile.

A time T resolves to L = max(lsn) where time_mono <= T. `time_mono` never decreases in LSN order, so L is one cut
through all transactions even where commit times run backwards. Where no commit lies between a snapshot and T, L is
the snapshot LSN. T must lie within what capture vouches for, since a later commit may still carry an earlier time.

Beyond what is known the answer is NotAnswerable, naming what was asked and what is known; never the nearest moment.
"""

from dataclasses import dataclass
from typing import assert_never

from deltalake import DeltaTable

from auditlake.errors import LakeUnusable, NotAnswerable
from auditlake.lake.gaps import Gap, read_gaps
from auditlake.lake.history import HistoryTable, list_histories
from auditlake.lake.layout import SNAPSHOT_TIME_APP, Lake
from auditlake.lake.log import open_delta, select
from auditlake.lake.positions import Positions, read_positions
from auditlake.lsn import Lsn
from auditlake.query.when import AtLsn, AtTime, AtXid, When, format_us
from auditlake.relation import TableName

_CATCH_UP = "Run auditlake follow --until-current, then ask again."
_NOTHING = Positions(delta_version=0, watermark=Lsn(0), acknowledged=Lsn(0), current_us=0)


@dataclass(frozen=True, slots=True)
class Known:
    """One look at a lake: its positions and its histories, each at one Delta version; `copying` have no state yet."""

    lake: Lake
    positions: Positions
    tables: dict[TableName, HistoryTable]
    gaps: tuple[Gap, ...] = ()
    copying: tuple[TableName, ...] = ()

    @property
    def last_lsn(self) -> Lsn:
        """The highest LSN that can be asked for anywhere in the lake."""
        return Lsn(max(self.positions.known_lsn, *(table.position for table in self.tables.values())))

    @property
    def now_lsn(self) -> Lsn:
        """The moment of a statement that names none: the watermark, or a newer snapshot that capture has passed."""
        horizons = [table.horizon for table in self.tables.values()]
        if not self.positions.known_lsn:
            return Lsn(max(horizons))
        passed = (horizon for horizon in horizons if horizon <= self.positions.known_lsn)
        return Lsn(max([self.positions.watermark, *passed]))

    def changes_up_to(self, lsn: Lsn) -> Lsn:
        """The last LSN of `changes` and `transactions` that belongs to a reading as of `lsn`."""
        return min(lsn, self.positions.watermark)


def read_known(lake: Lake) -> Known:
    """Look at a lake once.

    Raises LakeUnusable where it holds no table.
    """
    positions = read_positions(lake) or _NOTHING
    tables = {table.name: table for table in list_histories(lake)}
    if not tables:
        raise LakeUnusable(f"the lake {lake.root} holds no table yet", "Run auditlake bootstrap.")
    copying = tuple(name for name in lake.history_names() if name not in tables)
    return Known(lake, positions, tables, read_gaps(lake), copying)


def resolve(known: Known, when: When) -> Lsn:
    """Give the commit LSN that `when` means.

    Raises NotAnswerable where the lake cannot say.
    """
    match when:
        case AtTime():
            return _at_time(known, when)
        case AtLsn(lsn):
            if lsn > known.last_lsn:
                raise NotAnswerable(f"asked for {lsn}, this lake knows every commit up to {known.last_lsn}", _CATCH_UP)
            return lsn
        case AtXid():
            return _at_xid(known, when)
        case _:
            assert_never(when)


def just_before(known: Known, when: When) -> Lsn:
    """Give the last commit LSN before `when`, which has been resolved; 0 where the lake begins with it."""
    if isinstance(when, AtTime):  # commit times are whole microseconds
        return _last_up_to(known, when.time_us - 1) or Lsn(0)
    return Lsn(resolve(known, when) - 1)


def check_horizon(table: HistoryTable, lsn: Lsn, when: When | None) -> None:
    """See that `table` is known at `lsn`.

    Raises NotAnswerable.
    """
    asked = f"{lsn}" if when is None or str(when) == str(lsn) else f"{when} ({lsn})"
    if lsn < table.horizon:
        raise NotAnswerable(
            f"asked for {table.name} as of {asked}, its history begins at {Lsn(table.horizon)}",
            f"Ask for a later moment; {Lsn(table.horizon)} is the first that can be answered.",
        )


def check_known(known: Known, table: HistoryTable, lsn: Lsn) -> None:
    """See that nothing of `table` up to `lsn` can be missing.

    Raises NotAnswerable.
    """
    last = Lsn(max(known.positions.known_lsn, table.position))
    if lsn > last:
        raise NotAnswerable(f"asked for {table.name} as of {lsn}, it is known up to {last}", _CATCH_UP)


def check_gaps(known: Known, table: HistoryTable, first: Lsn, last: Lsn) -> None:
    """See that no state of `table` in [`first`, `last`] lies in a gap.

    Raises NotAnswerable.
    """
    for gap in known.gaps:
        if gap.meets(table.name, first, last):
            asked = f"as of {first}" if first == last else f"from {first} to {last}"
            raise NotAnswerable(
                f"asked for {table.name} {asked}, its changes between {gap.lsn_from} and {gap.lsn_to} are missing: "
                f"{gap.reason}",
                f"{gap.lsn_from} and {gap.lsn_to} themselves can be answered; auditlake.gaps lists what is missing.",
            )


def _at_time(known: Known, when: AtTime) -> Lsn:
    current_us = known.positions.current_us
    if when.time_us > current_us:
        reach = f"knows every commit up to {format_us(current_us)}" if current_us else "has captured nothing yet"
        raise NotAnswerable(f"asked for {when}, this lake {reach}", _CATCH_UP)
    lsn = _last_up_to(known, when.time_us)
    if lsn is None:
        times = [time_us for time_us in snapshot_times(known).values() if time_us is not None]
        begins = format_us(min(times)) if times else "its first transaction"
        raise NotAnswerable(f"asked for {when}, this lake begins at {begins}", "Ask for a later moment.")
    return lsn


def _last_up_to(known: Known, time_us: int) -> Lsn | None:
    """The last commit or snapshot at or before a time."""
    # The cast keeps microseconds and UTC: to_timestamp would go through nanoseconds, which end in 2262.
    time = f"arrow_cast({time_us}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
    transaction = _last_transaction(known, f"time_mono <= {time}")
    snapshots = (Lsn(lsn) for lsn, taken_us in snapshot_times(known).items() if taken_us and taken_us <= time_us)
    return max([*snapshots, *([] if transaction is None else [transaction])], default=None)


def _at_xid(known: Known, when: AtXid) -> Lsn:
    lsn = _last_transaction(known, f"xid = {when.xid}")
    if lsn is None:
        raise NotAnswerable(
            f"asked for {when}, no transaction with this xid is known up to {known.positions.watermark}",
            "It may have changed none of these tables, or lie before the snapshot; "
            "auditlake.transactions lists the ones that are known.",
        )
    return lsn


def snapshot_times(known: Known) -> dict[int, int | None]:
    """When each horizon was the present, in microseconds since 1970; None where the lake does not say."""
    return {table.horizon: _snapshot_time(table) for table in known.tables.values()}


def _snapshot_time(table: HistoryTable) -> int | None:
    return DeltaTable(table.path, version=table.delta_version).transaction_version(SNAPSHOT_TIME_APP)


def _last_transaction(known: Known, condition: str) -> Lsn | None:
    """The newest transaction that fulfils `condition`; `condition` is made of numbers alone."""
    transactions = open_delta(known.lake.transactions)
    if transactions is None:
        return None
    query = f"select max(lsn) as lsn from transactions where lsn <= {known.positions.watermark:d} and {condition}"
    lsn = select(transactions, "transactions", query)["lsn"][0].as_py()
    return None if lsn is None else Lsn(lsn)
