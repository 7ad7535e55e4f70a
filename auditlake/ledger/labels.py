"""Labels of entries: kind, LSN, ordinal and name, by which a sealed row is found. The tree has only hashes and numbers.

If the row of an entry is there, the label is verified with it. If the row is missing, the label decides whether it may
be missing, because rows expire. To hide that a row was removed, somebody could change the label. So a label is refused
unless

L1  the first entry of a block, and no other, is that of the block;
L2  a change or a transaction is within the bounds of its block, which are sealed, and after the one before it;
L3  a row of a copy is in the block of its copy, whose entry has the number of its rows;
L4  the kind is one of these, or one whose entries must all have their rows.

Missing changes and transactions up to a horizon are counted by `ledger.verification`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from auditlake.delta.sql import read_newest, select
from auditlake.lake.layout import Lake
from auditlake.ledger.blocks import LAST_ORDINAL, Block
from auditlake.ledger.canonical import Kind


class WrongLabel(NamedTuple):
    """An entry whose label is refused, by its number and that of its block."""

    number: int
    block: int


def wrong_labels(lake: Lake, blocks: Sequence[Block], most: int) -> list[WrongLabel]:
    """Return the first entries of successive blocks with a label that is refused, at most so many."""
    tables = {place.name: read_newest(place) for place in lake.ledger_tables}
    of_blocks = f"between {blocks[0].number:d} and {blocks[-1].number:d}"
    rows = select(f"{_CHECKED.format(of_blocks=of_blocks)} limit {most:d}", **tables).to_pylist()
    return [WrongLabel(row["number"], row["block"]) for row in rows]


_COMMIT = f"case when b.{{0}}_ordinal = {LAST_ORDINAL} then b.{{0}}_lsn else greatest(b.{{0}}_lsn - 1, 0) end"
"""SQL for the last transaction that a bound of a block has as a whole, as `blocks.Bound.commit`."""
_IN_ORDER = "(lag(e.lsn) over w is null or (e.lsn, e.ordinal) > (lag(e.lsn) over w, lag(e.ordinal) over w))"
_AFTER, _UPTO = "(b.after_lsn, b.after_ordinal)", "(b.upto_lsn, b.upto_ordinal)"
_OTHERS = ", ".join(
    f"'{kind}'" for kind in Kind if kind not in {Kind.BLOCK, Kind.CHANGE, Kind.TRANSACTION, Kind.ROW, Kind.ENDED}
)
_CHECKED = f"""
select number, block from (
  select e.number, e.block, case
    when e.number = b.first_entry or e.kind = '{Kind.BLOCK}' then e.number = b.first_entry and e.kind = '{Kind.BLOCK}'
    when e.kind = '{Kind.CHANGE}' then e.lsn is not null and e.ordinal is not null
      and (e.lsn, e.ordinal) > {_AFTER} and (e.lsn, e.ordinal) <= {_UPTO} and {_IN_ORDER}
    when e.kind = '{Kind.TRANSACTION}' then e.ordinal = 0
      and e.lsn > {_COMMIT.format("after")} and e.lsn <= {_COMMIT.format("upto")} and {_IN_ORDER}
    when e.kind in ('{Kind.ROW}', '{Kind.ENDED}') then c.name is not null
    else e.kind in ({_OTHERS})
  end as is_right
  from entries e join blocks b on e.block = b.block
    left join (select distinct block, name, lsn from entries where kind = '{Kind.COPY}' and block {{of_blocks}}) c
      on e.kind in ('{Kind.ROW}', '{Kind.ENDED}') and c.block = e.block and c.name = e.name and c.lsn = e.lsn
  where e.block {{of_blocks}}
  window w as (partition by e.block, e.kind order by e.number)
) labelled
where not coalesce(is_right, false) order by number
"""
