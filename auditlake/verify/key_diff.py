"""Compare the digested rows of differing buckets: find the keys that differ, and the columns. Pure.

A row is its identity, the texts of its key and the hash of each column, so the only values here are those of keys.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditlake.verify.digest import Digest, Digested, Sums

SIDE_SCHEMA = pa.schema([("identity", pa.int64()), ("key", pa.list_(pa.string())), ("hashes", pa.list_(pa.int64()))])
"""Rows of one side of the comparison."""
_MOST_VALUES = 4_000_000

MISSING = "missing"
EXTRA = "extra"
DIFFERENT = "different"
DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True)
class Difference:
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


def differences(lake: pa.Table, source: pa.Table, *, keyed: bool) -> Iterator[Difference]:
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


def _of_identity(lake: list[_Row], source: list[_Row], *, keyed: bool) -> Iterator[Difference]:
    key = (lake or source)[0][0] if keyed else None
    surplus = len(lake) - len(source)
    if surplus < 0:
        yield Difference(MISSING, key, count=-surplus)
    elif surplus > 0:
        yield Difference(DUPLICATE if source else EXTRA, key, count=surplus)
    if lake and source and keyed and {hashes for _, hashes in lake} != {hashes for _, hashes in source}:
        yield Difference(DIFFERENT, key, _columns(lake, source))


def _columns(lake: Iterable[_Row], source: Iterable[_Row]) -> tuple[int, ...]:
    """Return the positions of columns in which a row of the lake differs from a row of the source."""
    pairs = [(ours, theirs) for _, ours in lake for _, theirs in source]
    width = len(pairs[0][0])
    return tuple(place for place in range(width) if any(ours[place] != theirs[place] for ours, theirs in pairs))
