"""Tables of one lake that belong together: none is older than `changes` requires, no history is ahead of `changes`.

A folder that was put back from an older backup, or whose last entry is lost, is a right Delta table, so its own log
does not show it. Capture writes `added`, `relations` and `transactions` before `changes`, and each commit that moves
the watermark records what these and `gaps` had: the Delta versions, and of `transactions` the commit LSN up to which it
was complete. An older `changes` shows by a history whose position is above the last LSN up to which it has every
commit.

A lake in a store is not checked: its tables would have to be listed, which no question waits for. A gap that `resync`
recorded is required from the next start of capture on.
"""

from collections.abc import Iterable

from auditlake.delta.log_reader import list_newest, tail_transactions
from auditlake.errors import LakeUnusable
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import TRANSACTIONS_APP, Lake
from auditlake.lake.positions import Positions, read_positions
from auditlake.lsn import Lsn
from auditlake.store.place import Place, by_requests

RELATIONS, ADDED, GAPS, TRANSACTIONS = "relations", "added", "gaps", "transactions"


def require_together(lake: Lake, positions: Positions, histories: Iterable[HistoryTable]) -> None:
    """Require that the tables of a lake on a disk, read after these positions, belong together; raises LakeUnusable."""
    if by_requests(lake.root):
        return
    places = {RELATIONS: lake.relations, ADDED: lake.added, GAPS: lake.gaps}
    for name, required in positions.requires.items():
        if name in places and (found := list_newest(places[name]).newest) < required:
            raise _older(places[name], f"version {found}", f"version {required}")
        if name == TRANSACTIONS:
            _require_transactions(lake, required)
    _require_not_ahead(lake, positions, histories)


def _require_transactions(lake: Lake, required: int) -> None:
    tail = tail_transactions(lake.transactions, [TRANSACTIONS_APP]) if required else None
    if required and list_newest(lake.transactions).newest < 0:
        raise _older(lake.transactions, "nothing", f"every transaction up to {Lsn(required)}")
    if tail is not None and (found := tail.transactions[TRANSACTIONS_APP]) < required:
        raise _older(lake.transactions, f"transactions up to {Lsn(found)}", f"those up to {Lsn(required)}")


def _require_not_ahead(lake: Lake, positions: Positions, histories: Iterable[HistoryTable]) -> None:
    ahead = _ahead(positions, histories)
    if not ahead:
        return
    now = read_positions(lake)  # capture may have gone on, and apply after it
    if now is None or _ahead(now, ahead):
        last = (now or positions).watermark
        raise _older(lake.changes, f"changes up to {last}", f"those up to {ahead[0].position}, as a history has")


def _ahead(positions: Positions, histories: Iterable[HistoryTable]) -> list[HistoryTable]:
    return [table for table in histories if table.position > max(positions.known_lsn, table.snapshot_lsn)]


def _older(place: Place, found: str, required: str) -> LakeUnusable:
    return LakeUnusable(
        f"{place} is older than the rest of the lake: it has {found}, need {required}",
        "Restore all folders of the lake from one backup, or begin a new lake in another folder.",
    )
