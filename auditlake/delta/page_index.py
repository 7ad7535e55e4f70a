"""Pages of a Parquet file and the indexes by which readers skip them, which pyarrow does not show.

Spark and DataFusion skip pages by their bounds, and Spark skips row groups whose dictionary lacks a value. So this
module lists the pages themselves. The index must name exactly these pages, and if a column chunk claims that its
dictionary encodes all of them, it must.

A file is any program's, so each number in it may be wrong: then it is no Parquet file (`NOT_PARQUET`).

Authority: Parquet's format, "Page Index", parquet.thrift; Thrift's compact protocol
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import IO, Any

NOT_PARQUET = (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError, RecursionError)
"""Raised by reading bytes that are not as the format defines."""
_FOOTER_END = 8
_ROW_GROUPS, _CHUNKS, _METADATA, _OFFSET_INDEX, _COLUMN_INDEX = 4, 1, 3, 4, 6
_ENCODINGS, _SIZE, _FIRST_DATA, _FIRST_DICTIONARY, _ENCODING_STATS, _BLOOM_FILTER = 2, 7, 9, 11, 13, 14
_PAGE_SIZE, _PAGE_V1, _PAGE_V2 = 3, 5, 8
"""Numbers of fields: of footer, row group and column chunk; of the metadata of a chunk; of the header of a page."""
_PLAIN_DICTIONARY = 2
_DICTIONARY, _OF_LEVELS = frozenset({_PLAIN_DICTIONARY, 8}), frozenset({3, 4})
"""Encodings of pages by a dictionary, and of the levels of nested values."""
_DATA_PAGES = frozenset({0, 3})
"""Types of pages."""
_MORE, _LOW, _LONGEST, _LONG = 0x80, 0x7F, 63, 15

Struct = Mapping[int, Any]
"""A struct of Thrift: its fields by number."""


class _Type(IntEnum):
    TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, _, STRUCT = range(1, 13)


@dataclass(frozen=True, slots=True)
class DataPage:
    """A page of a column without lists: its first row in the row group, its rows, and what the index has of it.

    `bounds` are as they are stored; None without an index, or if it says that all values are NULL.
    """

    first: int
    rows: int
    bounds: tuple[bytes, bytes] | None = None
    nulls: int | None = None
    only_nulls: bool = False


@dataclass(frozen=True, slots=True)
class ColumnPages:
    """The pages of a column of a row group; `order` is that of their bounds, as the index says: 1 ascending, -1 not."""

    pages: Sequence[DataPage]
    order: int = 0


class PageIndexes:
    """The pages of a file that is open; raises NOT_PARQUET."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        end = file.seek(-_FOOTER_END, 2)
        self._bytes = end + _FOOTER_END
        length = int.from_bytes(file.read(_FOOTER_END)[:4], "little")
        self._groups = [each[_CHUNKS] for each in _Compact(self._read(end - length, length)).struct()[_ROW_GROUPS]]

    def has_bloom_filter(self, group: int, column: int) -> bool:
        """Return whether a column of a row group has a Bloom filter."""
        return _BLOOM_FILTER in self._groups[group][column][_METADATA]

    def pages(self, group: int, column: int) -> ColumnPages:
        """Return the pages of a column of a row group that has no lists; raises ValueError if the index has others."""
        chunk, first = self._groups[group][column], 0
        pages, located = list[DataPage](), []
        for place, size, rows in self._walked(chunk[_METADATA]):
            located.append((place, size, first))
            pages.append(DataPage(first, rows))
            first += rows
        offsets, index = (self._index(chunk, field) for field in (_OFFSET_INDEX, _COLUMN_INDEX))
        if offsets and located != [(each[1], each[2], each[3]) for each in offsets[1]]:
            raise ValueError("a page index names other pages")
        if not index:
            return ColumnPages(pages)
        nulls = index.get(5) or [None] * len(pages)
        columns = zip(pages, index[1], index[2], index[3], nulls, strict=True)
        indexed = [
            DataPage(page.first, page.rows, None if only else (least, greatest), null, only)
            for page, only, least, greatest, null in columns
        ]
        return ColumnPages(indexed, {0: 0, 1: 1, 2: -1}[index[4]])

    def _walked(self, chunk: Struct) -> Iterator[tuple[int, int, int]]:
        """Yield the place, the size and the number of rows of each data page of a column chunk."""
        begin = min(place for place in (chunk.get(_FIRST_DICTIONARY), chunk[_FIRST_DATA]) if place)
        reader = _Compact(self._read(begin, chunk[_SIZE]))
        by_dictionary = _is_by_dictionary(chunk)
        while reader.place < len(reader.content):
            first = reader.place
            header = reader.struct()
            reader.skip(header[_PAGE_SIZE])
            data = header.get(_PAGE_V1) or header.get(_PAGE_V2)
            if data is not None:
                if by_dictionary and data[2 if _PAGE_V1 in header else 4] not in _DICTIONARY:
                    raise ValueError("a page is not encoded by the dictionary")
                yield begin + first, reader.place - first, data[1]

    def _index(self, chunk: Struct, field: int) -> Struct:
        """Read an index, whose place is in a field and its length in the next; empty if there is none."""
        return _Compact(self._read(chunk[field], chunk[field + 1])).struct() if field in chunk else {}

    def _read(self, place: int, length: int) -> bytes:
        if not 0 <= place <= place + length <= self._bytes:  # for any length, memory would be asked for
            raise ValueError("a place is not in the file")
        self._file.seek(place)
        return self._file.read(length)


