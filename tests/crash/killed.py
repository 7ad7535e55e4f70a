"""Run a command until it is killed at a failpoint, or to its end."""

import json
import signal
from collections.abc import Sequence
from pathlib import Path

from auditlake.failpoints import After
from tests import command

# Small and quick to start: most of these JVMs run one batch, which takes less time than compiling its plans.
SPARK = {
    "AUDITLAKE_SPARK": json.dumps(
        {
            "master": "local[2]",
            "driver.memory": "1g",
            "driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=128m",
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


def finished(arguments: Sequence[str | Path]) -> None:
    """Run a command that must succeed."""
    done = command.run(arguments, SPARK)
    assert done.code == 0, done.stderr
