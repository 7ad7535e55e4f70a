"""capture.json: what the last capture said of itself, for `status` in another process. No more than a note.

Written when capture connects, loses its source or ends, by rename. Nothing depends on it: a capture that was killed
leaves its last word behind, so only the slot's reader tells whether one runs now.
"""

import json
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from auditlake.errors import LakeUnusable
from auditlake.lake.layout import Lake
from auditlake.lake.record import write_record
from auditlake.lsn import Lsn


@dataclass(frozen=True, slots=True)
class CaptureState:
    """What capture did from `since` (ISO, UTC) on: running, trying again or ended; `problem` says why.

    `state` is None where only bootstrap has captured yet.
    `publication_seen` is the LSN up to which the publication is known to have carried what it should.
    """

    state: str | None
    since: str
    problem: str | None = None
    publication_seen: str | None = None


def write_state(lake: Lake, state: str, problem: str | None = None) -> None:
    """Note what capture does from now on.

    Raises LakeUnusable where the folder cannot be written.
    """
    before = read_state(lake)
    _write(lake, CaptureState(state, _now(), problem, before.publication_seen if before else None))


def write_seen(lake: Lake, lsn: Lsn) -> None:
    """Note up to where the publication is known to have carried what it should.

    Raises LakeUnusable where the folder cannot be written.
    """
    _write(lake, replace(read_state(lake) or CaptureState(None, _now()), publication_seen=str(lsn)))


def read_seen(lake: Lake) -> Lsn | None:
    """Read what `write_seen` noted last."""
    note = read_state(lake)
    return None if note is None or note.publication_seen is None else Lsn.parse(note.publication_seen)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _write(lake: Lake, note: CaptureState) -> None:
    write_record(lake, lake.capture_state, asdict(note))


def read_state(lake: Lake) -> CaptureState | None:
    """Read the note; None where capture never ran.

    Raises LakeUnusable where it is none of ours.
    """
    try:
        return CaptureState(**json.loads(lake.capture_state.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as exc:
        raise LakeUnusable(f"{lake.capture_state} cannot be read: {exc}", "Remove it; capture makes it anew.") from exc
