"""When files of a history are worth joining, by their number, size and bounds alone."""

import pytest

from auditlake.follow import next_interval_s
from auditlake.lake.files import DataFile
from auditlake.lake.upkeep import find_due

MB = 1 << 20


def files(part: str, *sizes_mb: int) -> list[DataFile]:
    """Files of one partition."""
    return [DataFile(part, size * MB, 1000) for size in sizes_mb]


def test_few_small_files_stay() -> None:
    """Neither the open partition nor the last month is rewritten for a handful of batches."""
    assert not find_due([*files("open", *[1] * 15), *files("2026-11", *[1] * 15)])


def test_small_files_of_the_open_partition_are_joined() -> None:
    """Large files do not count: they stay as they are."""
    assert find_due(files("open", *[1] * 16)).open_part
    assert not find_due(files("open", *[8] * 100)).open_part


def test_a_month_is_ordered_again_when_half_as_much_came() -> None:
    """So each row is rewritten a few times only, however many batches there are."""
    assert find_due(files("2026-11", 32, 32, *[2] * 16)).closed_parts == ("2026-11",)
    assert find_due(files("2026-11", 32, 33, *[2] * 16)).closed_parts == ()


def test_a_month_that_is_over_is_ordered_soon() -> None:
    """What comes late into it is little."""
    assert find_due([*files("2026-10", *[2] * 4), *files("2026-11", *[2] * 4)]).closed_parts == ("2026-10",)


def begun(part: str, *bounds: tuple[int, int, int]) -> list[DataFile]:
    """Files of one partition: size in MB, and between which LSNs their versions began."""
    return [DataFile(part, size * MB, 1000, least, most) for size, least, most in bounds]


def test_a_month_of_large_files_in_no_order_is_laid_in_order() -> None:
    """Large batches make files as large as ordering does; only how they lie tells them apart."""
    mixed = begun("2026-11", *[(20, 1, 1000 + at) for at in range(17)])
    assert find_due(mixed).closed_parts == ("2026-11",)
    assert not find_due(mixed[:3])
    assert find_due(mixed[:2], everything=True).closed_parts == ("2026-11",)
    assert find_due([*begun("2026-10", (9, 1, 5), (9, 2, 4)), *files("2026-11", 1)]).closed_parts == ("2026-10",)


def test_files_that_meet_in_one_lsn_are_in_order() -> None:
    """A whole snapshot begins at one LSN, and may fill several files."""
    meeting = [(32, 7, 7), (32, 7, 7), (32, 7, 9), (32, 9, 20)]
    assert not find_due(begun("2026-11", *meeting), everything=True)


def test_files_that_share_a_little_are_in_order() -> None:
    """Delta cuts ordered files by a sample, so neighbours share some LSNs: the month is not laid in order for ever."""
    cut = [(32, 1_000, 72_000), (31, 71_500, 84_000), (33, 83_900, 97_000), (33, 96_800, 110_000)]
    assert not find_due(begun("2026-11", *cut), everything=True)
    assert not find_due([*begun("2026-10", *cut), *files("2026-11", 1)])
    wide = [(32, least, most + 2_000) for _, least, most in cut]
    assert find_due(begun("2026-11", *wide), everything=True).closed_parts == ("2026-11",)


def test_one_large_batch_among_ordered_files_waits() -> None:
    """To lay all of it in order again would write four times what came."""
    assert not find_due(begun("2026-10", (32, 1, 5), (32, 5, 9), (32, 9, 20), (10, 2, 19)), everything=True)


def test_everything_joins_what_can_be_joined() -> None:
    """The command does not wait until it is worth it, and finds nothing to do the second time."""
    due = find_due([*files("open", 1, 1), *files("2026-11", 1, 1)], everything=True)
    assert (due.open_part, due.closed_parts) == (True, ("2026-11",))
    assert not find_due([*files("open", 1), *files("2026-11", 1), *files("2026-10", 32, 1)], everything=True)


@pytest.mark.parametrize(
    ("took_s", "rows", "waits_s"), [(9, 100_000, 0), (0.1, 0, 2), (1, 5, 2), (5, 5, 5), (90, 5, 30)]
)
def test_batches_adapt(took_s: float, rows: int, waits_s: float) -> None:
    """Behind, the next batch comes at once; idle, at most half of the time is work, and the wait has an end."""
    assert next_interval_s(took_s, rows) == waits_s
