"""Upkeep on a cluster: `spark-submit jobs/maintain.py LAKE`. Joins files of the histories and deletes expired ones.

Versions, changes and transactions expire as `[retention]` of `auditlake.toml` in the working folder of the driver says.
"""

import sys

from auditlake.config import load_settings
from auditlake.erasure.retention import expire
from auditlake.lake.layout import Lake
from auditlake.lake.maintenance import maintain
from auditlake.lake.manifest import require_manifest
from auditlake.messages import exit_on_errors, say
from auditlake.spark.on_demand import SparkOnDemand
from auditlake.store.objects import settings_for_spark

if __name__ == "__main__":
    with exit_on_errors():
        lake, kept = Lake.at(sys.argv[1]), load_settings(lake=sys.argv[1]).retention.kept
        require_manifest(lake)
        expire(lake, kept, "maintain", say)
        maintain(SparkOnDemand(settings_for_spark(lake.root)), lake, say)
