"""Apply on a cluster: `spark-submit jobs/apply.py LAKE`. Brings what was captured into the history, once."""

import sys
import threading
from pathlib import Path

from auditlake.follow import Applier, run_apply
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.messages import exit_on_errors, say
from auditlake.spark.session import spark_session

if __name__ == "__main__":
    with exit_on_errors():
        lake = Lake(Path(sys.argv[1]).absolute())
        require_manifest(lake)
        run_apply(Applier(lake, spark_session, say), threading.Event(), once=True)
