"""Upkeep on a cluster: `spark-submit jobs/maintain.py LAKE`. Joins files of the histories and deletes expired ones."""

import sys
from pathlib import Path

from auditlake.lake.layout import Lake
from auditlake.lake.maintenance import maintain
from auditlake.lake.manifest import require_manifest
from auditlake.messages import exit_on_errors, say
from auditlake.spark.session import spark_session

if __name__ == "__main__":
    with exit_on_errors():
        lake = Lake(Path(sys.argv[1]).absolute())
        require_manifest(lake)
        maintain(spark_session(), lake, say)
