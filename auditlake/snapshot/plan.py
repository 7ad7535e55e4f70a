"""Which tables to take, and whether all that is needed is there. Reads only; refuses before anything is written."""

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import psycopg

from auditlake.errors import ConfigError, SourceUnready
from auditlake.postgres.blockers import locks_awaited
from auditlake.postgres.catalog import CatalogTable, read_tables
from auditlake.postgres.check import (
    Finding,
    check_access,
    check_ownership,
    check_publication,
    check_server,
    check_table,
    read_server_facts,
    remarks_on,
)
from auditlake.postgres.connection import Row
from auditlake.postgres.followed import FollowedTable, Source, choose, skipped
from auditlake.postgres.publication import Publication, can_carry_stored, read_publication
from auditlake.postgres.slot import SlotState, read_slot
from auditlake.relation import TableName


@dataclass(frozen=True, slots=True)
class Plan:
    """The tables to take, those of them that the publication lacks, and what exists of publication and slot.

    `remarks` are sentences about what is wanted but is not followed, or not in every case; `unreadable` says why some
    tables, not all, cannot be copied now.
    """

    chosen: tuple[FollowedTable, ...]
    unpublished: tuple[FollowedTable, ...]
    publication: Publication | None
    slot: SlotState | None
    remarks: tuple[str, ...]
    unreadable: Mapping[TableName, SourceUnready] = field(default_factory=dict)


def make_plan(
    conn: psycopg.Connection[Row], patterns: tuple[str, ...] | None, publication_name: str, slot_name: str
) -> Plan:
    """Choose the tables and check everything.

    Raises SourceUnready with all findings, unless they only keep some of the tables from being copied; ConfigError
    where no table is chosen.
    """
    plan = survey(conn, patterns, publication_name, slot_name)
    denied = {table.name: found for table in plan.chosen if (found := check_access(table))}
    found = _obstacles(conn, plan)
    if found or len(denied) == len(plan.chosen):
        raise _unready([*found, *(finding for each in denied.values() for finding in each)])
    return replace(plan, unreadable={name: _unready(found) for name, found in denied.items()})


def _unready(found: Sequence[Finding]) -> SourceUnready:
    return SourceUnready(
        "; ".join(str(finding) for finding in found), " ".join(dict.fromkeys(finding.mend for finding in found))
    )


def survey(
    conn: psycopg.Connection[Row], patterns: tuple[str, ...] | None, publication_name: str, slot_name: str
) -> Plan:
    """Choose the tables without judging them.

    Raises ConfigError where none is chosen.
    """
    source = read_source(conn, publication_name)
    chosen = chosen_of(source, patterns)
    left_out = skipped(source, lambda table: matches(table, patterns or ()))
    if not chosen:
        what = f"match {', '.join(patterns)}" if patterns else "are there to take"
        but = f" but {', '.join(map(str, left_out))}, unlogged or foreign" if left_out else ""
        raise ConfigError(f"no tables {what}{but}", "Correct the setting tables, or create tables first.")
    lacks = source.publication is not None
    unpublished = tuple(table for table in chosen if lacks and source.published(table.name) is None)
    remarks = [f"{name} is left out: it is unlogged or foreign, so its changes are not in the log" for name in left_out]
    remarks += [remark for table in chosen for remark in remarks_on(table)]
    return Plan(chosen, unpublished, source.publication, read_slot(conn, slot_name), tuple(remarks))


def read_source(conn: psycopg.Connection[Row], publication_name: str) -> Source:
    """Read tables and publication as the connection sees them.

    Raises SourceUnready, naming who blocks: PostgreSQL opens every published table to tell its columns.
    """
    tables = read_tables(conn)
    what = f"the tables of publication {publication_name} could not be read"
    with locks_awaited(conn, what, [table.name for table in tables]):
        return Source(tables, read_publication(conn, publication_name), can_carry_stored(conn))


def chosen_of(source: Source, patterns: tuple[str, ...] | None) -> tuple[FollowedTable, ...]:
    """Choose the tables that match; None: all of the publication, or all there are where there is none."""
    return choose(source, None if patterns is None else lambda table: matches(table, patterns))


def findings(conn: psycopg.Connection[Row], plan: Plan) -> list[Finding]:
    """Judge a plan: everything that stands between it and a complete history."""
    return [*_obstacles(conn, plan), *(finding for table in plan.chosen for finding in check_access(table))]


def _obstacles(conn: psycopg.Connection[Row], plan: Plan) -> list[Finding]:
    """Judge what concerns more than the copy of a table."""
    facts = read_server_facts(conn)
    found = check_server(facts, slot_exists=plan.slot is not None)
    for table in plan.chosen:
        found += check_table(table, facts.major)
    if plan.publication is None:
        return [*found, *check_ownership(facts, plan.chosen, create=True)]
    found += check_publication(plan.publication)
    return [*found, *check_ownership(facts, plan.unpublished, create=False)]


def matches(table: CatalogTable, patterns: Iterable[str]) -> bool:
    """Whether `schema.table` matches a pattern (`*`, `?`) and none that begins with `!`."""
    name = f"{table.name.schema}.{table.name.table}"
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
    unwanted = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in unwanted):
        return False
    return not wanted or any(fnmatch.fnmatchcase(name, pattern) for pattern in wanted)
