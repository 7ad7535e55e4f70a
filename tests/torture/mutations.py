"""Break the rules of the design one by one, and report which check notices.

    python -m tests.torture.mutations [WORD…]

Every mutation (`mutation_list`) edits a copy of the package, which is imported instead of the real one; a fixed
scenario (`scenario`) then runs on it. WORD selects the mutations whose names contain it. Everything runs in one process
with one JVM.

Exit code 1 if no check notices a mutation, if a mutation does not apply to the source, or if a check fails without any
mutation; else 0.
"""

import contextlib
import importlib
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import auditlake
from auditlake.spark.session import spark_session
from tests.server import Server, chosen_version
from tests.torture.mutation_list import MUTATIONS, Mutation, Stage
from tests.torture.source_edits import DoesNotApply, edit_package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKAGE = Path(auditlake.__file__).parent
_SPARK = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_KEPT = {f"tests.torture.{name}" for name in ("mutations", "mutation_list", "source_edits")} | {"tests.server"}

Failures = dict[str, str]


class Mutants:
    """Runs the scenarios on mutated copies of the package; each run returns the checks that failed."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._spark: SparkSession | None = None
        self._captured: Any = None
        self._number = 0

    def run(self, stage: Stage, mutation: Mutation | None) -> Failures:
        """Run the scenario of a stage, with or without a mutation.

        APPLY needs an earlier run of CAPTURE without a mutation. Raises DoesNotApply.
        """
        scenarios: dict[Stage, Callable[[Any, Mutation | None], Failures]] = {
            Stage.CAPTURE: self._capture,
            Stage.BOOTSTRAP: self._bootstrap,
            Stage.RESHAPED: self._reshaped,
            Stage.APPLY: self._apply,
            Stage.ERASED: self._erased,
        }
        with self._mutated(mutation) as scenario:
            try:
                return scenarios[stage](scenario, mutation)
            except Exception as exc:  # noqa: BLE001 - a mutant may fail in any way
                return {_name(exc): str(exc)[:300]}

    def _capture(self, scenario: Any, mutation: Mutation | None) -> Failures:
        checks = sys.modules["tests.torture.checks"]
        running = scenario.CaptureScenario(self._server.dsn(self._server.create_database()), self._fresh("lake"))
        try:
            running.run()
            if mutation is None:
                self._captured = running.evidence
            return dict(checks.failures(checks.OF_CAPTURE, running.evidence)[1])
        finally:
            running.drop_slot()

    def _bootstrap(self, scenario: Any, _: Mutation | None) -> Failures:
        name = self._server.create_database()
        try:
            scenario.run_bootstrap(self._server.dsn(name), self._fresh("lake"))
        finally:
            self._server.drop_database(name)
        return {}

    def _reshaped(self, scenario: Any, _: Mutation | None) -> Failures:
        name = self._server.create_database()
        try:
            scenario.run_reshaped(self._server.dsn(name), self._fresh("lake"))
        finally:
            self._server.drop_database(name)
        return {}

    def _erased(self, _: Any, __: Mutation | None) -> Failures:
        importlib.import_module("tests.torture.erased").run_erased(self._fresh("lake"))
        return {}

    def _apply(self, scenario: Any, mutation: Mutation | None) -> Failures:
        checks = sys.modules["tests.torture.checks"]
        self._spark = self._spark or spark_session(_SPARK)
        tables = mutation.tables if mutation and mutation.tables else self._captured.tables
        evidence = scenario.apply_copy(self._spark, self._captured, self._fresh("lake"), tables)
        return dict(checks.failures(checks.OF_APPLY, evidence)[1])

    def _fresh(self, name: str) -> Path:
        self._number += 1
        return self._folder / f"{name}-{self._number}"

    @contextlib.contextmanager
    def _mutated(self, mutation: Mutation | None) -> Iterator[Any]:
        """Import the scenarios with a mutated copy of the package."""
        root = self._fresh("source")
        shutil.copytree(_PACKAGE, root / "auditlake", ignore=shutil.ignore_patterns("__pycache__"))
        edit_package(root / "auditlake", mutation.edits if mutation else ())
        _forget_modules()
        sys.path.insert(0, str(root))
        try:
            yield importlib.import_module("tests.torture.scenario")
        finally:
            sys.path.remove(str(root))
            _forget_modules()


def _forget_modules() -> None:
    """Remove the package, and the tests that use it, from the imported modules."""
    for name in [name for name in sys.modules if name.split(".")[0] in {"auditlake", "tests"}]:
        if name not in _KEPT:
            del sys.modules[name]


def _name(exc: Exception) -> str:
    """Name what stopped the run: a step of the scenario, or an error of the stage with the function that raised it."""
    last = traceback.extract_tb(exc.__traceback__)[-1]
    return f"{'step of the scenario' if isinstance(exc, AssertionError) else type(exc).__name__} ({last.name})"


def run(words: Sequence[str]) -> int:
    """Run the scenarios without a mutation and with those selected; return the exit code."""
    wanted = [mutation for mutation in MUTATIONS if not words or any(word in mutation.name for word in words)]
    caught, sound = 0, True
    with Server(chosen_version(), settings={"logical_decoding_work_mem": "64kB"}) as server:
        folder = Path(tempfile.mkdtemp(prefix="auditlake-mutations-"))
        mutants = Mutants(server, folder)
        try:
            for stage in Stage:
                selected = [mutation for mutation in wanted if mutation.stage is stage]
                if selected or stage is Stage.CAPTURE:
                    sound = _runs_clean(mutants, stage) and sound
                caught += sum(_is_caught(mutants, mutation) for mutation in selected)
        finally:
            shutil.rmtree(folder)
    print(f"{caught} of {len(wanted)} mutations caught", flush=True)  # noqa: T201
    return 0 if sound and caught == len(wanted) else 1


def _runs_clean(mutants: Mutants, stage: Stage) -> bool:
    failed = mutants.run(stage, None)
    print(f"{stage.name.lower()} without a mutation: {failed or 'all checks hold'}", flush=True)  # noqa: T201
    return not failed


def _is_caught(mutants: Mutants, mutation: Mutation) -> bool:
    try:
        failed = mutants.run(mutation.stage, mutation)
    except DoesNotApply as exc:
        print(f"DOES NOT APPLY {mutation.name}: {exc}", flush=True)  # noqa: T201
        return False
    print(f"{mutation.name}: {', '.join(failed) if failed else 'NOT CAUGHT'}", flush=True)  # noqa: T201
    return bool(failed)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
