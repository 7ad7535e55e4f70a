r"""Canonical form of ledger entries, version 1: the bytes that are hashed, in Python and as SQL. Pure.

An entry is a logical row of a lake: a change, a transaction, a row of a first copy, and others (`Kind`). Its *record*
is text, and its hash is SHA-256 of the record:

    auditlake entry 1 · kind · fields of the kind · commitment

The *commitment* stands for the values, which may be personal data. It is SHA-256 of

    auditlake values 1 · secret · fields with the values

The *secret* has 128 bits: once it is destroyed, nobody can compare guesses of the values with the commitment.

    secret = first 16 bytes of SHA-256(auditlake secret 1 · key · identity)

`key` is the random key of the entry's block, `identity` its kind, LSN, ordinal and name; of a row of a copy, which has
no number, the fields with its values follow. A proof shows the secret of one entry only. If
key and values are destroyed, and the secrets of all other entries kept, the record still verifies
(`erasure.in_ledger`).

Fields. PostgreSQL's text never contains the byte 0, so it delimits (written `0` here):

    text     0;          a value, as UTF-8; numbers are decimal, bytes and hashes lower-case hexadecimal
    0-                   NULL
    n 0[ a 0, b 0, 0N 0] a list of n texts; a NULL among them is `0N`

Times are microseconds since 1970. A text with the byte 0 has no canonical form: such a row has no hash.

`sql_*` returns the same as SQL, for an engine that hashes columns in native code, without the interpreter's lock.
Sealing uses DataFusion, whose SHA-256 uses the processor's instructions for it. Verification uses DuckDB, because it
also joins; so each engine checks the other. CPU-seconds for 500,000 hashes of 155 bytes (2026-11): DataFusion 0.06,
DuckDB 0.43, hashlib 0.21, which holds the lock.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

Value = str | int | None | Sequence[str | None]
"""A field: text, a number, NULL, or a list of texts."""

_NUL = "\0"
_END, _NULL = "\0;", "\0-"
_LIST, _NEXT, _NULL_ELEMENT, _LIST_END = "\0[", "\0,", "\0N", "\0]"
_SQL_END, _SQL_NULL = "chr(0) || ';'", "chr(0) || '-'"
"""A literal of DuckDB cannot have the byte 0."""
ENTRY, VALUES, SECRET = "auditlake entry 1", "auditlake values 1", "auditlake secret 1"
PAGE = b"auditlake page 1\n"
KEY_BYTES, SECRET_BYTES = 32, 16


class Kind(StrEnum):
    """The kinds of entries."""

    BLOCK = "block"
    """The first entry of a block: its bounds, its time, and the tree before it."""
    RELATION = "relation"
    """A version of a table's shape."""
    ADDED = "added"
    """The value of an added column in older rows."""
    GAP = "gap"
    """A range of LSNs in which changes are missing."""
    ERASURE = "erasure"
    """An erasure: what was removed, and the numbers of the entries whose secrets were destroyed."""
    EXPIRY = "expiry"
    """A run of retention: for each table, its new horizon and the number of versions removed."""
    HOLD = "hold"
    """The addition or the release of a legal hold."""
    COPY = "copy"
    """A table's first copy or new snapshot: its columns, and how many rows follow."""
    ROW = "row"
    """A row that began with a first copy or a new snapshot."""
    ENDED = "ended"
    """A version that a new snapshot did not have."""
    TRANSACTION = "transaction"
    CHANGE = "change"


OF_COPIES = frozenset({Kind.ROW, Kind.ENDED})
"""Kinds of rows that have no number: their secret also depends on their values."""


class Identity(NamedTuple):
    """Identity of an entry; of a row of a copy, only with its values."""

    kind: Kind
    lsn: int | None
    ordinal: int | None
    name: str


class NotCanonical(ValueError):
    """A text has the byte 0, which PostgreSQL's text never has."""


def canonical_text(fields: Iterable[Value]) -> str:
    """Return fields in their canonical form; raises NotCanonical."""
    return "".join(map(_field, fields))


def _field(value: Value) -> str:
    match value:
        case None:
            return _NULL
        case str():
            return f"{_checked(value)}{_END}"
        case int():
            return f"{value:d}{_END}"
    elements = (_NULL_ELEMENT if each is None else _checked(each) for each in value)
    return f"{len(value)}{_LIST}{_NEXT.join(elements)}{_LIST_END}"


def _checked(text: str) -> str:
    if _NUL in text:
        raise NotCanonical("a value has the byte 0")
    return text


def secret_of(key: bytes, identity: Identity, values: Iterable[Value] = ()) -> bytes:
    """Return the secret of an entry, from the key of its block; with `values` that of a row of a copy."""
    return sha256(canonical_text((SECRET, key.hex(), *identity, *values)).encode()).digest()[:SECRET_BYTES]


def commitment_of(secret: bytes, values: Iterable[Value]) -> bytes:
    """Return the commitment to an entry's values."""
    return sha256(canonical_text((VALUES, secret.hex(), *values)).encode()).digest()


