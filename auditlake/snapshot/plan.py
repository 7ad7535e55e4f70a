"""Plan a bootstrap: choose tables, check all preconditions, claim lake and publication.

Order of effects, as `bootstrap` calls them:
  1. `make_plan` reads only, and refuses before anything is written.
  2. `is_ours` and `claim`: the folder becomes this source's lake with its manifest. From then on, the slot and
     publication that the manifest names are ours; a slot that exists before is another's, and refused.
  3. `publish`: the publication must contain the tables before their snapshot is taken.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TypeAlias

import psycopg

from auditlake.errors import ConfigError, SourceUnready, WrongSource
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, read_manifest, write_manifest
from auditlake.relation import SYSTEM_SCHEMA, TableName
from auditlake.source import lock_waits
from auditlake.source.catalog import (
    CatalogTable,
    FollowedTable,
    Source,
    choose,
    never_followed,
    read_tables,
    unpublished_of,
)
from auditlake.source.connection import Row
from auditlake.source.preflight import (
    Obstacle,
    advise_on_encoding,
    advise_on_owner,
    advise_on_publication,
    check_access,
    check_creation,
    check_ownership,
    check_publication,
    check_server,
    check_table,
    read_server_facts,
    remarks_on,
)
from auditlake.source.publication import (
    Publication,
    add_tables,
    can_publish_stored,
    create_publication,
    read_publication,
)
from auditlake.source.slot import SlotState, read_slot
from auditlake.source.strangers import stranger_of_publication, tables_of_strangers

Wanted: TypeAlias = tuple[str, ...] | frozenset[TableName]
"""Patterns of `schema.table`, or names."""
_FIRST = 3
_ALL_TIMEOUT_S = 1.0
"""How long a lock may delay the publication of all tables, before it delays that of its own."""
OURS = f"the schema {SYSTEM_SCHEMA} is the lake's own in questions, so its tables are not copied"


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The chosen tables, those not yet published, and the publication and slot if they exist.

    `remarks` are sentences about chosen tables or changes that cannot be followed, `advice` options of the publication
    to change before the first copy; `unreadable` has the reason for each table that cannot be copied now, if
    others can.
    """

    publication_name: str
    chosen: tuple[FollowedTable, ...]
    unpublished: tuple[FollowedTable, ...]
    publication: Publication | None
    slot: SlotState | None
    remarks: tuple[str, ...]
    advice: tuple[Obstacle, ...] = ()
    unreadable: Mapping[TableName, SourceUnready] = field(default_factory=dict)


def make_plan(conn: psycopg.Connection[Row], wanted: Wanted | None, publication_name: str, slot_name: str) -> CopyPlan:
    """Choose the tables and check all preconditions.

    Raises:
        SourceUnready: with all findings, unless they only prevent the copy of some of the tables.
        ConfigError: if no table is wanted, or none can be followed.
    """
    plan = survey(conn, wanted, publication_name, slot_name)
    denied = _denied(plan.chosen, conn.info.user)
    found = _obstacles(conn, plan)
    if found or (denied and len(denied) == len(plan.chosen)):
        raise _unready([*found, *(finding for each in denied.values() for finding in each)])
    return replace(plan, unreadable=find_unreadable(plan.chosen, conn.info.user))


def find_unreadable(tables: Iterable[FollowedTable], role: str) -> dict[TableName, SourceUnready]:
    """Return the tables that our role may not copy, each with the reason and the remedy."""
    return {name: _unready(found) for name, found in _denied(tables, role).items()}


def _denied(tables: Iterable[FollowedTable], role: str) -> dict[TableName, list[Obstacle]]:
    return {table.name: found for table in tables if (found := check_access(table, role))}


def _unready(found: Sequence[Obstacle]) -> SourceUnready:
    """Return an error with the first three findings, which refers to `check` for all of them."""
    first, rest = found[:_FIRST], len(found) - _FIRST
    more = f"; and {rest} more" if rest > 0 else ""
    hint = " ".join(dict.fromkeys(finding.fix for finding in first))
    return SourceUnready(
        "; ".join(map(str, first)) + more,
        f"{hint} Run auditlake check, with the same tables, for all findings and the SQL that fixes them.",
    )


