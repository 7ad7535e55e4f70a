"""Identity of columns over time: which physical columns of a history are one column of the source. Pure.

A column whose type is rewritten gets another physical column with the next snapshot, and may be published again after
an absence. It is the same column as long as it has the same attribute number in the same source:

    id int, then bigint             physical columns `id` and `id~2`, both number 1: one column
    a dropped, another a added      physical columns `a` and `a~2`, numbers 2 and 5: two columns

Numbers are compared only if both are from the same source, because a restored or new source numbers columns anew
(`HistoryTable.former_oids`). Otherwise, or if a number is unknown, a column continues the column of the same name that
ended when it began, because `schema.evolution.reshaped` then compares columns by name.

A message of the stream has no numbers. `possible` tells those that order and existence leave: columns are always in the
order of their numbers, and a number is never used again.
"""

from collections.abc import Collection, Mapping, Sequence

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


def possible(
    names: Sequence[str],
    base: Collection[int],
    now: Mapping[int, str | None],
    unpublished: Collection[int] = (),
    kept: Collection[int] = (),
) -> tuple[frozenset[int], ...]:
    """Return the numbers that each column of a message may have, whatever its name; nothing if none fit.

    `base` are the numbers of columns that were certain before it, `kept` of those that have had one name since.
    """
    last, end = max(base, default=0), len(names)
    numbers = [n for n in sorted({*base, *now}) if n in base or n > last or now[n] is not None]

    def is_left(number: int, place: int) -> bool:
        stays = now.get(number) is not None
        return not stays or (number not in base and (place == end or number <= last or number in unpublished))

    def is_taking(number: int, place: int) -> bool:
        return place < end and (number not in kept or names[place] == now.get(number))

    reached = [{0}]  # for each number: how many columns the numbers before it may have taken
    for number in numbers:
        left = {place for place in reached[-1] if is_left(number, place)}
        reached.append(left | {place + 1 for place in reached[-1] if is_taking(number, place)})
    found: list[set[int]] = [set() for _ in names]
    wanted = {end} & reached.pop()
    for number, before in zip(reversed(numbers), reversed(reached), strict=True):
        taking = {place for place in before if place + 1 in wanted and is_taking(number, place)}
        for place in taking:
            found[place].add(number)
        wanted = taking | {place for place in before & wanted if is_left(number, place)}
    return tuple(map(frozenset, found)) if all(found) else ()