def record_of(kind: Kind, fields: Iterable[Value], commitment: bytes) -> str:
    """Return the record of an entry."""
    return canonical_text((ENTRY, kind, *fields, commitment.hex()))


def hash_of(record: str) -> bytes:
    """Return the hash of an entry."""
    return sha256(record.encode()).digest()


def page_of(hashes: Sequence[bytes]) -> bytes:
    """Return the content of a leaf of the tree: the hashes of consecutive entries."""
    return PAGE + b"".join(hashes)


def list_texts(texts: Sequence[pa.Array], rows: int) -> pa.Array:
    """Return the field of a list for each row of columns of texts, as `canonical_text` does; raises NotCanonical."""
    if any(pc.any(pc.match_substring(each, _NUL)).as_py() for each in texts):
        raise NotCanonical("a value has the byte 0")
    begin, end = pa.array([f"{len(texts)}{_LIST}"] * rows), pa.array([_LIST_END] * rows)
    if not texts:
        return pc.binary_join_element_wise(begin, end, "")
    options = pc.JoinOptions(null_handling="replace", null_replacement=_NULL_ELEMENT)
    joined = pc.binary_join_element_wise(*texts, _NEXT, options=options)
    return pc.binary_join_element_wise(begin, joined, end, "")


@dataclass(frozen=True, slots=True)
class EngineSql:
    """SQL that differs between engines, as text with a place for an expression."""

    digest: str
    """SHA-256, as bytes."""
    digest_hex: str
    hexadecimal: str
    microseconds: str
    length: str
    joined: str
    """The elements of a list, delimited."""


IN_DUCKDB = EngineSql(
    digest="unhex(sha256({}))",
    digest_hex="sha256({})",
    hexadecimal="lower(hex({}))",
    microseconds="epoch_us({})",
    length="len({})",
    joined="array_to_string(list_transform({}, lambda x: coalesce(cast(x as varchar), chr(0) || 'N')), chr(0) || ',')",
)
IN_DATAFUSION = EngineSql(
    digest="sha256({})",
    digest_hex="encode(sha256({}), 'hex')",
    hexadecimal="encode({}, 'hex')",
    microseconds="cast({} as bigint)",
    length="cardinality({})",
    joined="array_to_string({}, chr(0) || ',', chr(0) || 'N')",
)


def sql_text(expressions: Iterable[str]) -> str:
    """Return SQL for fields in canonical form, from SQL of each as `sql_field` and its like return it.

    Each field is a number of arguments of `concat`, to which NULL is nothing, so no text is built twice.
    """
    return f"concat({', '.join(expressions)})"


def sql_constant(text: str) -> str:
    """Return SQL for a field that is a constant, without a quote."""
    return f"'{text}' || {_SQL_END}"


def sql_field(value: str) -> str:
    """Return SQL for a text or a number that may be NULL."""
    return f"{value}, case when {value} is null then {_SQL_NULL} else {_SQL_END} end"


def sql_number(value: str) -> str:
    """Return SQL for a number that is not NULL."""
    return f"{value}, {_SQL_END}"


def sql_time(value: str, engine: EngineSql) -> str:
    """Return SQL for a time that may be NULL."""
    return sql_field(engine.microseconds.format(value))


def sql_bytes(value: str, engine: EngineSql) -> str:
    """Return SQL for bytes that may be NULL."""
    return sql_field(engine.hexadecimal.format(value))


def sql_list(value: str, engine: EngineSql) -> str:
    """Return SQL for a list of texts or numbers that may be NULL."""
    length, joined = engine.length.format(value), engine.joined.format(value)
    begin, end = "chr(0) || '['", "chr(0) || ']'"
    return (
        f"{length}, case when {value} is null then {_SQL_NULL} else {begin} end,"
        f" {joined}, case when {value} is null then '' else {end} end"
    )


def sql_is_canonical(texts: Iterable[str], lists: Iterable[str]) -> str:
    """Return SQL of DuckDB for the condition that no text and no element of a list has the byte 0."""
    joined = (f"array_to_string({each}, '')" for each in lists)
    return f"strpos(concat({', '.join([*texts, *joined])}), chr(0)) = 0"


def sql_secret(key_field: str, identity: Iterable[str], engine: EngineSql) -> str:
    """Return SQL for the secret of an entry, in hexadecimal; `key_field` is the field with the key of its block."""
    whole = engine.digest_hex.format(sql_text((sql_constant(SECRET), key_field, *identity)))
    return f"substr({whole}, 1, {2 * SECRET_BYTES})"


def sql_commitment(secret: str, values: Iterable[str], engine: EngineSql) -> str:
    """Return SQL for the commitment to an entry's values, in hexadecimal."""
    return engine.digest_hex.format(sql_text((sql_constant(VALUES), secret, _SQL_END, *values)))


def sql_hash(kind: Kind, fields: Iterable[str], commitment: str, engine: EngineSql) -> str:
    """Return SQL for the hash of an entry."""
    return engine.digest.format(sql_text((sql_constant(ENTRY), sql_constant(kind), *fields, commitment, _SQL_END)))
