"""lake.json: which source this lake is the history of.

Written before anything is created at the source, and again when the source was promoted to another timeline; by
rename, so that it is there whole or not at all. Every command compares it with the server it reaches: a lake never
mixes two databases.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from auditlake.errors import LakeUnusable, WrongSource
from auditlake.failpoints import After, reach
from auditlake.lake.layout import Lake

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """The source a lake belongs to, and the slot and publication that feed it."""

    system_identifier: str
    timeline: int
    database: str
    slot: str
    publication: str

    def check_same(self, other: "Manifest") -> None:
        """Compare with what is reached now, but for the timeline, of which only `sameness` can judge.

        Raises WrongSource naming the first difference.
        """
        for field, recorded in asdict(self).items():
            found = getattr(other, field)
            if found != recorded and field != "timeline":
                raise WrongSource(
                    f"this lake records {field.replace('_', ' ')} {recorded}, found {found}",
                    "Point source, slot and publication at the recorded ones, or use another folder as lake.",
                )


def read_manifest(lake: Lake) -> Manifest | None:
    """Read lake.json; None where the folder is no lake yet.

    Raises LakeUnusable where it cannot be read or was written by another format version.
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

    Raises LakeUnusable where there is none.
    """
    manifest = read_manifest(lake)
    if manifest is None:
        raise LakeUnusable(f"there is no lake in {lake.root}", "Make one with auditlake bootstrap, or correct lake.")
    return manifest


def write_manifest(lake: Lake, manifest: Manifest) -> None:
    """Make `lake.root` a lake.

    Raises LakeUnusable where the folder cannot be written or holds something else.
    """
    content = {"format_version": FORMAT_VERSION, **asdict(manifest), "created": datetime.now(UTC).isoformat()}
    with _writing(lake):
        lake.root.mkdir(parents=True, exist_ok=True)
        if others := sorted(path.name for path in lake.root.iterdir() if path != _unfinished(lake)):
            raise LakeUnusable(
                f"{lake.root} is not empty and is no lake: it holds {others[0]}", "Use another folder as lake."
            )
        _write_whole(lake, json.dumps(content, indent=2) + "\n")


def record_timeline(lake: Lake, timeline: int) -> None:
    """Record that the lake goes on with another timeline of its source.

    Raises LakeUnusable where lake.json cannot be read or written.
    """
    with _writing(lake):
        content = json.loads(lake.manifest.read_text()) | {"timeline": timeline}
        _write_whole(lake, json.dumps(content, indent=2) + "\n")


@contextmanager
def _writing(lake: Lake) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise LakeUnusable(
            f"{lake.root} cannot be written: {exc.strerror}", "Mend the folder or choose another."
        ) from exc


def _unfinished(lake: Lake) -> Path:
    """Where lake.json is while it is written; a kill may leave it behind."""
    return lake.manifest.with_suffix(".partial")


def _write_whole(lake: Lake, text: str) -> None:
    with _unfinished(lake).open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    reach(After.MANIFEST_WRITTEN)
    _unfinished(lake).rename(lake.manifest)
    reach(After.MANIFEST)
