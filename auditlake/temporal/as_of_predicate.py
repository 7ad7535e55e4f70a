"""As-of predicate: which versions, and which data files, make up a table's state at a commit LSN. Pure.

A version is valid in the half-open period [`_from_lsn`, `_to_lsn`); an open version has no `_to_lsn`. It belongs to the
state at L, the moment just after the commit at L, if

    _from_lsn <= L and (_to_lsn is null or _to_lsn > L)

`as_of_sql` is that text, in SQL that Spark (`DataFrame.where`), DuckDB and Trino read alike. `is_as_of` is
the same predicate for plain values, such as the statistics of a data file. No other module contains this predicate.

`of_state` chooses the files of a state by the statistics in the log. In some files every version is valid, so their LSN
columns need not be read; in others each row must be tested. All other files are skipped.
"""

from dataclasses import dataclass, replace

from auditlake.delta.data_files import DataFile
from auditlake.lake.history_files import Files, is_open
from auditlake.lsn import Lsn


def as_of_sql(lsn: Lsn | str, *, from_lsn: str = "_from_lsn", to_lsn: str = "_to_lsn") -> str:
    """Return the condition for the versions valid at `lsn`, an LSN or an SQL expression of one."""
    at = _sql(lsn)
    return f"{from_lsn} <= {at} and {ends_after_sql(at, to_lsn=to_lsn)}"


def ends_after_sql(lsn: Lsn | str, *, to_lsn: str = "_to_lsn") -> str:
    """Return the condition for the versions that are open, or closed after `lsn`."""
    return f"({to_lsn} is null or {to_lsn} > {_sql(lsn)})"


def is_as_of(lsn: Lsn, from_lsn: int, to_lsn: int | None) -> bool:
    """Return whether a version with this period is valid at `lsn`; `to_lsn` None is open."""
    return from_lsn <= lsn and (to_lsn is None or to_lsn > lsn)


def _sql(lsn: Lsn | str) -> str:
    return lsn if isinstance(lsn, str) else f"{lsn:d}"


@dataclass(frozen=True, slots=True)
class StateFiles:
    """The files of a state: `whole` have valid versions only, `partly` others as well."""

    whole: Files
    partly: Files

    @property
    def all(self) -> Files:
        return replace(self.whole, by_name={**self.whole.by_name, **self.partly.by_name})


def of_state(found: Files, lsn: Lsn, position: Lsn) -> StateFiles:
    """Choose the files of the state at `lsn`; `position` is the LSN up to which the history is folded."""
    if lsn >= position:  # every closed version has ended, and every open one has begun
        return StateFiles(found.which(is_open), found.which(lambda _: False))
    whole = found.which(lambda file: all_as_of(file, lsn))
    return StateFiles(whole, found.which(lambda file: some_as_of(file, lsn) and file.name not in whole.by_name))


def all_as_of(file: DataFile, lsn: Lsn) -> bool:
    """Whether the statistics show that every version of the file is valid at `lsn`."""
    begins, ends = file.bounds("_from_lsn"), file.bounds("_to_lsn")
    if begins is None or (ends is None and not is_open(file)):
        return False
    return is_as_of(lsn, begins[1], None if is_open(file) or ends is None else ends[0])


def some_as_of(file: DataFile, lsn: Lsn) -> bool:
    """Whether the statistics admit a version that is valid at `lsn`."""
    begins, ends = file.bounds("_from_lsn"), None if is_open(file) else file.bounds("_to_lsn")
    return is_as_of(lsn, 0 if begins is None else begins[0], None if ends is None else ends[1])
