"""Upkeep on a cluster: `spark-submit jobs/maintain.py LAKE`. Joins files of the histories and deletes expired ones."""

import sys
from pathlib import Path

from auditlake.lake.layout import Lake
from auditlake.lake.session import spark_session
from auditlake.maintain import maintain
from auditlake.terminal import say

if __name__ == "__main__":
    maintain(spark_session(), Lake(Path(sys.argv[1]).absolute()), say)
