"""The first copy on a cluster: `spark-submit jobs/bootstrap.py LAKE`. Workers read the source, the driver commits.

Source, slot, publication and tables are set as for `auditlake bootstrap`: AUDITLAKE_SOURCE or `auditlake.toml`, and the
password by libpq's own ways on the driver.
"""

import sys

from auditlake.cli.options import bootstrap_target
from auditlake.config import load_settings
from auditlake.messages import exit_on_errors, say
from auditlake.snapshot.bootstrap import bootstrap
from auditlake.snapshot.worker_pool import start_workers
from auditlake.spark.on_demand import SparkOnDemand
from auditlake.store.objects import settings_for_spark

if __name__ == "__main__":
    with exit_on_errors():
        settings = load_settings(lake=sys.argv[1])
        spark = SparkOnDemand(settings_for_spark(settings.lake))
        bootstrap(bootstrap_target(settings), lambda: start_workers(spark), say)
