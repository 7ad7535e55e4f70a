"""How much longer one call of a function or an operator may make a text or an array. Pure.

DuckDB computes 2,048 rows at once; its limit of memory does not count their values, and nothing interrupts it
meanwhile. A value whose length is that of its type, or of a short literal, makes no other much longer.

Nor does the limit count what a function in Python makes of one argument, such as an aggregate: a hundred bytes for each
element of an array, or for each part of a text. So an array of an aggregate has at most `MOST_ELEMENTS`, and such a
function takes a text of at most `LONGEST` characters.
"""

from collections.abc import Callable, Sequence

from auditlake.query.postgres.cells import Cell
from auditlake.query.postgres.conversions import failed
from auditlake.query.postgres.types import INTEGERS, Type

MOST_BYTES = 256 << 10
TOO_LONG_TEXT = "a value would become longer by more than 256 KB"
TOO_LONG = failed(TOO_LONG_TEXT)
MOST_ELEMENTS = 1_000_000
"""DuckDB computes a list of constants before it runs, in 80 bytes a value, which its limit of memory does not count."""
TOO_MANY = failed(f"an array would have more than {MOST_ELEMENTS:,} values")
LONGEST = 16_000_000
_SHORT = frozenset({*INTEGERS, "bool", "date", "float4", "float8", "interval", "timestamp", "timestamptz", "uuid"})
_FEW_CHARACTERS = 100
_ELEMENT_BYTES = 16


def _is_short(kind: Type) -> bool:
    return kind.name in _SHORT or kind.is_decimal or bool(kind.labels)


def may_be_long(cell: Cell) -> bool:
    """Return whether a text of an expression may have any length."""
    return len(cell.literal) > _FEW_CHARACTERS if cell.literal is not None else not (cell.null or _is_short(cell.type))


def bytes_of_array(array: str, kind: Type) -> str:
    """Return an expression for the size of an array."""
    fixed = f"len({array}) * {_ELEMENT_BYTES}"
    if _is_short(kind.element or kind):
        return fixed
    return f"({fixed} + coalesce(list_sum(list_transform({array}, lambda e: {_bytes_of('e')})), 0))"


def _bytes_of(value: str) -> str:
    return f"strlen(cast({value} as varchar))"  # bytea is a blob, an oid a number


def joined(cells: Sequence[Cell], texts: Sequence[str], form: str, times: int = 1) -> str:
    """Return texts of cells in the braces of `form`, the first so many `times`; it fails if that is too long."""
    long = [n for n, cell in enumerate(cells) if may_be_long(cell)]
    if len(long) < 2 and not (times > 1 and long == [0]):  # noqa: PLR2004 - one alone becomes longer by short ones
        return form.format(*texts)
    sizes = ", ".join(_bytes_of(f"s[{n + 1}]") for n in long)
    repeated = f" + coalesce({_bytes_of('s[1]')}, 0) * {times - 1}" if times > 1 else ""
    whole = form.format(*(f"s[{n + 1}]" for n in range(len(texts))))
    return held(texts, f"list_sum([{sizes}]) - list_max([{sizes}]){repeated} > {MOST_BYTES}", whole)


def listed(cells: Sequence[Cell], texts: Sequence[str]) -> str:
    """Return an array of the texts of some cells; it fails as `joined`."""
    return joined(cells, texts, f"[{', '.join(['{}'] * len(texts))}]")


def held(texts: Sequence[str], is_too_long: str, whole: str, failure: str = TOO_LONG) -> str:
    """Return `whole` of the texts as `once`, unless it would be too long."""
    return once(texts, f"case when {is_too_long} then {failure} else {whole} end")


def repeatable(texts: Sequence[str], whole: Callable[..., str]) -> str:
    """Return `whole` of the texts, which has each several times; of long ones as `once`, which takes longer a row."""
    if sum(map(len, texts)) <= _FEW_CHARACTERS:
        return whole(*texts)
    return once(texts, whole(*(f"s[{n + 1}]" for n in range(len(texts)))))


def once(texts: Sequence[str], whole: str) -> str:
    """Return `whole` of the texts, which it calls s[1], s[2] and so on.

    Each text is in it once: one that is in it twice would double with each call in another.
    """
    parts = ", ".join(texts)  # in HAVING, DuckDB takes the name of a struct's field for a column
    return f"list_transform([row({parts})], lambda s: {whole})[1]"
