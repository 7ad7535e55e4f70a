"""Tests of lake.json: the sources of a lake, and the offset of the current one."""

from dataclasses import replace
from pathlib import Path

from auditlake.lake.manifest import (
    LSN_OFFSET_UNIT,
    EarlierSource,
    Manifest,
    read_earlier_sources,
    read_lsn_offset,
    record_source,
    require_manifest,
    write_manifest,
)
from auditlake.lsn import Lsn
from tests.s3_server import chosen_lake


def test_a_lake_with_an_offset_records_the_sources_before(tmp_path: Path) -> None:
    """With their ends."""
    lake, first = chosen_lake(tmp_path / "lake"), Manifest("7", 1, "shop", "s", "p")
    assert read_lsn_offset(lake) == 0
    write_manifest(lake, first)
    assert read_earlier_sources(lake) == ()
    same = replace(first, timeline=2)
    record_source(lake, same, Lsn(100))
    assert require_manifest(lake) == same
    assert read_earlier_sources(lake) == ()
    second = replace(first, system_identifier="8", timeline=1, lsn_offset=LSN_OFFSET_UNIT)
    for _ in range(2):  # a killed run repeats it
        record_source(lake, second, Lsn(200))
    assert require_manifest(lake) == second
    assert read_lsn_offset(lake) == LSN_OFFSET_UNIT
    assert read_earlier_sources(lake) == (EarlierSource("7", 2, 0, Lsn(200)),)
