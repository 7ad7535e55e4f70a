"""Records: the small JSON files of a lake, each replaced as a whole: a reader sees the old content or the new.

    capture.json                   the state that the last capture reported, for `status` in another process
    apply.json                     the engine that folded the last batch, for the same reader
    publication.json               what the publication carried of the tables that have a history
    shapes/<schema>.<table>.json   each followed table as of capture's last comparison with the catalog

`lake.manifest`, `lake.parking` and others write files of their own by `write_record` and `change_record`. Only a file
written as durable is fsynced. All other state that cannot be recreated is in the Delta tables. Every function that
writes raises LakeUnusable if the folder cannot be written, every one that reads if the file is damaged.

The capture status is written when capture connects, loses its source or ends. It is informational: a killed capture
leaves its last state behind, so only the slot's active reader shows whether a capture is running.

Bootstrap records each table in the publication record when it copies it; from then on, all of its changes must be
published. If the record is lost, capture creates it at its next comparison. Bootstrap writes the shape before the
table's snapshot, while it holds the table's lock; afterwards only capture does. So a change of the table is detected
even if nothing captured when it was made.

The publication record also shows which history belongs to a table of the source: the one recorded with its OID. A
history, and everything in the lake that has its name (parked tables, shapes, gaps), has the name under which the table
was copied:

    public.orders           the first table of that name
    public.orders@16455     a later one, with the OID 16455: the first was dropped, or has got another name

A name at the source may therefore mean several histories, one after the other (`temporal.moments.Known.named`).
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, is_dataclass, replace
from datetime import UTC, datetime
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from auditlake.errors import AuditlakeError, LakeConflict, LakeUnusable
from auditlake.lake.layout import Lake
from auditlake.lake.stage_lock import Stage, holder_lives
from auditlake.lsn import Lsn
from auditlake.pgoutput.table_shape import Shape
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.source.publication_membership import Member, Membership
from auditlake.store import files
from auditlake.store.attempts import attempts
from auditlake.store.failures import NotAFile, as_disk_error, as_lake_error, remedy_of
from auditlake.store.place import Place

_RUNNING = frozenset({"running", "trying again"})
_DIGITS = 6
_NUMBERED = re.compile(rf"\d{{{_DIGITS}}}\.json")
_ATTEMPTS = 20
_RESTORE_PUBLICATION = "Restore it, or use another lake."
_Content = TypeVar("_Content")


def write_record(lake: Lake, place: Place, content: object, *, durable: bool = False) -> None:
    """Replace the file at `place` by `content`; a folder below the lake's is created if missing."""
    with writing_files(lake.root):
        if place.parent != lake.root:  # the root exists, or this is not a lake
            files.ensure_folder(place.parent)
        replace_json(place, content, durable=durable)


@contextmanager
def writing_files(folder: Place) -> Iterator[None]:
    """Raise a failed write to a folder as LakeUnusable."""
    try:
        yield
    except FileNotFoundError as exc:
        raise LakeUnusable(
            f"{exc.filename} is gone: another process changed {folder} while this one wrote to it",
            "Run it again when no other process works there.",
        ) from exc
    except NotAFile as exc:
        raise as_lake_error(exc) or exc from exc
    except OSError as exc:
        raise LakeUnusable(f"{exc.filename or folder} cannot be written: {exc.strerror}", remedy_of(exc)) from exc


def update_record(
    lake: Lake, place: Place, read: Callable[[Any], _Content], change: Callable[[_Content | None], object], remedy: str
) -> None:
    """Replace a durable file by what `change` makes of what `read` returns, None without a file; None leaves it.

    Writers change it one after the other. Raises LakeUnusable; an error of a damaged file has the remedy.
    """

    def changed(before: bytes | None) -> str | None:
        try:
            found = None if before is None else read(json.loads(before))
        except BROKEN as exc:
            raise unreadable(place, exc, remedy) from exc
        content = change(found)
        return None if content is None else _as_json(content)

    with writing_files(lake.root):
        if place.parent != lake.root:
            files.ensure_folder(place.parent)
        files.update_file(place, changed)


def read_record(place: Place, read: Callable[[Any], _Content], remedy: str) -> _Content | None:
    """Return what `read` makes of the content of a file; None if it is absent. An error has the remedy."""
    try:
        return read(json.loads(files.read_file(place)))
    except FileNotFoundError:
        return None
    except BROKEN as exc:
        raise unreadable(place, exc, remedy) from exc


