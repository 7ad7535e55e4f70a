"""Digests of rows, and their sums by bucket: compare two sides of any size in bounded memory. Pure.

A row is the exact PostgreSQL text of each column. Each value gets a keyed 64-bit SipHash. Their mixed sum is the row's
digest, and the same over the key's columns its identity; in a table without a key, a multiset, the identity is the
digest. A table becomes `Sums`: per bucket of identities, the number of rows and the sum of their digests. Sums do not
depend on order and can be added in parts. If all sums are equal, the sides are equal; otherwise only the rows of
differing buckets are compared (`differing_keys`): which keys and which columns differ. Such a row is its identity, the
texts of its key and the hash of each column, so the only values there are those of keys.

D1  Each column is hashed under a key of its own, so equal texts in two columns do not cancel out.
D2  NULL is hashed as a NUL byte, which no PostgreSQL text contains, so it equals no value.
D3  The sum over columns is mixed before rows are summed, so rows that exchange values do not cancel out.
D4  The keys are random in each run, so data cannot be constructed to collide; the probability of a missed difference
    is 2^-64.

Floating-point numbers are hashed by their bits, which PostgreSQL's text represents exactly: formatting them in Python
takes thirty times as long as everything else. -0 differs from 0; all NaNs are equal.
"""

import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Hashes = npt.NDArray[np.uint64]

_NULL = b"\0"
_ROWS_PER_BUCKET = 1000
_MOST_BUCKETS = 1 << 16
_LEAST_BUCKETS = 1 << 4
# Constants of SplitMix64.
_MIXING = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31
SIDE_SCHEMA = pa.schema([("identity", pa.int64()), ("key", pa.list_(pa.string())), ("hashes", pa.list_(pa.int64()))])
"""Rows of one side of the comparison."""
_MOST_VALUES = 4_000_000

MISSING = "missing"
EXTRA = "extra"
DIFFERENT = "different"
DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True)
class Digested:
    """A batch of rows: identity and digest of each row, and the hashes of each column's values."""

    identities: Hashes
    digests: Hashes
    columns: tuple[Hashes, ...]


@dataclass(frozen=True, slots=True)
class Digest:
    """Parameters by which one table's rows are hashed in one run.

    `key` are the positions of the key's columns, `floats` the types of floating-point columns by position.
    """

    seed: str
    key: tuple[int, ...]
    buckets: int
    floats: Mapping[int, pa.DataType] = field(default_factory=dict)

    @classmethod
    def of_table(cls, key: Sequence[int], rows: int, floats: Mapping[int, pa.DataType] | None = None) -> "Digest":
        """Return a digest under a new random key, with buckets for about `rows` rows."""
        wanted = 1 << max(0, rows // _ROWS_PER_BUCKET).bit_length()
        buckets = max(_LEAST_BUCKETS, min(_MOST_BUCKETS, wanted))
        return cls(secrets.token_hex(6), tuple(key), buckets, floats or {})

    def of_rows(self, texts: Sequence[pa.Array], length: int) -> Digested:
        """Hash rows, passed as the texts of each column; columns of `floats` may be numbers."""
        columns = tuple(self._hashes(column, place) for place, column in enumerate(texts))
        digests = _mixed(_sum(columns, length))
        identities = _mixed(_sum([columns[place] for place in self.key], length)) if self.key else digests
        return Digested(identities, digests, columns)

    def buckets_of(self, digested: Digested) -> npt.NDArray[np.int64]:
        """Return the bucket of each row."""
        return (digested.identities % np.uint64(self.buckets)).astype(np.int64)

    def _hashes(self, texts: pa.Array, place: int) -> Hashes:
        # Imported here because it takes a third of a second; pandas has no type annotations.
        from pandas.util import hash_array  # type: ignore[import-untyped]  # noqa: PLC0415

        texts = _bits(texts.cast(self.floats[place])) if place in self.floats else texts.cast(pa.binary())
        content = texts.fill_null(_NULL).to_numpy(zero_copy_only=False)
        hashes: Hashes = hash_array(content, hash_key=f"{self.seed}{place:04d}", categorize=False)
        return hashes


class Sums:
    """Number of rows per bucket, and the sum of their digests modulo 2^64."""

    def __init__(self, buckets: int) -> None:
        self.rows: npt.NDArray[np.int64] = np.zeros(buckets, np.int64)
        self.digests: Hashes = np.zeros(buckets, np.uint64)

    def add_rows(self, digest: Digest, digested: Digested) -> None:
        """Add a batch of rows."""
        buckets = digest.buckets_of(digested)
        self.rows += np.bincount(buckets, minlength=len(self.rows))
        np.add.at(self.digests, buckets, digested.digests)

    def add(self, other: "Sums") -> None:
        """Add another part of the same table."""
        self.rows += other.rows
        self.digests += other.digests

    @property
    def total(self) -> int:
        """The number of rows."""
        return int(self.rows.sum())

    def differing(self, other: "Sums") -> npt.NDArray[np.int64]:
        """Return the buckets that differ."""
        return np.flatnonzero((self.rows != other.rows) | (self.digests != other.digests))


def _bits(numbers: pa.Array) -> pa.Array:
    """Return the bytes of each number; NULL stays NULL."""
    canonical = pc.if_else(pc.is_nan(numbers), pa.scalar(float("nan"), numbers.type), numbers)
    values = canonical.fill_null(0).to_numpy(zero_copy_only=False)
    width = values.dtype.itemsize
    content = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))]
    )
    return pc.if_else(numbers.is_null(), pa.scalar(None, pa.binary()), content.cast(pa.binary()))


