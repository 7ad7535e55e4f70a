"""Apply on a cluster: `spark-submit jobs/apply.py LAKE`. Applies the captured changes once."""

import sys
import threading

from auditlake.follow import Applier, run_apply
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.messages import exit_on_errors, say
from auditlake.spark.session import spark_session
from auditlake.store.objects import settings_for_spark

if __name__ == "__main__":
    with exit_on_errors():
        lake = Lake.at(sys.argv[1])
        require_manifest(lake)
        run_apply(
            Applier(lake, lambda: spark_session(settings_for_spark(lake.root)), say), threading.Event(), once=True
        )
