"""Lay the closed versions of a month in the order in which they began, those of like age in files of their own.

A question as of L needs of every later month what had begun by L: of most months only a few versions, those that lived
long. Laid in order they are at the head of the month's first file; where they share that file with younger ones, its
LSNs must be read for every question between. So files are cut between ages too, each twice as long as the one before,
and the log alone says of most files that all of their versions were there, or none.

Spark sorts, into a folder of its own in the table; from there the files get into the table by one entry in Delta's log
that changes no data (`rearrange`). A killed process leaves the folder, which no entry names. A vacuum does not see all
of it, as Spark hides what is not finished, so `delete_abandoned` does that.

Authority: Delta's PROTOCOL.md, "Add File and Remove File"; spark.apache.org/docs/4.2.0/sql-data-sources-parquet.html
"""

import shutil
import time
import uuid

from pyspark.sql import Column as Expression
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.lake.history import LSNS, HistoryTable, adopt_rows
from auditlake.lake.rearrange import rearrange
from auditlake.lake.scan import Files, read_rows

_FILE_BYTES = 16 << 20
_FOLDER = "unordered-"
_ABANDONED_S = 24 * 3600.0
_UNITS = 64
AGES = _UNITS.bit_length() + 1
"""So many ages there are at most."""
# No two LSNs are alike: a dictionary of a MB would have to be read for every page of them.
_PLAIN = {f"parquet.enable.dictionary#{name}": "false" for name in LSNS}


def has_bounds(files: Files) -> bool:
    """Whether the log tells between which LSNs all of the versions began and ended."""
    return all(file.bounds(name) is not None for file in files.by_name.values() for name in LSNS)


def lay_in_order(spark: SparkSession, files: Files) -> bool:
    """Put files in order in place of these, of one closed part; False where another commit was faster.

    The log must tell their bounds.
    """
    (part,) = {file.part for file in files.by_name.values()}
    folder = files.table.path / f"{_FOLDER}{uuid.uuid4()}"
    count = -(-files.size_bytes // _FILE_BYTES)
    rows = read_rows(spark, files).withColumn("_part", _age(files))  # the files are in one part; folders tell ages
    laid = rows.repartitionByRange(count, *LSNS).sortWithinPartitions("_part", *LSNS)
    try:
        laid.write.partitionBy("_part").options(**_PLAIN).parquet(str(folder))
        added = adopt_rows(files.table, part, sorted(folder.glob("_part=*/*.parquet")))
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # what cannot be deleted now is abandoned
    return rearrange(files, added)


def delete_abandoned(table: HistoryTable) -> None:
    """Delete what killed processes have sorted, a day after they began."""
    before_s = time.time() - _ABANDONED_S
    for folder in table.path.glob(f"{_FOLDER}*"):
        if folder.stat().st_mtime < before_s:
            shutil.rmtree(folder)


def _age(files: Files) -> Expression:
    """How long before the end of the part a version began: 0 within its length, n below 2ⁿ times that, in WAL."""
    begins, ends = ([bounds for file in files.by_name.values() if (bounds := file.bounds(name))] for name in LSNS)
    end = max(high for _, high in ends)
    length, reach = end - min(low for low, _ in ends), end - min(low for low, _ in begins)
    unit = max(length, -(-reach // _UNITS), 1)
    units = F.expr(f"({end} - _from_lsn) div {unit}")
    return F.when(units == 0, 0).otherwise(F.length(F.bin(units)))
