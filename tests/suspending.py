"""Changes to an auditlake process before it starts: no locks, a pause right before a commit, Spark as the committer.

`code` composes the `code` of `tests.command.start`. A pause is SIGSTOP, sent by the process to itself: in Python before
`put_commit`, in the JVM before its log store links or puts the entry.
"""

import contextlib
import signal
import threading
from collections.abc import Iterable
from unittest import mock

from auditlake.delta import log_writer
from auditlake.delta.log_writer import Action
from auditlake.lake import stage_lock
from auditlake.spark import log_store
from auditlake.store.place import Place

_TABLE = "orders"
_COMMITS_OF_JVM = (("Files.createLink(entry, unfinished);", "entry"), ("put(files, path, content);", "path"))
_BEFORE_METHOD = "    /** Join the actions"
_PAUSE = r"""
    private static int commits;

    private static synchronized void pause(String entry) throws IOException {
        if (!entry.contains("/TABLE/_delta_log/") || ++commits != COMMIT) {
            return;
        }
        final Thread committer = Thread.currentThread();
        // A JVM without its Python process exits: Spark's hooks, of priority 50, and that which closes stores wait.
        org.apache.hadoop.util.ShutdownHookManager.get().addShutdownHook(new Runnable() {
            public void run() {
                try {
                    committer.join(60000L);
                } catch (InterruptedException error) {
                    return;
                }
            }
        }, 100, 70L, java.util.concurrent.TimeUnit.SECONDS);
        String pid = new java.io.File("/proc/self").getCanonicalFile().getName();
        try {
            new ProcessBuilder(new String[] {"kill", "-STOP", pid}).start().waitFor();
            Thread.sleep(2000L); // until the thread that gets the signal has run, and stopped this one
        } catch (InterruptedException error) {
            throw new IOException(error);
        }
    }

"""


def code(*calls: str) -> str:
    """Return Python that calls functions of this module."""
    return "\n".join(["from tests.suspending import *", *calls])


def without_locks() -> None:
    """Take no stage lock, as if a lease had expired, or a file system had no locks."""
    mock.patch.object(stage_lock, "hold", return_value=contextlib.nullcontext()).start()


def suspend() -> None:
    """Suspend this process, and this thread at once.

    A signal to the process may be taken by another thread, on a busy machine after this one has gone on.
    """
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def before_commit(number: int) -> None:
    """Suspend the process right before its `number`-th commit to the history, if Python makes it."""
    written, commits = log_writer.put_commit, 0

    def put_commit(path: Place, version: int, operation: str, actions: Iterable[Action]) -> None:
        nonlocal commits
        commits += path.name == _TABLE
        if path.name == _TABLE and commits == number:
            suspend()
        written(path, version, operation, actions)

    mock.patch.object(log_writer, "put_commit", put_commit).start()


def before_commit_of_jvm(number: int) -> None:
    """Suspend the JVM right before its `number`-th commit to the history."""
    for name, (commit, entry) in zip(("SOURCE", "S3_SOURCE"), _COMMITS_OF_JVM, strict=True):
        source: str = getattr(log_store, name)
        assert source.count(commit) == source.count(_BEFORE_METHOD) == 1
        paused = source.replace(commit, f"pause({entry}.toString());\n{commit}")
        method = _PAUSE.replace("TABLE", _TABLE).replace("COMMIT", f"{number}")
        mock.patch.object(log_store, name, paused.replace(_BEFORE_METHOD, method + _BEFORE_METHOD)).start()


def merging() -> None:
    """Apply by Delta's MERGE, as tails that are too large for memory."""
    from auditlake.apply import apply, embedded_fold, merge  # noqa: PLC0415 - imports `put_commit`, replaced before

    mock.patch.object(apply, "merge_embedded", side_effect=embedded_fold.NotFolded).start()
    mock.patch.object(apply, "choose_plan", return_value=merge.Plan.MERGE).start()


def optimizing() -> None:
    """Compact by Spark's OPTIMIZE, as partitions that are too large for memory."""
    from auditlake.lake import maintenance  # noqa: PLC0415 - as above

    mock.patch.object(maintenance, "find_files", return_value=None).start()


def expiring() -> None:
    """Maintain without a rewrite, as if none were due."""
    from auditlake.lake import maintenance  # noqa: PLC0415 - as above

    mock.patch.object(maintenance, "rewrite_due", return_value=True).start()
