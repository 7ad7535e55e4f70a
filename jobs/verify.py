"""Verification on a cluster: `spark-submit jobs/verify.py LAKE [PATTERN…]`. Workers read the source, and the lake.

Set the source as for `jobs/bootstrap.py`. Prints findings, and exits as `auditlake verify` does.
"""

import sys

from auditlake.config import load_settings
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.messages import exit_on_errors, say, write_exactly
from auditlake.snapshot.scheduler import SourceLoad
from auditlake.spark.session import spark_session
from auditlake.store.objects import settings_for_spark
from auditlake.verify.report import as_lines
from auditlake.verify.verify import VerifyRequest, verify

if __name__ == "__main__":
    with exit_on_errors():
        settings = load_settings(lake=sys.argv[1])
        require_manifest(Lake(settings.lake))
        load = SourceLoad(connections=2, bytes_per_s=settings.copy_bytes_per_s)
        lake, source, stream = Lake(settings.lake), settings.source_required(), settings.how_to_stream
        request = VerifyRequest(lake, source, tuple(sys.argv[2:]), load, streaming=stream)
        report = verify(request, lambda: spark_session(settings_for_spark(settings.lake)), say)
        for line in as_lines(report, keys=True):
            write_exactly(line)
        say(report.summary())
        if failure := report.failure():
            raise failure