def _is_by_dictionary(chunk: Struct) -> bool:
    """Return whether a column chunk says that all its data pages are encoded by its dictionary."""
    if _ENCODING_STATS in chunk:
        return {each[2] for each in chunk[_ENCODING_STATS] if each[1] in _DATA_PAGES} <= _DICTIONARY
    return _PLAIN_DICTIONARY in chunk[_ENCODINGS] and {*chunk[_ENCODINGS]} <= _DICTIONARY | _OF_LEVELS


class _Compact:
    """Reads structs in Thrift's compact protocol from bytes; `place` is the next one."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.place = 0

    def struct(self) -> dict[int, Any]:
        found, number = dict[int, Any](), 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._whole()
            found[number] = head & 15 == _Type.TRUE if head & 15 <= _Type.FALSE else self._value(head & 15)
        return found

    def skip(self, length: int) -> None:
        """Go on after so many bytes."""
        if not 0 <= length <= len(self.content) - self.place:
            raise ValueError("a length is not in the file")
        self.place += length

    def _value(self, kind: int) -> Any:  # noqa: ANN401 - of any type
        match kind:
            case _Type.TRUE | _Type.FALSE | _Type.BYTE:  # a list has these in bytes
                return self._byte() if kind == _Type.BYTE else self._byte() == _Type.TRUE
            case _Type.I16 | _Type.I32 | _Type.I64:
                return self._whole()
            case _Type.DOUBLE | _Type.BINARY:
                return self._bytes(8 if kind == _Type.DOUBLE else self._number())
            case _Type.LIST | _Type.SET:
                head = self._byte()
                length = self._number() if head >> 4 == _LONG else head >> 4
                return [self._value(head & 15) for _ in range(length)]
            case _Type.STRUCT:
                return self.struct()
        raise ValueError(f"type {kind} is not used in Parquet")

    def _byte(self) -> int:
        self.skip(1)
        return self.content[self.place - 1]

    def _bytes(self, length: int) -> bytes:
        self.skip(length)
        return self.content[self.place - length : self.place]

    def _number(self) -> int:
        found = shift = 0
        while (byte := self._byte()) & _MORE and shift < _LONGEST:
            found, shift = found | (byte & _LOW) << shift, shift + 7
        return found | byte << shift

    def _whole(self) -> int:
        number = self._number()
        return number >> 1 ^ -(number & 1)
