"""Choice of the rewrites that pay off, by number, size and bounds of the files alone."""

import pytest

from auditlake.delta.data_files import DataFile
from auditlake.follow import next_interval_s
from auditlake.lake.maintenance import find_due

KB, MB = 1 << 10, 1 << 20


def data_file(name: str, part: str, size_bytes: int, from_lsn: tuple[int, int] | None = None) -> DataFile:
    """Return a file of a partition, with the bounds of `_from_lsn` if the log has them."""
    bounds = (
        {} if from_lsn is None else {"minValues": {"_from_lsn": from_lsn[0]}, "maxValues": {"_from_lsn": from_lsn[1]}}
    )
    return DataFile(name, {"partitionValues": {"_part": part}, "size": size_bytes}, {"numRecords": 1000, **bounds})


def files(part: str, *sizes_mb: int) -> list[DataFile]:
    """Return files of one partition without bounds."""
    return [data_file(f"{number}", part, size * MB) for number, size in enumerate(sizes_mb)]


def test_few_small_files_stay() -> None:
    """Neither the open partition nor the last month is rewritten for a few batches."""
    assert not find_due([*files("open", *[1] * 15), *files("2026-11", *[1] * 15)])


def test_small_files_of_the_open_partition_are_joined() -> None:
    """Large files do not count, and are not rewritten."""
    assert find_due(files("open", *[1] * 16)).open_part
    assert not find_due(files("open", *[8] * 100)).open_part


def test_a_month_is_reclustered_once_half_its_size_was_added() -> None:
    """This bounds write amplification, however many batches there are."""
    assert find_due(files("2026-11", 32, 32, *[2] * 16)).closed_parts == ("2026-11",)
    assert find_due(files("2026-11", 32, 33, *[2] * 16)).closed_parts == ()


def test_a_past_month_is_reclustered_early() -> None:
    """It gets few more files."""
    assert find_due([*files("2026-10", *[2] * 4), *files("2026-11", *[2] * 4)]).closed_parts == ("2026-10",)


def test_small_files_of_a_large_month_are_joined_before_it_is_reclustered() -> None:
    """The smallest with each other: a file much larger than all of them is not rewritten for them."""
    few = [*files("2026-11", 300, 4), *(data_file(f"new {number}", "2026-11", KB) for number in range(14))]
    assert not find_due(few)
    due = find_due([*few, data_file("new 14", "2026-11", 15 * KB)])
    assert (due.open_part, due.closed_parts) == (False, ())
    assert due.closed_files == (("2026-11", tuple(f"new {at}" for at in range(15))),)


def test_small_files_of_age_classes_are_not_joined() -> None:
    """A large clustered month has a few small files of old versions; more than that are unclustered."""
    clustered = clustered_files(
        "2026-11", *[(16, at, at + 1) for at in range(100, 110)], *[(1, at, at + 1) for at in range(16)]
    )
    assert not find_due(clustered, everything=True)
    assert find_due([*clustered, *clustered_files("2026-11", (1, 50, 51))], everything=True).closed_files


def test_a_month_that_fits_in_one_file_becomes_one() -> None:
    """Even if its files are clustered."""
    assert find_due(clustered_files("2026-11", (1, 1, 2), (1, 3, 4)), everything=True).closed_parts == ("2026-11",)


def clustered_files(part: str, *bounds: tuple[int, int, int]) -> list[DataFile]:
    """Return files of one partition, by size in MB and the bounds of `_from_lsn`."""
    return [data_file(f"{number}", part, size * MB, (low, high)) for number, (size, low, high) in enumerate(bounds)]


def test_a_month_of_large_unclustered_files_is_clustered() -> None:
    """Large batches write files as large as clustering does; only their bounds differ."""
    mixed = clustered_files("2026-11", *[(20, 1, 1000 + at) for at in range(17)])
    assert find_due(mixed).closed_parts == ("2026-11",)
    assert not find_due(mixed[:3])
    assert find_due(mixed[:2], everything=True).closed_parts == ("2026-11",)
    assert find_due([*clustered_files("2026-10", (9, 1, 5), (9, 2, 4)), *files("2026-11", 1)]).closed_parts == (
        "2026-10",
    )


def test_files_that_share_one_lsn_are_clustered() -> None:
    """All versions of a snapshot begin at one LSN, and may fill several files."""
    meeting = [(32, 7, 7), (32, 7, 7), (32, 7, 9), (32, 9, 20)]
    assert not find_due(clustered_files("2026-11", *meeting), everything=True)


def test_files_that_overlap_a_little_are_clustered() -> None:
    """Delta cuts sorted files by a sample, so neighbours share some LSNs; the month is not clustered again."""
    cut = [(32, 1_000, 72_000), (31, 71_500, 84_000), (33, 83_900, 97_000), (33, 96_800, 110_000)]
    assert not find_due(clustered_files("2026-11", *cut), everything=True)
    assert not find_due([*clustered_files("2026-10", *cut), *files("2026-11", 1)])
    wide = [(32, least, most + 2_000) for _, least, most in cut]
    assert find_due(clustered_files("2026-11", *wide), everything=True).closed_parts == ("2026-11",)


def test_one_large_batch_in_a_clustered_month_waits() -> None:
    """To cluster the month again would write four times the size of the batch."""
    assert not find_due(clustered_files("2026-10", (32, 1, 5), (32, 5, 9), (32, 9, 20), (10, 2, 19)), everything=True)


def test_everything_rewrites_all_that_can_be_joined() -> None:
    """The command does not wait until it pays off, and its second run has nothing to do."""
    due = find_due([*files("open", 1, 1), *files("2026-11", 1, 1)], everything=True)
    assert (due.open_part, due.closed_parts) == (True, ("2026-11",))
    assert not find_due([*files("open", 1), *files("2026-11", 1), *files("2026-10", 32, 1)], everything=True)


@pytest.mark.parametrize(
    ("took_s", "rows", "waits_s"), [(9, 100_000, 0), (0.1, 0, 2), (1, 5, 2), (5, 5, 5), (90, 5, 30)]
)
def test_the_interval_adapts_to_the_last_batch(took_s: float, rows: int, waits_s: float) -> None:
    """With a backlog the next batch starts at once; otherwise at most half of the time is work."""
    assert next_interval_s(took_s, rows) == waits_s
