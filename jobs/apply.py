"""Apply on a cluster: `spark-submit jobs/apply.py LAKE`. Applies the captured changes once."""

import sys
import threading

from auditlake.follow import Applier, run_apply
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.messages import exit_on_errors, say
from auditlake.spark.on_demand import SparkOnDemand
from auditlake.store.objects import settings_for_spark

if __name__ == "__main__":
    with exit_on_errors():
        lake = Lake.at(sys.argv[1])
        require_manifest(lake)
        applier = Applier(lake, SparkOnDemand(settings_for_spark(lake.root)), say)
        run_apply(applier, threading.Event(), once=True)
