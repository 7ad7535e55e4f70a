"""Capture status (capture.json): the state that the last capture reported, for `status` in another process.

Written by rename when capture connects, loses its source or ends. It is informational: a killed capture leaves its last
state behind, so only the slot's active reader shows whether a capture is running.
"""

import json
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from auditlake.errors import LakeUnusable
from auditlake.lake.json_file import write_record
from auditlake.lake.layout import Lake
from auditlake.lake.stage_lock import Stage, holder_lives
from auditlake.lsn import Lsn

_RUNNING = frozenset({"running", "trying again"})


@dataclass(frozen=True, slots=True)
class CaptureState:
    """State of capture from `since` (ISO, UTC) on: running, trying again or ended, with the `problem` that caused it.

    `state` is None if only bootstrap has captured so far. `publication_seen` is the LSN, and `publication_seen_us` the
    time in microseconds since 1970, up to which the publication is known to have published all that was recorded.
    """

    state: str | None
    since: str
    problem: str | None = None
    publication_seen: str | None = None
    publication_seen_us: int | None = None


def write_state(lake: Lake, state: str, problem: str | None = None) -> None:
    """Record the state of capture from now on.

    Raises LakeUnusable if the folder cannot be written.
    """
    before = read_state(lake)
    _write(lake, replace(before or CaptureState(None, ""), state=state, since=_now(), problem=problem))


def captures_now(lake: Lake) -> bool:
    """Return whether the last recorded state is a running capture, and its process is not known to have died."""
    last = read_state(lake)
    return last is not None and last.state in _RUNNING and holder_lives(lake, Stage.CAPTURE) is not False


def write_seen(lake: Lake, lsn: Lsn, time_us: int) -> None:
    """Record LSN and time up to which the publication is known to have published all that was recorded.

    Raises LakeUnusable if the folder cannot be written.
    """
    _write(
        lake,
        replace(read_state(lake) or CaptureState(None, _now()), publication_seen=str(lsn), publication_seen_us=time_us),
    )


def read_seen(lake: Lake) -> tuple[Lsn, int | None] | None:
    """Read the LSN and time of the last `write_seen`."""
    state = read_state(lake)
    if state is None or state.publication_seen is None:
        return None
    return Lsn.parse(state.publication_seen), state.publication_seen_us


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _write(lake: Lake, state: CaptureState) -> None:
    write_record(lake, lake.capture_state, asdict(state))


def read_state(lake: Lake) -> CaptureState | None:
    """Read the capture status; None if capture never ran.

    Raises LakeUnusable if the file is not valid.
    """
    try:
        return CaptureState(**json.loads(lake.capture_state.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as exc:
        raise LakeUnusable(f"{lake.capture_state} cannot be read: {exc}", "Remove it; capture recreates it.") from exc
