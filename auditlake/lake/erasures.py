"""Records of erasures: what was removed, by whom, when and why, without the values and without the key.

    erasures/000000.json        before the first effect: the intent
    erasures/000000.done.json   after the last one

An intent without the second file is an erasure that was killed: `auditlake forget --resume` finishes it. It names the
row by tokens (`lake.key_tokens`), of the key and of all others that the row had, so it can be finished without the key.
Both files are written once and never replaced.

    returned.json               the rows that the last search (`erasure.returned`) found in the lake again, for `status`
"""

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import attrgetter

from auditlake.delta.log_reader import read_newest_state
from auditlake.errors import LakeUnusable
from auditlake.instants import now_us
from auditlake.lake.key_tokens import token
from auditlake.lake.layout import ERASED_APP, Lake
from auditlake.lake.records import (
    numbered_records,
    read_record,
    require_record,
    typed,
    write_numbered,
    write_record,
    writing_files,
)
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.store.files import put_if_absent, read_each
from auditlake.store.place import Place

ERASED_OP = "erased"
"""`op` in `changes` of a change of a row that was removed."""
ERASED_KEY = ""
"""Key in `_raw` of the names of erased columns, as a JSON list: no column of PostgreSQL has this name."""
_RESTORE = "Restore it; it records what was erased."


@dataclass(frozen=True, slots=True)
class Erasure:
    """One erasure. Without `columns` the whole row is removed; they are names of the source, `stored` of the history.

    `kept` are the changes, as LSN and ordinal, whose new row is the one that PostgreSQL has now: it stays. The versions
    concerned began at `from_lsn` at the earliest, and the last of them ended at `to_lsn`. `entries` are the numbers of
    the ledger's entries whose secrets are destroyed. `done_us` is None while it is unfinished. `where` are the columns,
    by stored name, whose values the rows had, in a table without a key; else empty. `replaced_keys` are, if columns of
    the key are erased, the tokens of the keys that PostgreSQL no longer has. `is_dropped`: PostgreSQL no longer had the
    table, so open versions go, too. `after` is the number of the erasure from the history before this one, None without
    one; `log_after` the same of `changes` and `transactions`, -1 without one, None if these have no number of this one.
    Times in microseconds since 1970.
    """

    number: int
    table: str
    schema: str
    tokens: tuple[str, ...]
    columns: tuple[str, ...]
    stored: tuple[str, ...]
    upto_lsn: int
    kept: tuple[tuple[int, int], ...]
    from_lsn: int
    to_lsn: int
    versions: int
    changes: int
    reason: str
    by: str
    time_us: int
    entries: tuple[int, ...] = ()
    done_us: int | None = None
    where: tuple[str, ...] = ()
    replaced_keys: tuple[str, ...] = ()
    is_dropped: bool = False
    after: int | None = None
    log_after: int | None = None

    @property
    def name(self) -> TableName:
        """Return the name of the table's history."""
        return TableName(self.schema, self.table)

    @property
    def gone_tokens(self) -> tuple[str, ...]:
        """Return the tokens of the keys that no row has any more."""
        return self.replaced_keys if self.columns else self.tokens

    def meets(self, first: int, last: int) -> bool:
        """Return whether a state in [`first`, `last`] had the erased values."""
        return self.from_lsn <= last and first < self.to_lsn

    @property
    def what(self) -> str:
        """Return a description of the removed values."""
        row = f"the rows with one {', '.join(self.where)}" if self.where else "one row"
        return f"{', '.join(self.columns)} of {row} of {self.name}" if self.columns else f"{row} of {self.name}"

    def includes(self, other: "Erasure") -> bool:
        """Return whether this erasure, made later, removes all that another one removed, or is the same."""
        rows = (self.name, self.where) == (other.name, other.where) and {*other.tokens} <= {*self.tokens}
        columns = not self.columns or (bool(other.columns) and {*other.stored} <= {*self.stored})
        return self.number >= other.number and rows and columns

    def token(self, secret: bytes, texts: Sequence[str]) -> str:
        """Return the token of the rows with a key, or with these values of `where`."""
        return token(secret, self.name, (*self.where, *texts))


@dataclass(frozen=True, slots=True)
class ReturnedRow:
    """A row with a key that a row of the erasure had, by the key's token, and the first commit after it that has it."""

    erasure: int
    token: str
    lsn: int


