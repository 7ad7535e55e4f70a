"""Opening what a claimed slot's stream is written to, and looking at slot and lake again.

Between the first look (`claiming`) and the start of the stream another capture may have written, or another reader
read. Only now, with the slot ours, is it certain that the lake ends where the stream begins and holds nothing that a
promoted server lacks; and only then is the new timeline recorded.
"""

from contextlib import ExitStack, closing
from dataclasses import dataclass

import psycopg

from auditlake.capture.claiming import Claim, Say, Source
from auditlake.capture.looks import Asker, Looks
from auditlake.capture.mainslot import see_slot
from auditlake.lake.changes import CaptureLog
from auditlake.lake.history import list_histories
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import record_timeline
from auditlake.lsn import Lsn
from auditlake.postgres.connection import Row, hung_up_after
from auditlake.postgres.slot import SlotReader, read_reader, read_slot
from auditlake.postgres.stream import ReplicationStream


@dataclass(frozen=True, slots=True)
class Opened:
    """A stream, with the log it may be written to; `reader` is who we are to the server."""

    control: psycopg.Connection[Row]
    stream: ReplicationStream
    log: CaptureLog
    looks: Looks
    reader: SlotReader | None


def open_log(claim: Claim, source: Source, lake: Lake, say: Say) -> Opened:
    """Open the log and the stream of a claim, which is closed where that fails.

    Raises SourceUnreachable, WrongSource, LakeUnusable, LakeConflict.
    """
    with ExitStack() as opened:
        opened.enter_context(closing(claim))
        control, looks = claim.control, Looks(lake)
        log = CaptureLog(lake, Asker(source.conninfo, lake, claim.pace.deaf_s))
        with hung_up_after(control.fileno(), claim.pace.deaf_s):
            _see_again(claim, source.manifest.slot, lake, log, say)
            log.settle()
            claim.guard.note(claim.start)
            looks.refresh(control, claim.guard.present)
            reader = read_reader(control, source.manifest.slot)
        stream = ReplicationStream.over(claim.stream, claim.start, source.streaming)
        opened.pop_all()
        return Opened(control, stream, log, looks, reader)


def _see_again(claim: Claim, slot_name: str, lake: Lake, log: CaptureLog, say: Say) -> None:
    """See that the slot is not beyond the lake, now that nobody else moves it: it would start there in silence."""
    slot, fork = read_slot(claim.control, slot_name), claim.fork
    if fork is not None:
        histories = list_histories(lake)
        folded = max((max(history.horizon, history.position) for history in histories), default=0)
        fork.see_behind(Lsn(max(log.held_to, folded + 1)))
        log.return_to(fork.lsn)
        record_timeline(lake, fork.timeline)
        say(f"the source was promoted at {fork.lsn}: going on with its timeline {fork.timeline}")
    see_slot(slot_name, slot, log.acknowledged)
