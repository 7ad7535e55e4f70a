"""Identity of columns over time: which physical columns of a history are one column of the source. Pure.

A column whose type is rewritten gets another physical column with the next snapshot, and may be published again after
an absence. It is the same column as long as it has the same attribute number in the same source:

    id int, then bigint             physical columns `id` and `id~2`, both number 1: one column
    a dropped, another a added      physical columns `a` and `a~2`, numbers 2 and 5: two columns

Numbers are compared only if both are from the same source, because a restored or new source numbers columns anew
(`HistoryTable.former_oids`). Otherwise, or if a number is unknown, a column continues the column of the same name that
ended when it began, because `schema.evolution.reshaped` then compares columns by name.
"""

from collections.abc import Sequence

from auditlake.lsn import LAST_LSN, Lsn
from auditlake.relation import Column


def source_columns(columns: Sequence[Column], former_oids: Sequence[tuple[Lsn, int]]) -> list[tuple[Column, ...]]:
    """Return the physical columns of each column of the source, oldest first.

    `columns` are all physical columns of a history, and `former_oids` the table's in earlier sources.
    """
    moments = sorted(moment for column in columns for moment in (column.since, column.until) if moment is not None)
    ends = [next((moment for moment in moments if moment >= upto), LAST_LSN) for upto, _ in former_oids]

    def source(column: Column) -> int:
        """Number the source that last gave the column an attribute number."""
        last = LAST_LSN if column.until is None else column.until - 1
        return sum(end <= last for end in ends)

    def continues(column: Column, earlier: Column) -> bool:
        numbers = earlier.attnum, column.attnum
        if None not in numbers and source(earlier) == source(column):
            return numbers[0] == numbers[1]
        begin = column.since
        return begin is not None and begin == earlier.until and column.at(begin).name == earlier.name

    found: list[list[Column]] = []
    for column in sorted(columns, key=lambda each: each.since or 0):
        group = next((group for group in found if continues(column, group[-1])), None)
        if group is None:
            found.append([column])
        else:
            group.append(column)
    return [tuple(group) for group in found]
