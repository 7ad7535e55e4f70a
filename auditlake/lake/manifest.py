"""Manifest (lake.json): the source of a lake.

It is written before anything is created at the source, and again when the source was promoted to another timeline; by
rename, so that readers never see a partial file. Every command compares it with the server it connects to: a lake never
mixes two databases.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from auditlake.errors import LakeUnusable, WrongSource
from auditlake.failpoints import After, reach
from auditlake.lake import stage_lock as lock
from auditlake.lake.layout import Lake
from auditlake.lake.records import replace_file
from auditlake.store.files import make_root, unfinished_name

FORMAT_VERSION = 1
_CREATED, _TABLES = "publication_created", "publication_tables"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The source of a lake: server, timeline and database, and the slot and publication that capture reads."""

    system_identifier: str
    timeline: int
    database: str
    slot: str
    publication: str

    def check_same(self, other: "Manifest") -> None:
        """Compare with the source connected to, except for the timeline, which `capture.preconditions` checks.

        Raises WrongSource with the first difference.
        """
        for field, recorded in asdict(self).items():
            found = getattr(other, field)
            if found != recorded and field != "timeline":
                raise WrongSource(
                    f"this lake records {field.replace('_', ' ')} {recorded}, found {found}",
                    "Point source, slot and publication at the recorded ones, or use another folder as lake.",
                )


def read_manifest(lake: Lake) -> Manifest | None:
    """Read lake.json; None if the folder is not a lake yet.

    Raises LakeUnusable if it cannot be read or has another format version.
    """
    try:
        content = json.loads(lake.manifest.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as exc:
        raise LakeUnusable(f"{lake.manifest} cannot be read: {exc}", "Restore it, or use another lake.") from exc
    if content.get("format_version") != FORMAT_VERSION:
        raise LakeUnusable(
            f"{lake.manifest} has format version {content.get('format_version')}, this version reads {FORMAT_VERSION}",
            "Use the auditlake version that wrote it.",
        )
    names = ("system_identifier", "timeline", "database", "slot", "publication")
    if missing := [name for name in names if name not in content]:
        raise LakeUnusable(f"{lake.manifest} lacks {', '.join(missing)}", "Restore it, or use another lake.")
    return Manifest(**{name: content[name] for name in names})


def require_manifest(lake: Lake) -> Manifest:
    """Read lake.json.

    Raises LakeUnusable if it does not exist.
    """
    manifest = read_manifest(lake)
    if manifest is None:
        raise LakeUnusable(f"there is no lake in {lake.root}", "Create one with auditlake bootstrap, or correct lake.")
    return manifest


def write_manifest(lake: Lake, manifest: Manifest) -> None:
    """Write lake.json into an empty or missing folder, which makes it a lake.

    Raises LakeUnusable if the folder cannot be written or contains anything else.
    """
    content = {"format_version": FORMAT_VERSION, **asdict(manifest), "created": datetime.now(UTC).isoformat()}
    with _writing(lake):
        make_root(lake.root)
        ours = (unfinished_name(lake.manifest.name), lock.FOLDER)
        if others := sorted(place.name for place in lake.root.iterdir() if place.name not in ours):
            raise LakeUnusable(
                f"{lake.root} is not empty and not a lake: it contains {others[0]}", "Use another folder as lake."
            )
        _replace(lake, content)


def record_timeline(lake: Lake, timeline: int) -> None:
    """Record that the lake continues with another timeline of its source.

    Raises LakeUnusable if lake.json cannot be read or written.
    """
    with _writing(lake):
        content = json.loads(lake.manifest.read_text()) | {"timeline": timeline}
        _replace(lake, content)


def record_source(lake: Lake, manifest: Manifest) -> None:
    """Record that the lake continues with another source.

    Raises LakeUnusable if lake.json cannot be read or written.
    """
    with _writing(lake):
        content = json.loads(lake.manifest.read_text()) | asdict(manifest)
        _replace(lake, content)


def record_created_publication(lake: Lake, patterns: tuple[str, ...] | None) -> None:
    """Record that bootstrap creates the publication for the tables that match, None for all; called before it does.

    Raises LakeUnusable if lake.json cannot be read or written.
    """
    with _writing(lake):
        tables = None if patterns is None else list(patterns)
        content = json.loads(lake.manifest.read_text()) | {_CREATED: True, _TABLES: tables}
        _replace(lake, content)


def created_publication(lake: Lake) -> bool:
    """Return whether bootstrap recorded that it created the publication; earlier versions did not record it."""
    return json.loads(lake.manifest.read_text()).get(_CREATED) is True


def read_created_for(lake: Lake) -> tuple[str, ...] | None:
    """Return the patterns of tables for which bootstrap created the publication, empty for all tables.

    None if bootstrap did not create it, or did not record the patterns, as earlier versions did not.
    """
    content = json.loads(lake.manifest.read_text())
    if content.get(_CREATED) is not True or _TABLES not in content:
        return None
    return tuple(content[_TABLES] or ())


@contextmanager
def _writing(lake: Lake) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise LakeUnusable(
            f"{lake.root} cannot be written: {exc.strerror}", "Fix the folder or choose another."
        ) from exc


def _replace(lake: Lake, content: object) -> None:
    replace_file(lake.manifest, content, durable=True, before_rename=lambda: reach(After.MANIFEST_WRITTEN))
    reach(After.MANIFEST)
