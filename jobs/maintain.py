"""Upkeep on a cluster: `spark-submit jobs/maintain.py LAKE`. Joins files of the histories and deletes expired ones."""

import sys

from auditlake.lake.layout import Lake
from auditlake.lake.maintenance import maintain
from auditlake.lake.manifest import require_manifest
from auditlake.messages import exit_on_errors, say
from auditlake.spark.session import spark_session
from auditlake.store.objects import settings_for_spark

if __name__ == "__main__":
    with exit_on_errors():
        lake = Lake.at(sys.argv[1])
        require_manifest(lake)
        maintain(lambda: spark_session(settings_for_spark(lake.root)), lake, say)
