"""Session start and a first query in a fresh JVM, with the class-data archive and without it, in turns.

    python bench/jvm_start.py [RUNS]

Prints the medians of wall seconds and their ratio.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

_RUN = """
from auditlake.spark.session import spark_session
spark = spark_session()
spark.range(1000).selectExpr("id", "cast(id as decimal(10,2)) as price").createOrReplaceTempView("t")
spark.sql("select id % 7 as k, sum(price), count(*) from t group by 1 order by 1").toArrow()
"""


def main() -> None:
    """Run both in turns."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as empty:
        jars = os.environ.get("AUDITLAKE_JARS") or _jars()
        caches = {"archive": dict(os.environ), "none": {**os.environ, "XDG_CACHE_HOME": empty, "AUDITLAKE_JARS": jars}}
        found: dict[str, list[float]] = {name: [] for name in caches}
        for _ in range(runs):
            for name, environment in caches.items():
                found[name].append(_time(environment))
    archive_s, none_s = (statistics.median(found[name]) for name in ("archive", "none"))
    print(f"with an archive {archive_s:.2f} s, without {none_s:.2f} s, ratio {archive_s / none_s:.2f}")


def _jars() -> str:
    from auditlake.spark.jars import jars_folder  # noqa: PLC0415 - imports pyspark

    return str(jars_folder())


def _time(environment: dict[str, str]) -> float:
    begun_s = time.monotonic()
    subprocess.run([sys.executable, "-c", _RUN], env=environment, check=True)
    return time.monotonic() - begun_s


if __name__ == "__main__":
    main()
