"""An erasure is killed after each of its effects, in a process of its own, and finished."""

from pathlib import Path

import pytest

from tests.erasure_lake import STEPS, kill_and_finish, write_lake


@pytest.mark.parametrize("step", STEPS)
def test_an_erasure_that_is_killed_anywhere_is_finished(tmp_path: Path, step: str) -> None:
    """No value stays, and every other answer is as before."""
    kill_and_finish(write_lake(tmp_path / "lake"), step)
