"""Our own code where a library exists: what each replacement would cost. Prints one line per question.

    .venv/bin/python bench/own_code.py

1. settings      pydantic-settings adds its import to the start of every command
2. arrays        psycopg's loader is faster, but a pure package imports no driver, and audit commands need none
3. output        Arrow's CSV writer refuses nested and binary values
4. worker pool   ProcessPoolExecutor fails every task when one worker is killed
"""

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor

import pyarrow as pa
from psycopg.adapt import Transformer
from psycopg.pq import Format
from pyarrow import csv

from auditlake.values.exact_text import array_elements

_TIMES = 20_000
_TEXTS = ("{1,2,NULL}", '{"a b","say \\"hi\\"",""}', "{}", "{" + ",".join(f'"x {n}"' for n in range(50)) + "}")
_OID_TEXT_ARRAY = 1009


def main() -> None:
    """Measure each and print it."""
    settings()
    arrays()
    output()
    workers()


def settings() -> None:
    """Print the import times of pydantic and, where it is installed, of pydantic-settings on top."""
    code = (
        "import time; a = time.perf_counter(); import pydantic; b = time.perf_counter(); import pydantic_settings;"
        " print(f'pydantic {b - a:.3f} s, pydantic-settings {time.perf_counter() - b:.3f} s more')"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    print("settings:   ", run.stdout.strip() or "pydantic-settings is not installed: pip install pydantic-settings")


def arrays() -> None:
    """Print the seconds of both parsers, after comparing what they return."""
    load = Transformer().get_loader(_OID_TEXT_ARRAY, Format.TEXT).load
    encoded = [text.encode() for text in _TEXTS]
    if [array_elements(text) for text in _TEXTS] != [load(text) for text in encoded]:
        raise ValueError("the two parsers differ")
    ours = _seconds(lambda: [array_elements(text) for text in _TEXTS])
    theirs = _seconds(lambda: [load(text) for text in encoded])
    print(f"arrays:      {_TIMES * len(_TEXTS):,} arrays in {ours:.2f} s, psycopg's loader {theirs:.2f} s")


def output() -> None:
    """Print what Arrow's CSV writer does with values that `query.formats` writes exactly."""
    refused = [name for name, column in _columns().items() if not _written(column)]
    print(f"output:      Arrow's CSV writer refuses {', '.join(refused)}")


def _columns() -> dict[str, pa.Array]:
    return {
        "arrays": pa.array([[1]]),
        "structs": pa.array([{"a": 1}]),
        "maps": pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string())),
        "decimals": pa.array([1], pa.decimal128(38, 2)),
        "binary": pa.array([b"\xff"]),
    }


def _written(column: pa.Array) -> bytes:
    out = io.BytesIO()
    try:
        csv.write_csv(pa.table({"c": column}), out, csv.WriteOptions(quoting_style="needed"))
    except pa.ArrowException:
        return b""
    return out.getvalue()


def workers() -> None:
    """Print how many of eight tasks fail if one worker of two is killed."""
    with ProcessPoolExecutor(2) as pool:
        tasks: list[Future[None]] = [pool.submit(_task, number == 1) for number in range(8)]
        failed = sum(task.exception() is not None for task in tasks)
    print(f"worker pool: {failed} of {len(tasks)} tasks failed with one killed worker")


def _task(killed: bool) -> None:  # noqa: FBT001 - a task's only argument
    time.sleep(0.2)
    if killed:
        os.kill(os.getpid(), signal.SIGKILL)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(_TIMES):
        work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