def require_record(place: Place, read: Callable[[Any], _Content], remedy: str) -> _Content:
    """Return the same of a file that must be there."""
    if (found := read_record(place, read, remedy)) is None:
        raise LakeUnusable(f"{place} is missing", remedy)
    return found


def typed(kind: type[_Content], content: object) -> _Content:
    """Return JSON as a dataclass, with lists as tuples; raises one of BROKEN if a field has another type.

    Types may be `int` of 64 bits, `bool`, `str`, a tuple, another such dataclass, and one of these or None.
    """
    found: _Content = _typed(kind, content)
    return found


def _typed(kind: Any, content: Any) -> Any:  # noqa: ANN401 - of any type
    if isinstance(kind, UnionType):
        return None if content is None else _typed(get_args(kind)[0], content)
    if is_dataclass(kind):
        hints, make = get_type_hints(kind), cast("Callable[..., object]", kind)
        return make(**{name: _typed(hints[name], each) for name, each in content.items()})
    if get_origin(kind) is tuple and isinstance(content, list):
        first, *others = get_args(kind)
        kinds = [first] * len(content) if others == [...] else [first, *others]
        return tuple(_typed(each, value) for each, value in zip(kinds, content, strict=True))
    if type(content) is not kind:
        raise TypeError(f"{type(content).__name__} in place of {kind}")
    if kind is str:
        content.encode()  # an error if it is no text
    else:
        content.to_bytes(8, signed=True)
    return content


