"""A JVM that is killed while it runs: the error names what happened, and the setting to change."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

KILLED = """
import os, signal
from auditlake.messages import exit_on_errors
from auditlake.spark.session import spark_session
spark = spark_session({"spark.master": "local[1]", "spark.driver.memory": "600m"})
spark.sparkContext.parallelize([1], 1).map(str).collect()
os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)
with exit_on_errors():
    spark.range(3).count()
"""


def test_a_killed_jvm_is_reported_with_its_settings(tmp_path: Path) -> None:
    """As the kernel kills it when memory runs out: no traceback, and the setting to change."""
    run = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, capture_output=True, text=True, check=False)
    ours = [line for line in run.stderr.splitlines() if line.startswith("auditlake: ")]
    assert run.returncode == 3, run.stderr
    assert re.match("auditlake: error: the JVM under Spark was killed .SIGKILL., its heap is 600m", ours[0])
    assert re.match("auditlake: hint: .*driver.memory", ours[1])
    assert "Traceback" not in run.stderr
    assert "File" not in run.stderr
