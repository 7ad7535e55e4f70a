"""When files of a history are worth joining, by their number, size and bounds alone."""

import pytest

from auditlake.follow import next_interval_s
from auditlake.lake.files import DataFile
from auditlake.lake.upkeep import find_due

KB, MB = 1 << 10, 1 << 20


def files(part: str, *sizes_mb: int) -> list[DataFile]:
    """Files of one partition."""
    return [DataFile(f"{at}", part, size * MB, 1000) for at, size in enumerate(sizes_mb)]


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


def test_small_files_of_a_large_month_are_joined_until_it_is_ordered_again() -> None:
    """The smallest with each other: a file that is much larger than all of them is not written again for their sake."""
    few = [*files("2026-11", 300, 4), *(DataFile(f"new {at}", "2026-11", KB, 10) for at in range(14))]
    assert not find_due(few)
    due = find_due([*few, DataFile("new 14", "2026-11", 15 * KB, 10)])
    assert (due.open_part, due.closed_parts) == (False, ())
    assert due.closed_files == (("2026-11", tuple(f"new {at}" for at in range(15))),)


def test_files_of_ages_stay() -> None:
    """A large month in order has a few small files of old versions; more of them were never laid."""
    laid = begun("2026-11", *[(16, at, at + 1) for at in range(100, 110)], *[(1, at, at + 1) for at in range(16)])
    assert not find_due(laid, everything=True)
    assert find_due([*laid, *begun("2026-11", (1, 50, 51))], everything=True).closed_files


def test_what_fits_in_one_file_is_to_be_one() -> None:
    """Even where its files lie in order."""
    assert find_due(begun("2026-11", (1, 1, 2), (1, 3, 4)), everything=True).closed_parts == ("2026-11",)


def begun(part: str, *bounds: tuple[int, int, int]) -> list[DataFile]:
    """Files of one partition: size in MB, and between which LSNs their versions began."""
    return [DataFile(f"{at}", part, size * MB, 1000, *begun) for at, (size, *begun) in enumerate(bounds)]


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
