"""A history as it will be once a folded tail is merged: for reading before the merge. Pure."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.apply import keys
from auditlake.apply.fold import ENDS, Folded
from auditlake.lake.history import OPEN_PART
from auditlake.relation import Column


def overlay(history: DataFrame, folded: Folded, columns: Sequence[Column]) -> DataFrame:
    """The history's rows with the closes applied, and the versions; closed rows are not looked at."""
    is_open = F.col("_part") == OPEN_PART
    return history.where(~is_open).unionByName(overlay_open(history.where(is_open), folded, columns))


def overlay_open(open_versions: DataFrame, folded: Folded, columns: Sequence[Column]) -> DataFrame:
    """The same of the open rows alone: they, with the closes applied, and the versions."""
    closes = F.broadcast(folded.closes).alias("c")
    still_open = open_versions.alias("h").join(closes, on=F.expr(keys.same(columns, "h", "c")), how="left")
    ended = [
        F.coalesce(F.col(f"c.{name}"), F.col(f"h.{name}")).alias(name) if name in ENDS else keys.source(name, "h")
        for name in open_versions.columns
    ]
    return still_open.select(*ended).unionByName(folded.versions)
