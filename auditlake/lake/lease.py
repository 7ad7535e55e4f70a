"""Leases: stage locks of a lake in an object store, which has no lock that ends with its process.

1. A lease is one object, written if it is absent, and from then on only replaced under the condition that it has not
   changed. So of any number of processes that want it at once, one gets it.
2. The holder replaces it every `RENEW_S`. It is free once its holder has released it, or when its holder is known to
   have died, or when it has not changed for `EXPIRY_S`, measured by the clock of the process that watches it: no clock
   is compared with another one. A process whose release did not reach the store takes the lease again at once.
3. A holder is known to have died if it ran on this machine (same boot, same PID namespace) and its PID is gone or has
   another start time. So a restart after a kill does not wait; on another machine it waits `EXPIRY_S`.
4. A process that was paused for longer than `EXPIRY_S` still believes that it holds the lease. It can do no harm,
   because no effect of a stage relies on the lease alone (fencing):
   - Every commit creates the version after the one that it was planned on, or fails (`delta/log_writer`, I1). If the
     new holder has committed to the table, the old one is refused; if it has not, the commit is as if it came before.
   - Capture acknowledges only committed transactions, and PostgreSQL lets one process at a time use a slot.
   - Bootstrap never deletes files that another process may have committed (`snapshot/scheduler`).
   - Maintenance deletes only files that no version has had for hours.
   - Records of parked tables are replaced only as they were read (`lake/parking`). Other records are copies of the
     catalog; if an older one replaces a newer one, a difference shows again, which parks a table and hides nothing.
   The lease saves work and makes messages clear.
5. All of this, and every commit, relies on conditional writes. A store that accepts the conditions but does not check
   them would lose commits, so whoever creates a lease tries two writes that must fail.

Authority: docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
"""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from auditlake.errors import LakeUnusable
from auditlake.messages import FailureReports, say
from auditlake.store.files import read_versioned, replace_version
from auditlake.store.place import Place

RENEW_S = 15.0
EXPIRY_S = 60.0
_WATCH_S = 1.0
_RELEASED = "released"
_left: set[str] = set()
"""The ids of leases that this process has given up, but could not release."""
_BOOT, _NAMESPACE = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")


class Taken(Exception):
    """The lease has a holder that lives; `holder` is its description in the lease."""

    def __init__(self, holder: Mapping[str, Any]) -> None:
        super().__init__("the lease is held")
        self.holder = holder


class Lease:
    """A lease that this process holds, renewed by a thread until it is released."""

    def __init__(self, place: Place, holder: Mapping[str, Any]) -> None:
        """Take the lease, waiting for a holder that may be dead; raises Taken, OSError, LakeUnusable."""
        self._place = place
        self._content = {**holder, **this_process(), "id": str(uuid.uuid4()), "renewed": 0}
        self._etag = self._take()
        self._ended = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name=f"lease {place.name}", daemon=True)
        self._renewing.start()

    @property
    def id(self) -> str:
        """The id of this hold."""
        return str(self._content["id"])

    def _encoded(self) -> str:
        return json.dumps(self._content)

    @property
    def _freed(self) -> str:
        return json.dumps({_RELEASED: self.id})

    def _take(self) -> str | None:
        while True:
            with suppress(FileExistsError):
                etag = replace_version(self._place, self._encoded(), None)
                self._require_conditions()
                return etag
            with suppress(FileExistsError, FileNotFoundError):  # another process was faster, or removed it
                content, etag = read_versioned(self._place)
                if not _is_free(_parsed(content)):
                    self._watch(_parsed(content), etag)
                return replace_version(self._place, self._encoded(), etag)

    def _require_conditions(self) -> None:
        """Raise LakeUnusable if the store replaces the lease under a condition that does not hold."""
        conditions = ("If-None-Match", None), ("If-Match", '"00000000000000000000000000000000"')
        for condition, version in conditions:
            with suppress(FileExistsError):
                replace_version(self._place, self._freed, version)
                raise _unchecked(self._place, condition)

    def _watch(self, holder: Mapping[str, Any], etag: str | None) -> None:
        """Wait until the lease expires; raises Taken if its holder lives, FileExistsError if it is released."""
        expires_s = time.monotonic() + EXPIRY_S
        while time.monotonic() < expires_s:
            if lives(holder) is True:
                raise Taken(holder)
            time.sleep(_WATCH_S)
            content, now = read_versioned(self._place)
            if now != etag:
                if _is_free(_parsed(content)):
                    raise FileExistsError
                raise Taken(_parsed(content))

    def _renew(self) -> None:
        renewals, failures = 1, FailureReports()
        while not self._ended.wait(RENEW_S):
            self._content["renewed"] = renewals
            try:
                self._etag = replace_version(self._place, self._encoded(), self._etag)
            except FileExistsError:  # this process was paused, and another one has it now
                if not self._ended.is_set():
                    say(f"another process has taken the lock {self._place}, which was not renewed in time")
                return
            except Exception as exc:  # noqa: BLE001 - until `EXPIRY_S` nothing is lost
                failures.report(f"the lock {self._place} cannot be renewed, trying again", exc)
                continue  # with the same content, because this may have succeeded
            failures.forget()
            renewals += 1

    def release(self) -> None:
        """Let another process take the lease at once; a renewal that is under way ends first, else it would stay."""
        self._ended.set()
        self._renewing.join()
        try:
            replace_version(self._place, self._freed, self._etag)
        except OSError:  # it expires elsewhere, but this process is seen to live
            _left.add(self.id)


def _unchecked(place: Place, condition: str) -> LakeUnusable:
    return LakeUnusable(
        f"the store of {place} replaced an object although {condition} forbade it: commits could be lost there",
        "Use a store that checks conditional writes, as Amazon S3 does.",
    )


def read_holder(place: Place) -> Mapping[str, Any] | None:
    """Return the description of the holder of a lease; None if it has none."""
    try:
        holder = _parsed(read_versioned(place)[0])
    except FileNotFoundError:
        return None
    return None if _RELEASED in holder else holder


def lives(holder: Mapping[str, Any]) -> bool | None:
    """Return whether the holder lives; None if it runs on another machine, or the system hides its processes."""
    here = this_process()
    if here["boot"] is None or any(holder.get(name) != here[name] for name in ("boot", "namespace")):
        return None
    started = _started(holder["pid"])
    return None if started is None and _exists(holder["pid"]) else bool(started == holder["started"])


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        return True
    return True


def _is_free(holder: Mapping[str, Any]) -> bool:
    return _RELEASED in holder or holder.get("id") in _left or lives(holder) is False


def _parsed(content: bytes) -> Mapping[str, Any]:
    try:
        parsed = json.loads(content)
    except ValueError:
        parsed = {}
    return parsed if isinstance(parsed, dict) else {}


def this_process() -> dict[str, Any]:
    """Identify this process: machine, PID, and start time, which differs from that of a later process with this PID."""
    pid = os.getpid()
    try:
        machine = {"boot": _BOOT.read_text().strip(), "namespace": _NAMESPACE.stat().st_ino}
    except OSError:
        machine = {"boot": None, "namespace": None}
    return {"pid": pid, "host": socket.gethostname(), "started": _started(pid), **machine}


def _started(pid: int) -> str | None:
    """Return the start time of a process, in ticks since boot; None if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None
