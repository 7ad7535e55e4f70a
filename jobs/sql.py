"""Ask on a cluster: `spark-submit jobs/sql.py LAKE SQL [WHEN]`. Prints CSV."""

import sys
from pathlib import Path

from auditlake.lake.layout import Lake
from auditlake.lake.session import spark_session
from auditlake.query.render import render
from auditlake.query.sql import run_sql

if __name__ == "__main__":
    lake, statement, *when = sys.argv[1:]
    render(run_sql(spark_session(), Lake(Path(lake).absolute()), statement, when[0] if when else None), "csv")
