"""Which data files of a history have versions valid at an LSN, by the statistics in the log. Pure.

`of_state` divides the files that a state needs into those of which every version is valid, so that their LSN columns
need not be read, and those whose rows must be tested. Others are not read at all.
"""

from dataclasses import dataclass

from auditlake.delta.data_files import DataFile
from auditlake.lake.history_files import Files, is_open
from auditlake.temporal.as_of_predicate import is_as_of


@dataclass(frozen=True, slots=True)
class StateFiles:
    """The files of a state: `whole` have valid versions only, `partly` others as well."""

    whole: Files
    partly: Files


def of_state(found: Files, lsn: int, position: int) -> StateFiles:
    """Choose the files of the state at `lsn`; `position` is the LSN up to which the history is folded."""
    if lsn >= position:  # every closed version has ended, and every open one has begun
        return StateFiles(found.which(is_open), found.which(lambda _: False))
    whole = found.which(lambda file: all_as_of(file, lsn))
    return StateFiles(whole, found.which(lambda file: some_as_of(file, lsn) and file.name not in whole.by_name))


def all_as_of(file: DataFile, lsn: int) -> bool:
    """Whether the statistics show that every version of the file is valid at `lsn`."""
    begins, ends = file.bounds("_from_lsn"), file.bounds("_to_lsn")
    if begins is None or (ends is None and not is_open(file)):
        return False
    return is_as_of(lsn, begins[1], None if is_open(file) or ends is None else ends[0])


def some_as_of(file: DataFile, lsn: int) -> bool:
    """Whether the statistics admit a version that is valid at `lsn`."""
    begins, ends = file.bounds("_from_lsn"), None if is_open(file) else file.bounds("_to_lsn")
    return is_as_of(lsn, 0 if begins is None else begins[0], None if ends is None else ends[1])