def _sum(columns: Sequence[Hashes], length: int) -> Hashes:
    total: Hashes = np.zeros(length, np.uint64)
    for column in columns:
        total = total + column
    return total


def _mixed(values: Hashes) -> Hashes:
    mixed = values
    for shift, factor in _MIXING:
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(_LAST_SHIFT))


@dataclass(frozen=True, slots=True)
class KeyDifference:
    """A key that differs: `key` is None in a table without a key, `columns` are the positions of differing columns.

    `count` is the number of wrong rows with this identity.
    """

    kind: str
    key: tuple[str | None, ...] | None
    columns: tuple[int, ...] = ()
    count: int = 1


def chosen_buckets(ours: Sums, theirs: Sums, width: int) -> npt.NDArray[np.int64]:
    """Return as many differing buckets as fit into memory, at least one if any differs."""
    differing = ours.differing(theirs)
    sizes = np.cumsum(np.maximum(ours.rows, theirs.rows)[differing])
    fitting = int(np.searchsorted(sizes, _MOST_VALUES // max(1, width), side="right"))
    return differing[: max(1, fitting)]


def rows_of_buckets(
    digest: Digest, digested: Digested, texts: Sequence[pa.Array], wanted: npt.NDArray[np.int64]
) -> pa.RecordBatch:
    """Return a batch's rows in the wanted buckets, as SIDE_SCHEMA."""
    places = np.flatnonzero(np.isin(digest.buckets_of(digested), wanted))
    identities = digested.identities[places].view(np.int64)
    keys = [texts[place].cast(pa.string()).take(pa.array(places)).to_pylist() for place in digest.key]
    hashes = [column[places].view(np.int64) for column in digested.columns]
    columns = [
        pa.array(identities),
        pa.array([list(key) for key in zip(*keys, strict=True)] if keys else [[]] * len(places), SIDE_SCHEMA.types[1]),
        pa.array(list(np.stack(hashes, axis=1)) if hashes else [[]] * len(places), SIDE_SCHEMA.types[2]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SIDE_SCHEMA)


def differing_keys(lake: pa.Table, source: pa.Table, *, keyed: bool) -> Iterator[KeyDifference]:
    """Compare two sides, each with all rows of the same buckets."""
    ours, theirs = _by_identity(lake), _by_identity(source)
    for identity in sorted(ours.keys() | theirs.keys()):
        yield from _of_identity(ours.get(identity, []), theirs.get(identity, []), keyed=keyed)


_Row = tuple[tuple[str | None, ...], tuple[int, ...]]


def _by_identity(side: pa.Table) -> dict[int, list[_Row]]:
    rows: dict[int, list[_Row]] = defaultdict(list)
    for row in side.to_pylist():
        rows[row["identity"]].append((tuple(row["key"]), tuple(row["hashes"])))
    return rows


def _of_identity(lake: list[_Row], source: list[_Row], *, keyed: bool) -> Iterator[KeyDifference]:
    key = (lake or source)[0][0] if keyed else None
    surplus = len(lake) - len(source)
    if surplus < 0:
        yield KeyDifference(MISSING, key, count=-surplus)
    elif surplus > 0:
        yield KeyDifference(DUPLICATE if source else EXTRA, key, count=surplus)
    if lake and source and keyed and {hashes for _, hashes in lake} != {hashes for _, hashes in source}:
        yield KeyDifference(DIFFERENT, key, _columns(lake, source))


def _columns(lake: Iterable[_Row], source: Iterable[_Row]) -> tuple[int, ...]:
    """Return the positions of columns in which a row of the lake differs from a row of the source."""
    pairs = [(ours, theirs) for _, ours in lake for _, theirs in source]
    width = len(pairs[0][0])
    return tuple(place for place in range(width) if any(ours[place] != theirs[place] for ours, theirs in pairs))