BROKEN = (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""Exceptions of reading JSON that is damaged, or of another form."""


def unreadable(place: Place, exc: Exception, remedy: str) -> LakeUnusable:
    """Return the error for a file that cannot be read; its message has no part of the file, which may have values.

    `remedy` is for a damaged file: if the disk or the store failed, the file may be as it should be.
    """
    if isinstance(exc, KeyError):
        return LakeUnusable(
            f"{place} lacks an entry: it is damaged, or of another version",
            f"{remedy} If another version wrote the lake, use it, or begin another lake with auditlake bootstrap.",
        )
    if not isinstance(exc, OSError):
        return LakeUnusable(f"{place} cannot be read: {type(exc).__name__}", remedy)
    failure = as_lake_error(exc) or as_disk_error(exc)
    return LakeUnusable(f"{place} cannot be read: {exc.strerror}", remedy if failure is None else failure.hint)


def change_record(lake: Lake, place: Place, content: object, version: str | None) -> None:
    """Replace a durable file that was read as `version` (`store.files.read_versioned`), None if it was absent.

    On a disk, the lock of the stage that writes it keeps others out. A lease may have passed to another process.

    Raises LakeConflict if another process changed it meanwhile.
    """
    with _changing(lake, place):
        if place.parent != lake.root:
            files.ensure_folder(place.parent)
        files.replace_version(place, _as_json(content), version)


def remove_record(lake: Lake, place: Place, version: str | None) -> None:
    """Remove such a file; in a store it stays, as a record of nothing. Raises as `change_record`."""
    with _changing(lake, place):
        files.remove_version(place, "{}\n", version)


@contextmanager
def _changing(lake: Lake, place: Place) -> Iterator[None]:
    with writing_files(lake.root):
        try:
            yield
        except FileExistsError:
            raise LakeConflict(
                f"another process changed {place}", "Another process has taken over this stage; stop this one."
            ) from None


def read_numbered(folder: Place, read: Callable[[Any], _Content], remedy: str) -> list[_Content]:
    """Return what `read` makes of each file of a folder that `write_numbered` wrote, in their order."""
    return files.read_each(folder, lambda place: require_record(place, read, remedy), numbered_records(folder))


def numbered_records(folder: Place) -> list[Place]:
    """List the files of a folder that `write_numbered` wrote, in their order; raises LakeUnusable if one is missing."""
    places = _list_numbered(folder)
    if _lacking(places) is not None:  # a listing may lack a file that was written meanwhile, and have the next one
        places = _list_numbered(folder)
    if (name := _lacking(places)) is not None:
        raise LakeUnusable(f"{folder / name} is missing, and later records are there", "Restore it from a backup.")
    return places


def _list_numbered(folder: Place) -> list[Place]:
    places: list[Place] = [place for place in folder.glob("*.json") if _NUMBERED.fullmatch(place.name)]
    return sorted(places, key=lambda place: place.name)


def _lacking(places: Sequence[Place]) -> str | None:
    """Return the first name that is not among the files."""
    names = [place.name for place in places]
    return next((name for number, found in enumerate(names) if (name := _numbered(number)) != found), None)


def _numbered(number: int) -> str:
    return f"{number:0{_DIGITS}}.json"


def write_numbered(folder: Place, content: Callable[[int], object]) -> None:
    """Write a durable file, never replaced, under the next number, which `content` gets; raises LakeConflict."""
    with writing_files(folder):
        files.make_folder(folder)
        for _ in attempts(_ATTEMPTS, str(folder), "Run this again."):
            number = max((int(place.name[:_DIGITS]) for place in numbered_records(folder)), default=-1) + 1
            text = json.dumps(content(number), indent=2, ensure_ascii=False)
            with suppress(FileExistsError):
                files.put_if_absent(folder / _numbered(number), text.encode())
                return


def replace_json(
    place: Place, content: object, *, durable: bool, before_rename: Callable[[], None] = lambda: None
) -> None:
    """Replace the file at `place` by `content`, in an existing folder; raises OSError."""
    files.replace_file(place, _as_json(content), durable=durable, before_rename=before_rename)


def _as_json(content: object) -> str:
    return json.dumps(content, indent=2) + "\n"


@dataclass(frozen=True, slots=True)
class CaptureState:
    """State of capture from `since` (ISO, UTC) on: running, trying again or ended.

    `problem` is what caused it, with its `remedy`. `state` is None if only bootstrap has captured so far. At the LSN
    `publication_seen` (time: `publication_seen_us`, in microseconds since 1970) the publication was last checked, and
    still published everything that lake.json records; `publication_schemas` are the OIDs of the entries of its schemas
    then.
    """

    state: str | None
    since: str
    problem: str | None = None
    remedy: str | None = None
    publication_seen: str | None = None
    publication_seen_us: int | None = None
    publication_schemas: Sequence[int] | None = None


def write_state(lake: Lake, state: str, failure: AuditlakeError | None = None) -> None:
    """Record the state of capture from now on, and the failure that caused it."""
    before = read_capture_state(lake) or CaptureState(None, "")
    problem, remedy = (failure.message, failure.hint or None) if failure is not None else (None, None)
    _write_status(lake, replace(before, state=state, since=_now(), problem=problem, remedy=remedy))


def captures_now(lake: Lake) -> bool:
    """Return whether the last recorded state is a running capture, and its process is not known to have died."""
    last = read_capture_state(lake)
    return last is not None and last.state in _RUNNING and holder_lives(lake, Stage.CAPTURE) is not False


def write_seen(lake: Lake, lsn: Lsn, time_us: int, schemas: Collection[int]) -> None:
    """Record the LSN and the time of a check that found the publication to publish everything that lake.json records.

    `schemas` are the OIDs of the entries of its schemas.
    """
    before = read_capture_state(lake) or CaptureState(None, _now())
    seen = replace(before, publication_seen=str(lsn), publication_seen_us=time_us, publication_schemas=sorted(schemas))
    _write_status(lake, seen)


def read_seen(lake: Lake) -> tuple[Lsn, int | None] | None:
    """Read the LSN and time of the last `write_seen`."""
    state = read_capture_state(lake)
    if state is None or state.publication_seen is None:
        return None
    return Lsn.parse(state.publication_seen), state.publication_seen_us


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _write_status(lake: Lake, state: CaptureState) -> None:
    write_record(lake, lake.capture_state, asdict(state))


def read_capture_state(lake: Lake) -> CaptureState | None:
    """Read the capture status; None if capture never ran."""
    return read_record(lake.capture_state, lambda content: CaptureState(**content), "Remove it; capture recreates it.")


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The engine of the last batch of apply, and why that was not folded in apply's own process.

    `since` is when the first batch was like that (ISO, UTC): the record is written only when it changes.
    """

    engine: str
    reason: str | None
    since: str


def write_last_batch(lake: Lake, engine: str, reason: str | None) -> None:
    """Record the engine of a batch, unless that of the last one was the same, for the same reason."""
    before = read_last_batch(lake)
    if before is None or (before.engine, before.reason) != (engine, reason):
        write_record(lake, lake.last_batch, asdict(LastBatch(engine, reason, _now())))


def read_last_batch(lake: Lake) -> LastBatch | None:
    """Read the engine of the last batch; None if apply has folded nothing yet."""
    return read_record(lake.last_batch, lambda content: LastBatch(**content), "Remove it; apply recreates it.")


def read_recorded(lake: Lake) -> Membership | None:
    """Read the record of the publication; None if there is none yet."""
    return read_record(lake.publication, _membership, _RESTORE_PUBLICATION)


def _membership(content: Mapping[str, Any]) -> Membership:
    tables = {TableName(table["schema"], table["table"]): _member(table) for table in content["tables"]}
    return Membership(content["publication"], frozenset(content["operations"]), tables)


def _member(content: Mapping[str, Any]) -> Member:
    return Member(content["relation"], content["entry"], frozenset(content["schemas"]), content["altered_by"])


def record_tables(lake: Lake, found: Membership, tables: Mapping[TableName, int]) -> None:
    """Record the current publication of the tables copied now, by the names of their histories; other entries stay.

    A bootstrap of new tables and a resync may do so at the same time.
    """
    members = {member.relation: member for member in found.tables.values()}
    fresh = {name: members[oid] for name, oid in tables.items() if oid in members}

    def joined(before: Membership | None) -> object:
        recorded = before or Membership(found.publication, found.operations, {})
        return _content(replace(recorded, tables={**recorded.tables, **fresh}))

    update_record(lake, lake.publication, _membership, joined, _RESTORE_PUBLICATION)


def recorded_or_new(lake: Lake, found: Membership) -> Membership:
    """Read the record; if there is none, create it from the tables that have a history."""
    if (recorded := read_recorded(lake)) is not None:
        return recorded
    names = {*lake.history_names()} & found.tables.keys()
    record_tables(lake, found, {name: found.tables[name].relation for name in names})
    return read_recorded(lake) or found


def record_publication(lake: Lake, membership: Membership) -> None:
    """Replace the record of the publication; no bootstrap and no resync may run."""
    write_record(lake, lake.publication, _content(membership))


def _content(membership: Membership) -> object:
    tables = [
        {**name._asdict(), **asdict(member), "schemas": sorted(member.schemas)}
        for name, member in sorted(membership.tables.items())
    ]
    operations = sorted(membership.operations)
    return {"publication": membership.publication, "operations": operations, "tables": tables}


def read_shape(lake: Lake, name: TableName) -> Shape | None:
    """Read the last recorded shape of a table; None if there is none."""
    return read_record(lake.shape(name), _shape, "Restore it: it shows how the table was changed.")


def write_shape(lake: Lake, name: TableName, shape: Shape) -> None:
    """Record the shape of a table; what was recorded of former types, and of tables that inherited from it, stays."""
    former = read_shape(lake, name)
    if former is not None and former.relation.oid == shape.relation.oid:
        kept = {**former.compared, **shape.compared}
        shape = replace(shape, compared=kept, inherited=former.inherited or shape.inherited)
    content = asdict(shape)
    relation = content["relation"]
    relation["columns"] = [[c.attnum, c.name, c.type_oid, c.typmod, c.key] for c in shape.relation.columns]
    relation["replica_identity"] = shape.relation.replica_identity.value
    content["missing"] = dict.fromkeys(shape.missing, "")  # values of rows; that there is one is all that is compared
    write_record(lake, lake.shape(name), content, durable=True)


def _shape(content: dict[str, Any]) -> Shape:
    found = content["relation"]
    columns = tuple(
        Column(name, type_oid, typmod, key, attnum=attnum) for attnum, name, type_oid, typmod, key in found["columns"]
    )
    relation = Relation(
        found["oid"], TableName(*found["name"]), ReplicaIdentity(found["replica_identity"]), tuple(columns)
    )
    return Shape(
        relation=relation,
        kind=content["kind"],
        persistence=content["persistence"],
        files={int(oid): file for oid, file in content["files"].items()},
        generated={int(attnum): stored for attnum, stored in content["generated"].items()},
        missing={int(attnum): text for attnum, text in content["missing"].items()},
        key=tuple(content["key"]),
        types=content["types"],
        entries=content["entries"],
        constraint=content["constraint"],
        stamps={int(attnum): stamp for attnum, stamp in content["stamps"].items()},
        compared=content["compared"],
        toast=content["toast"],
        inherited=content.get("inherited", False),  # a lake of before has it when capture starts
        partition=content.get("partition", False),  # as above
    )
