"""Clustering of a history: sort the closed versions of a month by `_from_lsn`, and split them into files by age.

An as-of query at L reads from each later month only the versions that began by L: usually a few long-lived ones.
Sorting puts these first. If they share a file with short-lived versions, every query between their LSNs has to decode
that file's LSN columns. So files are also split by age, the distance in WAL from `_from_lsn` to the end of the month,
in classes that double. Then the statistics of most files show that all of their versions are valid at L, or none.

Spark writes the sorted files into a temporary folder in the table, from which one commit that changes no data adopts
them (`compaction.rearrange`). If the process is killed, the folder remains and no log entry names it. VACUUM ignores
parts of it, because Spark hides unfinished files, so `delete_abandoned` deletes it.

Authority: Delta's PROTOCOL.md, "Add File and Remove File"; spark.apache.org/docs/4.2.0/sql-data-sources-parquet.html
"""

import time
import uuid
from contextlib import suppress

from pyspark.sql import Column as Expression
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.lake.compaction import rearrange
from auditlake.lake.history import LSNS, HistoryTable, adopt_rows
from auditlake.lake.history_files import Files, part_of
from auditlake.lake.history_rows import read_rows
from auditlake.store.files import modified_s, remove_folder

_FILE_BYTES = 16 << 20
_FOLDER = "unordered-"
_ABANDONED_S = 24 * 3600.0
_UNITS = 64
AGES = _UNITS.bit_length() + 1
"""Maximum number of age classes."""
# LSNs are distinct: a reader of one page would have to read a dictionary of a megabyte.
_PLAIN = {f"parquet.enable.dictionary#{name}": "false" for name in LSNS}


def has_bounds(files: Files) -> bool:
    """Return whether the log has the bounds of both LSN columns of every file."""
    return all(file.bounds(name) is not None for file in files.by_name.values() for name in LSNS)


def cluster(spark: SparkSession, files: Files) -> bool:
    """Replace files of one closed partition by clustered ones; return False if another commit touched them.

    The files must have bounds (`has_bounds`).
    """
    (part,) = {part_of(file) for file in files.by_name.values()}
    folder = files.table.path / f"{_FOLDER}{uuid.uuid4()}"
    count = -(-files.size_bytes // _FILE_BYTES)
    rows = read_rows(spark, files).withColumn("_part", _age(files))  # temporary folders are age classes
    clustered = rows.repartitionByRange(count, *LSNS).sortWithinPartitions("_part", *LSNS)
    try:
        clustered.write.partitionBy("_part").options(**_PLAIN).parquet(str(folder))
        added = adopt_rows(files.table, part, sorted(folder.glob("_part=*/*.parquet"), key=str))
    finally:
        with suppress(OSError):  # `delete_abandoned` deletes the rest
            remove_folder(folder)
    return rearrange(files, added)


def delete_abandoned(table: HistoryTable) -> None:
    """Delete temporary folders that are older than a day: their processes were killed."""
    before_s = time.time() - _ABANDONED_S
    for folder in table.path.glob(f"{_FOLDER}*"):
        if modified_s(folder) < before_s:
            remove_folder(folder)


def _age(files: Files) -> Expression:
    """Return the age class of a version: 0 up to the length of the month in WAL, n up to 2ⁿ times that."""
    begins, ends = ([bounds for file in files.by_name.values() if (bounds := file.bounds(name))] for name in LSNS)
    end = max(high for _, high in ends)
    length, reach = end - min(low for low, _ in ends), end - min(low for low, _ in begins)
    unit = max(length, -(-reach // _UNITS), 1)
    units = F.expr(f"({end} - _from_lsn) div {unit}")
    return F.when(units == 0, 0).otherwise(F.length(F.bin(units)))
