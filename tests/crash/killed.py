"""Run a command until it is killed: at a failpoint, or when a condition holds."""

import json
import os
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from auditlake.failpoints import After
from tests import command

_POLL_S = 0.003

# Small and quick to start: most of these JVMs live for one batch, which takes less time than compiling its plans.
SPARK = {
    "AUDITLAKE_SPARK": json.dumps(
        {
            "master": "local[2]",
            "driver.memory": "1g",
            "driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "sql.shuffle.partitions": "2",
            "sql.codegen.wholeStage": "false",
            "sql.codegen.factoryMode": "NO_CODEGEN",
        }
    )
}


def killed_at(place: After, arguments: Sequence[str | Path], *, times: int = 1, code: str | None = None) -> None:
    """Run a command that dies by SIGKILL right after an effect, the `times`-th time that it happens."""
    done = command.run(arguments, {**SPARK, "AUDITLAKE_FAILPOINT": f"{place}:{times}"}, code)
    assert done.code == -signal.SIGKILL, f"{place} was not reached: {done.stderr}"


def killed_when(condition: Callable[[], bool], arguments: Sequence[str | Path]) -> None:
    """Run a command and kill it, with everything it has started, as soon as `condition` holds."""
    with command.start(arguments, SPARK) as process:
        pause = threading.Event()
        while not condition():
            assert process.poll() is None, process.communicate()
            pause.wait(_POLL_S)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL


def finished(arguments: Sequence[str | Path]) -> None:
    """Run a command that must end well."""
    done = command.run(arguments, SPARK)
    assert done.code == 0, done.stderr
