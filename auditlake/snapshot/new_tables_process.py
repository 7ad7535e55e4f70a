"""Process that copies new tables for `follow`: `python -m auditlake.snapshot.new_tables_process`.

It reads one pickled `new_tables.Job` from standard input and runs it as a bootstrap. At the end of standard input it
exits at once, wherever it is: its parent has closed it or was killed. That is as safe as any kill of a bootstrap.
"""

import os
import pickle
import signal
import sys
import threading

from auditlake.errors import AuditlakeError
from auditlake.messages import report_bug
from auditlake.startup import lean


def main() -> int:
    """Copy the tables of one job; failures go to standard error, one line each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to us, too; the parent decides
    lean()
    from auditlake.snapshot.bootstrap import bootstrap  # noqa: PLC0415 - a slow import
    from auditlake.snapshot.new_tables import Job  # noqa: PLC0415
    from auditlake.snapshot.worker_pool import start_workers  # noqa: PLC0415

    job = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own parent
    assert isinstance(job, Job)  # noqa: S101
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        copied = bootstrap(job.target, lambda: start_workers(job.spark), lambda _: None)
    except AuditlakeError as exc:
        sys.stderr.write(f"error: {exc.message}\n")
        return exc.exit_code
    for table in copied:
        sys.stderr.write(f"{table.name} is a new table: copied {table.rows:,} rows at {table.snapshot_lsn}\n")
    return 0


def _exit_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    try:
        code = main()
    except Exception as exc:  # noqa: BLE001 - its text might quote rows
        report_bug(exc)
        code = 1
    sys.stderr.flush()
    os._exit(code)  # the thread above reads standard input
