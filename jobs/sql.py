"""Query on a cluster: `spark-submit jobs/sql.py LAKE SQL [WHEN]`. Prints CSV."""

import sys

from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.messages import exit_on_errors
from auditlake.query.output import render
from auditlake.query.spark_engine import run_sql
from auditlake.spark.session import spark_session
from auditlake.store.objects import settings_for_spark

if __name__ == "__main__":
    with exit_on_errors():
        folder, statement, *when = sys.argv[1:]
        lake = Lake.at(folder)
        require_manifest(lake)
        render(run_sql(spark_session(settings_for_spark(lake.root)), lake, statement, when[0] if when else None), "csv")
