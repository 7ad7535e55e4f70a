"""Manifest (lake.json): the source of a lake.

It is written before anything is created at the source, and again when the source was promoted to another timeline, or
the lake goes on with another source; by rename, so that readers never see a partial file. Every command compares it
with the server it connects to: a lake never mixes two databases.

The order of a lake is that of its LSNs. A source whose log is behind the lake (it was restored from a backup, or is a
new cluster) therefore gets an offset: LSN of the lake = LSN of the source + `lsn_offset`. It is a multiple of 4 GiB, so
that the second half of an LSN's text, and its place in a page and a segment, are the same in both. `source.connection`
and `replication.stream` convert where LSNs are received and sent; everywhere else they are those of the lake.

Everything here raises LakeUnusable if lake.json cannot be read or written.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any

from auditlake.errors import LakeUnusable, WrongSource
from auditlake.failpoints import After, reach
from auditlake.lake import stage_lock as lock
from auditlake.lake.layout import Lake
from auditlake.lake.records import read_record, replace_json, require_record, writing_files
from auditlake.lsn import Lsn
from auditlake.store.files import UNFINISHED, ensure_folder

FORMAT_VERSION = 1
_EARLIER = "earlier_sources"
LSN_OFFSET_UNIT = 1 << 32
_OTHER_NAME = "Point source, slot and publication at the recorded ones, or use another folder as lake."
_OTHER_SERVER = (
    "Point source at the recorded one, or use another folder as lake. If this server has replaced that one: auditlake"
    " resync --all takes a new snapshot of all tables and keeps their history."
)
_RESTORE = "Restore it, or use another lake."
_CREATED, _TABLES = "publication_created", "publication_tables"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The source of a lake: server, timeline and database, and the slot and publication that capture reads."""

    system_identifier: str
    timeline: int
    database: str
    slot: str
    publication: str
    lsn_offset: int = 0

    def check_same(self, other: "Manifest") -> None:
        """Compare with the connected source, but for the timeline; raises WrongSource at the first difference."""
        for field, recorded in asdict(self).items():
            found = getattr(other, field)
            if found != recorded and field not in {"timeline", "lsn_offset"}:
                raise WrongSource(
                    f"this lake records {field.replace('_', ' ')} {recorded}, found {found}",
                    _OTHER_SERVER if field in {"system_identifier", "database"} else _OTHER_NAME,
                )


def read_manifest(lake: Lake) -> Manifest | None:
    """Read lake.json; None without a lake. Raises LakeUnusable, also for another format version."""
    content = read_record(lake.manifest, dict, _RESTORE)
    if content is None:
        return None
    if content.get("format_version") != FORMAT_VERSION:
        raise LakeUnusable(
            f"{lake.manifest} has format version {content.get('format_version')}, this version reads {FORMAT_VERSION}",
            "Use the auditlake version that wrote it.",
        )
    names = [field.name for field in fields(Manifest)]
    if missing := [name for name in names if name not in content]:
        raise LakeUnusable(f"{lake.manifest} lacks {', '.join(missing)}", _RESTORE)
    found = Manifest(**{name: content[name] for name in names})
    for name, value in asdict(found).items():
        if type(value) is not (int if name in {"timeline", "lsn_offset"} else str):
            raise LakeUnusable(f"{lake.manifest} has a {name} of another type", _RESTORE)
    return found


def read_lsn_offset(lake: Lake) -> int:
    """Read the offset that is added to an LSN of the source; 0 if the folder is not a lake yet."""
    manifest = read_manifest(lake)
    return 0 if manifest is None else manifest.lsn_offset


def require_manifest(lake: Lake) -> Manifest:
    """Read lake.json; raises LakeUnusable if it does not exist."""
    manifest = read_manifest(lake)
    if manifest is None:
        raise LakeUnusable(
            f"there is no lake in {lake.root}",
            "Create one with auditlake bootstrap, or give the path of another with --lake.",
        )
    return manifest


def write_manifest(lake: Lake, manifest: Manifest) -> None:
    """Make a folder that is missing or empty a lake; raises LakeUnusable if it contains anything else."""
    content = {"format_version": FORMAT_VERSION, **asdict(manifest), "created": datetime.now(UTC).isoformat()}
    with writing_files(lake.root):
        ensure_folder(lake.root)
        names = sorted(place.name for place in lake.root.iterdir())
        if others := [name for name in names if name != lock.FOLDER and not name.endswith(UNFINISHED)]:
            raise LakeUnusable(
                f"{lake.root} is not empty and not a lake: it contains {others[0]}", "Use another folder as lake."
            )
        _replace(lake, content)


def record_timeline(lake: Lake, timeline: int) -> None:
    """Record that the lake continues with another timeline of its source."""
    _change(lake, timeline=timeline)


@dataclass(frozen=True, slots=True)
class EarlierSource:
    """A source that the lake followed up to `upto`, an LSN of the lake, with the offset of that time."""

    system_identifier: str
    timeline: int
    lsn_offset: int
    upto: Lsn


def read_earlier_sources(lake: Lake) -> tuple[EarlierSource, ...]:
    """Read the sources, or timelines of a source, with which a lake began, in order."""
    return require_record(lake.manifest, _earlier, _RESTORE)


def _earlier(content: Mapping[str, Any]) -> tuple[EarlierSource, ...]:
    recorded = content.get(_EARLIER, [])
    return tuple(EarlierSource(**(each | {"upto": Lsn.parse(each["upto"])})) for each in recorded)


def record_source(lake: Lake, manifest: Manifest, upto: Lsn) -> None:
    """Record that the lake continues with another source, after the changes up to `upto` of the one before."""
    before = require_manifest(lake)
    with writing_files(lake.root):
        content = _content(lake) | asdict(manifest)
        if (before.system_identifier, before.lsn_offset) != (manifest.system_identifier, manifest.lsn_offset):
            ended = EarlierSource(before.system_identifier, before.timeline, before.lsn_offset, upto)
            content[_EARLIER] = [*content.get(_EARLIER, []), asdict(ended) | {"upto": str(upto)}]
        _replace(lake, content)


def record_created_publication(lake: Lake, patterns: tuple[str, ...] | None) -> None:
    """Record that bootstrap creates the publication for the tables that match, None for all; called before it does."""
    _change(lake, **{_CREATED: True, _TABLES: patterns and list(patterns)})


def created_publication(lake: Lake) -> bool:
    """Return whether bootstrap recorded that it created the publication."""
    return _content(lake).get(_CREATED) is True


def read_created_for(lake: Lake) -> tuple[str, ...] | None:
    """Return the patterns for which bootstrap created the publication, () for all tables; None if it did not."""
    return read_record(lake.manifest, _created_for, _RESTORE)


def _created_for(content: Mapping[str, Any]) -> tuple[str, ...] | None:
    return tuple(content[_TABLES] or ()) if content.get(_CREATED) is True else None


def _content(lake: Lake) -> dict[str, Any]:
    """Read all of lake.json; raises LakeUnusable."""
    return require_record(lake.manifest, dict, _RESTORE)


def _change(lake: Lake, **changed: object) -> None:
    with writing_files(lake.root):
        _replace(lake, _content(lake) | changed)


def _replace(lake: Lake, content: object) -> None:
    replace_json(lake.manifest, content, durable=True, before_rename=lambda: reach(After.MANIFEST_WRITTEN))
    reach(After.MANIFEST)
