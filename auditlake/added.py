"""What rows that were there before show in a column that was added: decided from two looks at the catalog. Pure.

ADD COLUMN leaves no trace in the stream but a Relation message before the next change of the table. What the rows show
that were there already is nowhere in it:

    nullable, no default        NULL
    a constant as default       the constant: not written anywhere, kept in `pg_attribute.attmissingval`
    anything else               the table is written anew (volatile default, identity, serial, stored generated column,
                                domain with constraints), each row with a value of its own

So the catalog is asked when the column is first seen, and what it says *then* must be shown to hold for the commit at
which it was seen, however long ago that was. An earlier look at the table (`Look`) makes that possible:

1. Every ADD COLUMN takes a new attribute number. If the column's is above all that there were at the look, and no other
   number above them has been dropped since, it was added once since the look: what the stream saw is what is there.
   A commit that lies before the look may have seen one that was dropped before it: that is not decided.
2. `atthasmissing` is set by ADD COLUMN alone, never changes its value, and is cleared when the table is written anew.
   Where it is set, it is what the old rows show.
3. Where it is not set, they show NULL, unless the table has been written anew since the look. That gives it another
   file (`pg_class.relfilenode`). Same file: NULL. Another file: TRUNCATE and VACUUM FULL do that too, so what the rows
   show is not known, and is not guessed.

Of a partitioned table that is asked of every partition that was there at the look; later ones hold no older rows. They
must agree.

Authority: postgresql.org/docs/current/catalog-pg-attribute.html; src/backend/commands/tablecmds.c, ATExecAddColumn
"""

from collections.abc import Mapping
from dataclasses import dataclass

from auditlake.lsn import Lsn


@dataclass(frozen=True, slots=True)
class Look:
    """A table at one moment: how many attributes it ever had, and the file of each table that holds its rows.

    Every commit that the look has seen lies before `lsn`. A key of `files` is an OID.
    """

    relation: int
    lsn: Lsn
    attributes: int
    files: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Part:
    """A table that holds rows: its file, and the text of the column's missing value, None where it has none."""

    file: int
    missing: str | None


@dataclass(frozen=True, slots=True)
class Found:
    """A column as the catalog has it now: its number, and the greatest number among the dropped ones."""

    number: int
    last_dropped: int
    parts: Mapping[int, Part]


@dataclass(frozen=True, slots=True)
class Existing:
    """What rows from before show: a text or None for NULL; not known where there is a `problem`."""

    value: str | None = None
    problem: str | None = None


def decide(look: Look | None, found: Found | None, seen: Lsn) -> Existing:
    """Say what rows from before the commit at `seen` show, where a column was first seen."""
    if found is None:
        return Existing(problem="the source does not have it any more")
    if look is None or seen <= look.lsn:
        return Existing(problem="the table was not looked at before it was added")
    if found.number <= look.attributes:
        return Existing(problem="the table had it before, under another name or unpublished")
    if found.last_dropped > look.attributes:
        return Existing(problem="a column was added and dropped meanwhile, perhaps the same one")
    answers = {_of_part(found.parts[oid], file) for oid, file in look.files.items() if oid in found.parts}
    if len(answers) > 1:
        return Existing(problem="its partitions show different values")
    return next(iter(answers), Existing())


def _of_part(part: Part, file: int) -> Existing:
    if part.missing is not None or part.file == file:
        return Existing(part.missing)
    return Existing(problem="the table was written anew, so each row may show another value")
