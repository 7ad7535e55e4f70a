"""Each bench runs to its end, with small loads, as its documentation says."""

import subprocess
import sys
from pathlib import Path

import pytest

_BENCH = Path(__file__).parents[2] / "bench"
_SMALL = (
    "as_of --open 2000 --closed 6000 --runs 1 --columns 3",
    "capture --runs 1 tpcb",
    "cold_follow --scale 1 --transactions 400 --runs 1",
    "cold_follow --scale 1 --transactions 400 --runs 1 --standard",
    "follow --scale 1 --transactions 400",
    "freshness --rate 50 --seconds 2",
    "large_transaction --rows 1000 --engine duckdb",
    "latency --rate 50 --seconds 2",
    "ledger --runs 1 tpcb",
    "lineitem 0.01",
    "live_changes --rate 50 --seconds 2",
    "many_tables --tables 20 --files 2",
    "masks",
    "new_snapshot --rows 1000",
    "one_shot --open 2000 --runs 1",
    "own_code",
    "questions_in_store --runs 1 --delay-ms 1",
    "serve --rows 3000 --moves 3",
    "shapes --open 2000 --closed 4000 --runs 1 --shapes 3",
    "small_tables",
    "soak --batches 3 --changes 20 --rows 500 --tables 3",
    "steady_follow --scale 1 --rate 20 --seconds 3",
    "store_requests --tables 2 --delay-ms 1 --rate 20 --seconds 2",
    "streaming --rows 2000 --runs 1",
    "tpcb --scale 1 --transactions 400",
    "transport --transactions 400 --runs 1",
    "values",
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("command", _SMALL)
def test_a_bench_runs_to_its_end(command: str) -> None:
    """It prints what it measured."""
    name, *arguments = command.split()
    done = subprocess.run(
        [sys.executable, str(_BENCH / f"{name}.py"), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