def survey(conn: psycopg.Connection[Row], wanted: Wanted | None, publication_name: str, slot_name: str) -> CopyPlan:
    """Choose the tables, without checking them; raises ConfigError if none is wanted or none can be followed."""
    source = read_source(conn, publication_name)
    chosen, ours = without_ours(chosen_of(source, wanted))
    left_out = never_followed(source, lambda table: is_chosen(table, wanted or ()))
    if not chosen and (wanted or left_out or ours):
        what = f"match {', '.join(map(str, wanted))}" if wanted else "exist"
        but = f" but {', '.join(map(str, left_out))}, unlogged or foreign" if left_out else ""
        if ours:
            but += f" but {', '.join(map(str, ours))}, in the schema {SYSTEM_SCHEMA}, which is the lake's own"
        raise ConfigError(f"no tables {what}{but}", "Correct the setting tables, or create tables first.")
    lacks = source.publication is not None
    unpublished = tuple(table for table in chosen if lacks and source.published(table.name) is None)
    remarks = [f"{name} is left out: it is unlogged or foreign, so its changes are not in WAL" for name in left_out]
    remarks += [f"{name} is left out: {OURS}" for name in ours]
    remarks += [remark for table in chosen for remark in remarks_on(table)]
    slot = read_slot(conn, slot_name)
    advice = advise_on_encoding(conn.info.parameter_status("server_encoding") or "", conn.info.dbname)
    if source.publication is not None and slot is None:
        advice += advise_on_publication(source.publication, chosen, conn.info.server_version // 10000)
        owner = stranger_of_publication(conn, publication_name)
        advice += advise_on_owner(source.publication, owner, unpublished_of(source))
    return CopyPlan(publication_name, chosen, unpublished, source.publication, slot, tuple(remarks), tuple(advice))


def read_source(conn: psycopg.Connection[Row], publication_name: str) -> Source:
    """Read tables and publication under the connection's snapshot; it waits for no lock."""
    return Source(read_tables(conn), read_publication(conn, publication_name), can_publish_stored(conn))


def chosen_of(source: Source, wanted: Wanted | None) -> tuple[FollowedTable, ...]:
    """Return the wanted tables; without patterns, all published ones, or all if there is no publication."""
    return choose(source, None if wanted is None else lambda table: is_chosen(table, wanted))


def without_ours(tables: Sequence[FollowedTable]) -> tuple[tuple[FollowedTable, ...], tuple[TableName, ...]]:
    """Return the tables that may be copied, and the names of those in the lake's own schema, which never are.

    Questions would take some of them for the lake's tables, and anyone who may create a schema can make them.
    """
    ours = tuple(table.name for table in tables if table.name.schema == SYSTEM_SCHEMA)
    return tuple(table for table in tables if table.name.schema != SYSTEM_SCHEMA), ours


def findings(conn: psycopg.Connection[Row], plan: CopyPlan) -> list[Obstacle]:
    """Return everything that prevents a complete history of the plan's tables."""
    return [
        *_obstacles(conn, plan),
        *(finding for table in plan.chosen for finding in check_access(table, conn.info.user)),
        *_check_strangers(conn, plan.chosen),
    ]


def _check_strangers(conn: psycopg.Connection[Row], tables: Sequence[FollowedTable]) -> Iterator[Obstacle]:
    """Find tables that are read by a copy without a query, which shows less; their owners are those of this moment."""
    strange = tables_of_strangers(conn, {part.relation.oid for table in tables for part in table.parts})
    for table in tables:
        generated = table.table.stored & {column.name for column in table.relation.columns}
        if strange.isdisjoint(part.relation.oid for part in table.parts) or not (table.row_filter or generated):
            continue
        from auditlake.snapshot import text_copy  # noqa: PLC0415 - pyarrow, for the few that have such tables

        what = text_copy.A_ROW_FILTER if table.row_filter else text_copy.A_GENERATED_COLUMN
        error, name = text_copy.refused_copy(table.name, what), f"table {table.name}"
        yield Obstacle(name, error.message.removeprefix(f"{name} "), error.hint or "")


def _obstacles(conn: psycopg.Connection[Row], plan: CopyPlan) -> list[Obstacle]:
    """Return the findings that concern more than the copy of one table."""
    facts = read_server_facts(conn)
    found = check_server(facts, slot_exists=plan.slot is not None)
    for table in plan.chosen:
        found += check_table(table, facts.major)
    if plan.publication is None:
        return [*found, *check_creation(facts, plan.chosen, plan.publication_name)]
    found += check_publication(plan.publication)
    return [*found, *check_ownership(facts, plan.unpublished, plan.publication_name)]


def is_chosen(table: CatalogTable, wanted: Wanted) -> bool:
    """Return whether a table is one of the names, or matches a pattern and none that begins with `!`."""
    if isinstance(wanted, frozenset):
        return table.name in wanted
    patterns = [each for each in wanted if not each.startswith("!")]
    excepted = (each[1:] for each in wanted if each.startswith("!"))
    if any(matches_pattern(each, table.name) for each in excepted):
        return False
    return not patterns or any(matches_pattern(each, table.name) for each in patterns)


def matches_pattern(pattern: str, name: TableName) -> bool:
    """Return whether a pattern of `schema.table` matches, or is the name itself, as PostgreSQL has it or we show it."""
    text = f"{name.schema}.{name.table}"
    return pattern in {text, str(name)} or fnmatchcase(text, pattern)


def is_ours(lake: Lake, manifest: Manifest) -> bool:
    """Return whether the folder is this source's lake; False if it is not a lake yet."""
    recorded = read_manifest(lake)
    if recorded is not None:
        recorded.check_same(manifest)
    return recorded is not None


def claim(lake: Lake, manifest: Manifest, plan: CopyPlan) -> None:
    """Make the folder this source's lake.

    Raises:
        WrongSource: if the slot exists: it is another lake's.
        LakeUnusable: if the folder cannot be a lake.
    """
    if plan.slot is not None:
        kind = f"{plan.slot.plugin or 'physical'}, database {plan.slot.database or '-'}"
        raise WrongSource(
            f"slot {manifest.slot} exists already ({kind}), and {lake.root} has no record of it",
            f"Choose another slot, or drop that one: select pg_drop_replication_slot('{manifest.slot}').",
        )
    write_manifest(lake, manifest)


_CHANGED_MEANWHILE = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.UndefinedObject,
    psycopg.errors.DuplicateObject,
)