def read_erasures(lake: Lake) -> list[Erasure]:
    """Read all erasures, in their order; raises LakeUnusable if a record cannot be read."""
    return read_each(lake.root, lambda place: _read(lake, place), numbered_records(lake.erasures))


def _read(lake: Lake, place: Place) -> Erasure:
    erasure = require_record(place, partial(typed, Erasure), _RESTORE)
    return replace(erasure, done_us=read_record(_end(lake, erasure.number), lambda end: int(end["time_us"]), _RESTORE))


def last_in_log(place: Place) -> int:
    """Return the number of the last erasure from `changes` or `transactions`, -1 without one; raises LakeUnusable."""
    state = read_newest_state(place)
    return -1 if state is None else state.transactions.get(ERASED_APP, -1)


def made_in(erasures: Sequence[Erasure], last: int | None, before: Callable[[Erasure], int | None]) -> list[Erasure]:
    """Return the erasures that were made in a table: the one with the number `last`, the one `before` it, and so on."""
    found = []
    for each in reversed(erasures):
        if each.number == last:
            found.append(each)
            last = before(each)
    return found


def require_erased_log(lake: Lake) -> None:
    """Require that `changes` and `transactions` are not from before an erasure, put back since; raises LakeUnusable."""
    done = [each for each in read_erasures(lake) if each.done_us is not None and each.log_after is not None]
    if not done:
        return
    last = {place: last_in_log(place) for place in (lake.changes, lake.transactions)}
    erasures = read_erasures(lake)  # again, because one may have begun
    for place, number in last.items():
        made = made_in(erasures, number, attrgetter("log_after"))
        if left := [each for each in done if not any(other.includes(each) for other in made)]:
            erased = "; ".join(f"{each.what}, by {each.by}" for each in left)
            raise LakeUnusable(
                f"{place} was put back: it is from before the erasure of {erased}",
                "Restore all folders of the lake from one backup, then erase all of that once more.",
            )


def unfinished(lake: Lake) -> list[Erasure]:
    """Read the erasures that were killed, or are under way; raises LakeUnusable if a record cannot be read."""
    return [each for each in read_erasures(lake) if each.done_us is None]


def record_returned(lake: Lake, rows: Sequence[ReturnedRow]) -> None:
    """Replace the record of the rows that a search found; raises LakeUnusable."""
    write_record(lake, lake.returned_rows, [asdict(each) for each in rows])


def read_returned(lake: Lake, erasures: Sequence[Erasure]) -> list[tuple[Erasure, Lsn]] | None:
    """Return each erasure whose row is in the lake again, with the LSN of its return; None before a search.

    A row whose key has been erased again is left out.

    Raises LakeUnusable if the record cannot be read.
    """
    of_rows = {each.number: each for each in erasures if each.gone_tokens and each.done_us is not None}
    if not of_rows:
        return []

    def read(content: list[object]) -> list[tuple[Erasure, Lsn]]:
        rows = [typed(ReturnedRow, each) for each in content]
        return [(of_rows[row.erasure], Lsn(row.lsn)) for row in rows if not _is_erased(row, of_rows.values())]

    return read_record(lake.returned_rows, read, "Delete it; auditlake maintain writes it.")


def _is_erased(row: ReturnedRow, erasures: Iterable[Erasure]) -> bool:
    return any(row.token in each.gone_tokens and row.lsn <= each.upto_lsn for each in erasures)


def record_intent(lake: Lake, erasure: Erasure) -> Erasure:
    """Record an erasure that is to begin, and return it with its number; raises LakeUnusable, LakeConflict."""
    numbered: list[Erasure] = []

    def content(number: int) -> dict[str, object]:
        numbered.append(replace(erasure, number=number))
        return {name: value for name, value in asdict(numbered[-1]).items() if name != "done_us"}

    write_numbered(lake.erasures, content)
    return numbered[-1]


def record_end(lake: Lake, erasure: Erasure) -> None:
    """Record that nothing is left to do of an erasure; raises LakeUnusable."""
    content = {"number": erasure.number, "time_us": now_us()}
    with writing_files(lake.erasures), suppress(FileExistsError):
        put_if_absent(_end(lake, erasure.number), json.dumps(content, indent=2).encode())


def _end(lake: Lake, number: int) -> Place:
    return lake.erasures / f"{number:06}.done.json"
