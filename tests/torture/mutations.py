"""Break each rule of capture and of the fold on purpose, and see which check says so.

    python -m tests.torture.mutations [NAME…]

Every mutation is a change of the source in a copy of the package, which is imported in place of the real one; `story`
runs on it. All of it happens in one process with one JVM. A mutation that no check notices, or that does not fit the
source any more, ends the run with 1; so does a check that fails without any mutation.
"""

import contextlib
import importlib
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import auditlake
from auditlake.lake.session import spark_session
from tests.server import Server, chosen_version
from tests.torture.rules import MUTATIONS, Mutation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKAGE = Path(auditlake.__file__).parent
_SPARK = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_ALL = ("accounts", "bags", "notes", "orders", "long_keys")


class Mutants:
    """Runs the story on mutated copies of the package."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._spark: SparkSession | None = None
        self._captured: Any = None
        self._number = 0

    def of_capture(self, mutation: Mutation | None) -> dict[str, str]:
        """Give what failed, by check."""
        with self._mutated(mutation) as story:
            checks = sys.modules["tests.torture.checks"]
            told = story.Story(self._server.dsn(self._server.create_database()), self._fresh("lake"))
            try:
                told.tell()
                failed = dict(checks.failures(checks.OF_CAPTURE, told.evidence)[1])
            except Exception as exc:  # noqa: BLE001 - a mutant may fail in any way
                failed = {_named(exc): str(exc)[:200]}
            told.drop_slot()
            if mutation is None:
                self._captured = told.evidence
            return failed

    def of_apply(self, mutation: Mutation | None) -> dict[str, str]:
        """Give what failed, by check; needs the unmutated capture to have run."""
        self._spark = self._spark or spark_session(_SPARK)
        tables = mutation.tables if mutation and mutation.tables else _ALL
        with self._mutated(mutation) as story:
            checks = sys.modules["tests.torture.checks"]
            try:
                evidence = story.applied(self._spark, self._captured, self._fresh("lake"), tables)
            except Exception as exc:  # noqa: BLE001 - a mutant may fail in any way
                return {_named(exc): str(exc)[:200]}
            return dict(checks.failures(checks.OF_APPLY, evidence)[1])

    def _fresh(self, name: str) -> Path:
        self._number += 1
        return self._folder / f"{name}-{self._number}"

    @contextlib.contextmanager
    def _mutated(self, mutation: Mutation | None) -> Iterator[Any]:
        """Import the story with a mutated package under it."""
        root = self._fresh("source")
        shutil.copytree(_PACKAGE, root / "auditlake")
        for file, old, new in mutation.changes if mutation else ():
            path = root / "auditlake" / file
            text = path.read_text()
            if text.count(old) != 1:
                raise LookupError(f"{mutation and mutation.name}: {file} has {text.count(old)} times: {old}")
            path.write_text(text.replace(old, new))
        _forget()
        sys.path.insert(0, str(root))
        try:
            yield importlib.import_module("tests.torture.story")
        finally:
            sys.path.remove(str(root))
            _forget()


def _forget() -> None:
    """Let the package, and the tests that use it, be imported anew."""
    kept = ("tests.torture.mutations", "tests.torture.rules", "tests.server")
    for name in [name for name in sys.modules if name.split(".")[0] in {"auditlake", "tests"}]:
        if name not in kept:
            del sys.modules[name]


def _named(exc: Exception) -> str:
    """Name what stopped it: the check, or the stage's own error and where it came from."""
    last = traceback.extract_tb(exc.__traceback__)[-1]
    return f"{'check in the story' if isinstance(exc, AssertionError) else type(exc).__name__} ({last.name})"


def run(names: Sequence[str]) -> int:
    """Run the unmutated story and all mutations, or those named; the exit code."""
    wanted = [mutation for mutation in MUTATIONS if not names or mutation.name in names]
    with Server(chosen_version(), settings={"logical_decoding_work_mem": "64kB"}) as server:
        folder = Path(tempfile.mkdtemp(prefix="auditlake-mutations-"))
        mutants = Mutants(server, folder)
        try:
            caught = 0
            sound = _without(mutants.of_capture(None))
            caught += sum(_tell(mutants, mutation) for mutation in wanted if not mutation.of_apply)
            if of_apply := [mutation for mutation in wanted if mutation.of_apply]:
                sound = _without(mutants.of_apply(None)) and sound
                caught += sum(_tell(mutants, mutation) for mutation in of_apply)
        finally:
            shutil.rmtree(folder)
    print(f"{caught} of {len(wanted)} mutations caught", flush=True)  # noqa: T201
    return 0 if sound and caught == len(wanted) else 1


def _without(failed: dict[str, str]) -> bool:
    print(f"without a mutation: {failed or 'all checks hold'}", flush=True)  # noqa: T201
    return not failed


def _tell(mutants: Mutants, mutation: Mutation) -> bool:
    try:
        failed = mutants.of_apply(mutation) if mutation.of_apply else mutants.of_capture(mutation)
    except LookupError as exc:
        print(f"DOES NOT FIT {exc}", flush=True)  # noqa: T201
        return False
    print(f"{mutation.name}: {', '.join(failed) if failed else 'NOT CAUGHT'}", flush=True)  # noqa: T201
    return bool(failed)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
