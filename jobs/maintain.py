"""Upkeep on a cluster: `spark-submit jobs/maintain.py LAKE`. Joins files of the histories and deletes expired ones."""

import sys

from auditlake.lake.layout import Lake
from auditlake.lake.maintenance import maintain
from auditlake.lake.manifest import require_manifest
from auditlake.messages import exit_on_errors, say
from auditlake.spark.on_demand import SparkOnDemand
from auditlake.store.objects import settings_for_spark

if __name__ == "__main__":
    with exit_on_errors():
        lake = Lake.at(sys.argv[1])
        require_manifest(lake)
        maintain(SparkOnDemand(settings_for_spark(lake.root)), lake, say)
