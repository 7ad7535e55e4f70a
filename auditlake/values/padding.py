"""Trailing blanks of `char(n)`: part of PostgreSQL's text, not of the value.

PostgreSQL pads a `char(n)` to its length and prints it so. Comparisons, GROUP BY, joins, `length` and `||` ignore the
blanks. A history keeps the printed text, as for every type. Whatever computes with values shows them without the
blanks, here called bare; `_raw`, if it is shown too, then has the printed text of those that differ from it. Keys are
compared by their printed texts, in which equal values of one length are equal. Pure.

Authority: postgresql.org/docs/current/datatype-character.html
"""

from auditlake.values.types import BUILT_IN

_PADDED, _ARRAY_OF_PADDED = BUILT_IN["bpchar"]


def is_padded(type_oid: int) -> bool:
    """Return whether trailing blanks do not count in values of this type: `char(n)`, also without a length."""
    return type_oid == _PADDED


def has_padded_elements(type_oid: int) -> bool:
    """Return whether it is the type of arrays of `char(n)`."""
    return type_oid == _ARRAY_OF_PADDED