def publish(
    control: psycopg.Connection[Row], publication: str, plan: CopyPlan
) -> dict[TableName, SourceUnready] | None:
    """Create the publication, or add tables; return those that other sessions lock, which are not added, and why.

    None if a table, its schema or the publication was dropped or renamed since the plan, or another process was faster.
    Raises SourceUnready, also if a lock keeps the publication from being created: it gets all of the tables or none.
    """
    deadline = time.monotonic() + lock_waits.LOCK_TIMEOUT_S
    try:
        if plan.publication is None:
            what, names = f"publication {publication} could not be created", [table.name for table in plan.chosen]
            with lock_waits.locks_awaited(control, what, names, lock_waits.AGAINST_PUBLISHING, deadline):
                create_publication(control, publication, names)
            return {}
        return _add(control, publication, [table.name for table in plan.unpublished], deadline)
    except _CHANGED_MEANWHILE:
        return None


def _add(
    control: psycopg.Connection[Row], publication: str, names: Sequence[TableName], deadline: float
) -> dict[TableName, SourceUnready]:
    """Add tables together or, if one is locked, each for itself; return those that stay locked, with the reason."""
    if not names or _find_lock(control, publication, names, time.monotonic() + _ALL_TIMEOUT_S) is None:
        return {}
    locks = {name: _find_lock(control, publication, [name], deadline) for name in names}
    return {name: lock for name, lock in locks.items() if lock is not None}


def _find_lock(
    control: psycopg.Connection[Row], publication: str, names: Sequence[TableName], deadline: float
) -> SourceUnready | None:
    """Add tables to a publication; return the reason if a lock on one of them prevents it up to the deadline."""
    what = f"table {', '.join(map(str, names))} could not be published"
    try:
        with lock_waits.locks_awaited(control, what, names, lock_waits.AGAINST_PUBLISHING, deadline):
            add_tables(control, publication, names)
    except SourceUnready as exc:
        if not isinstance(exc.__cause__, psycopg.errors.LockNotAvailable):
            raise
        return exc
    return None
