"""Apply on a cluster: `spark-submit jobs/apply.py LAKE`. Brings what was captured into the history, once."""

import sys
import threading
from pathlib import Path

from auditlake.follow import Applier, run_apply
from auditlake.lake.layout import Lake
from auditlake.lake.session import spark_session
from auditlake.terminal import say

if __name__ == "__main__":
    run_apply(Applier(Lake(Path(sys.argv[1]).absolute()), spark_session(), say), threading.Event(), once=True)
