"""Equality and order of the values that SQL shows, compared with PostgreSQL's equality and order of the same values.

A column of a type that is not typed (`values.types`) is shown as its text. Each type is one of these:

    exact          `=` and `<` on what is shown mean what PostgreSQL's mean (text in the order of code points)
    equality only  equal values have one text, but texts are in another order than values: '0/9' and '0/10'
    neither        equal values may have several texts (1.0 and 1.00, '1 day' and '24:00:00'), or there is no equality

A type that is not built in has equality only, if that of all its parts is that of their texts, as for enums. The lake
records the parts of such a type, and a collation under which equal texts may differ (`differs_in`). A text in a
statement that is compared with a column must be as PostgreSQL prints it (`printed`), because PostgreSQL reads it as a
value of the column's type. Pure.

Authority: the operators in src/include/catalog/pg_operator.dat and the output functions of each type
"""

import re
from collections.abc import Sequence
from decimal import Decimal

from auditlake.values.input_syntax import is_read, spelling, type_name
from auditlake.values.types import BUILT_IN, Conversion, column_type, element_of, is_built_in

_EXACT = "text varchar bpchar name uuid macaddr macaddr8 bit varbit time"
_EQUALITY = """
char xid xid8 cid tid pg_lsn oidvector inet cidr money timetz tsvector int4range int8range daterange tsrange tstzrange
int4multirange int8multirange datemultirange tsmultirange tstzmultirange
"""
_NO_EQUALITY = """
json xml point box circle line lseg path polygon jsonpath pg_snapshot txid_snapshot refcursor gtsvector pg_node_tree
pg_ndistinct pg_dependencies pg_mcv_list pg_brin_bloom_summary pg_brin_minmax_multi_summary
"""
_EXACT_OIDS = frozenset(BUILT_IN[name][0] for name in _EXACT.split())
_EQUALITY_OIDS = frozenset(BUILT_IN[name][0] for name in _EQUALITY.split())
_NO_EQUALITY_OIDS = frozenset(oid for name in _NO_EQUALITY.split() for oid in BUILT_IN[name])
_OIDS = frozenset(type_oid for type_oid, _ in BUILT_IN.values())
_PLAIN_TEXTS = frozenset(BUILT_IN[name][0] for name in ("text", "varchar", "name"))
_PADDED, _BYTEA, _TIME = (BUILT_IN[name][0] for name in ("bpchar", "bytea", "time"))
_WHOLE, _HEX = "(?:0|[1-9][0-9]*)", "(?:0|[1-9A-F][0-9A-F]{0,7})"
_FORMS = {
    BUILT_IN[name][0]: re.compile(form)
    for name, form in (
        ("char", r"[\x01-\x7f]?"),
        ("xid", _WHOLE),
        ("xid8", _WHOLE),
        ("cid", _WHOLE),
        ("tid", rf"\({_WHOLE},{_WHOLE}\)"),
        ("pg_lsn", f"{_HEX}/{_HEX}"),
        ("timetz", r"[0-2][0-9](?::[0-5][0-9]){2}(?:\.[0-9]{0,5}[1-9])?[+-][01][0-9](?::[0-5][0-9]){0,2}(?<!:00)"),
    )
}
"""Forms in which PostgreSQL prints values; a text in such a form is its own value's."""
_COLLATABLE = frozenset(oid for name in ("text", "varchar", "name", "bpchar") for oid in BUILT_IN[name])
_SIGNED_ZERO = frozenset({BUILT_IN["float4"][0], BUILT_IN["float8"][0]})
_NUMBERS = _SIGNED_ZERO | {BUILT_IN["numeric"][0]}
UNRECORDED = "its type, which this lake has not recorded"


def may_differ(type_oid: int) -> bool:
    """Return whether equality of values may depend on more than a built-in type: on own types, or on a collation."""
    return type_oid in _COLLATABLE or not is_built_in(type_oid)


def differs_in(type_oid: int, recorded: Sequence[str] | None) -> str | None:
    """Return that part of a column's type, or the collation, for which equal values may have different texts.

    `recorded` is what the lake recorded of the column (`table_shape.Shape.compared`): the name of its type, then its
    parts: `collation` or `type` and a name, or OID and modifier of a built-in type. None if it recorded nothing.
    """
    if recorded is None:
        return None if is_built_in(type_oid) else UNRECORDED
    for part in recorded[1:]:
        first, _, rest = part.partition(" ")
        if not first.isdecimal():
            return part
        if not is_built_in(type_oid) and not _equal_inside(int(first), int(rest)):
            return type_name(int(first), int(rest))
    return None


def _equal_inside(type_oid: int, typmod: int) -> bool:
    """Return whether equal values of a type have the same text as a part of a composite, a range or an array."""
    of_one_length = type_oid != _PADDED or typmod >= 0
    return has_equality(type_oid, typmod) and type_oid not in _SIGNED_ZERO and of_one_length


def has_equality(type_oid: int, typmod: int) -> bool:
    """Return whether two values are equal in PostgreSQL if and only if their shown forms are equal."""
    element = element_of(type_oid)
    if element is not None:
        return has_equality(element, typmod)
    return type_oid in _EQUALITY_OIDS or type_oid not in _OIDS or has_order(type_oid, typmod)


def has_number(type_oid: int) -> bool:
    """Return whether values of a type are numbers with several texts, which `common_value` compares."""
    return type_oid in _NUMBERS


def common_value(type_oid: int, text: str) -> Decimal | str:
    """Return what equal values of a type of `has_number` have in common; the text of others, of NaN, of infinities."""
    return Decimal(text) if type_oid in _NUMBERS and not text[-1:].isalpha() else text


def is_grouped(type_oid: int) -> bool:
    """Return whether PostgreSQL has a GROUP BY of a built-in type: of the others, only of their texts."""
    return type_oid not in _NO_EQUALITY_OIDS


def has_order(type_oid: int, typmod: int) -> bool:
    """Return whether values have the order of their shown forms; not arrays: NULL is first in Spark's."""
    if element_of(type_oid) is not None:
        return False
    return type_oid in _EXACT_OIDS or column_type(type_oid, typmod).kind is not Conversion.TEXT


def is_plain(type_oid: int, typmod: int) -> bool:
    """Return whether comparisons are exact with any other value, also with any text in a statement."""
    return has_order(type_oid, typmod) and type_oid not in (_EXACT_OIDS | {_BYTEA}) - _PLAIN_TEXTS


def can_be_given(type_oid: int) -> bool:
    """Return whether it is known of some texts that PostgreSQL prints the value that it reads from them so."""
    return type_oid in _FORMS or is_read(type_oid) or element_of(type_oid) is not None


def printed(type_oid: int, typmod: int, given: str) -> str:
    """Return the text shown of the value that a text means; raises ValueError, with the accepted forms."""
    if type_oid == _PADDED:
        return given.rstrip(" ")
    if type_oid == _BYTEA:
        raise ValueError("X'0a' for bytes")
    if type_oid in _PLAIN_TEXTS or type_oid not in _OIDS:
        return given
    form = _FORMS.get(type_oid)
    if form is not None and form.fullmatch(given):
        return given
    read = spelling(type_oid, typmod if type_oid == _TIME else -1, given)
    if not read.exact:
        raise ValueError("a text as PostgreSQL prints it, or cast the column to string")
    return read.text
