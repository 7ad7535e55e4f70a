"""Questions about a lake of which one file is damaged: a right answer, or a refusal with exit code 6 or 7."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from auditlake.delta.checkpoints import checkpoint
from auditlake.lake.layout import Lake
from tests.command import run_here
from tests.damage import as_ours
from tests.every_damage import Damage, every_damage
from tests.small_lake import CUSTOMERS, ORDERS, write_lake_with_manifest

_REFUSED = (6, 7)
_QUESTIONS = (
    ("log", "--json"),
    ("log", "--changes", "--json"),
    ("row", "orders", "1", "--json"),
    ("diff", "0/180", "--json"),
    ("sql", "--engine", "duckdb", "--format", "csv", "select id, note, price from orders order by id"),
    ("sql", "--engine", "duckdb", "--format", "csv", "select count(*), max(note) from orders for system_time all"),
)


@dataclass
class Questions:
    """The questions and their right answers."""

    lake: Lake
    _right: list[tuple[int, str]] = field(init=False)

    def __post_init__(self) -> None:
        self._right = [self._ask(question) for question in _QUESTIONS]
        assert all(code == 0 for code, _ in self._right)

    def _ask(self, question: Sequence[str]) -> tuple[int, str]:
        done = run_here([*question, "--lake", self.lake.root])
        return done.code, done.stdout

    def wrong(self) -> Iterator[tuple[str, int]]:
        """Yield the questions that are neither answered rightly nor refused, with their exit codes."""
        for question, right in zip(_QUESTIONS, self._right, strict=True):
            code, output = self._ask(question)
            if code not in _REFUSED and (code, output) != right:
                yield " ".join(question), code


def damaged_lake(root: Path) -> Lake:
    """Write the small lake as auditlake's own writers leave it, with a checkpoint."""
    lake = write_lake_with_manifest(root)
    for name in (ORDERS, CUSTOMERS):
        as_ours(lake.history(name))
    checkpoint(lake.changes)
    return lake


def wrong_answers(lake: Lake, damages: Iterator[Damage]) -> list[tuple[str, str, str, int]]:
    """Return file, kind of damage, question and exit code of everything that went wrong."""
    questions, found = Questions(lake), []
    for damage in damages:
        with damage.done():
            file = str(damage.file.relative_to(lake.root))
            found += [(file, damage.kind, question, code) for question, code in questions.wrong()]
    return found


def damages_of(lake: Lake, kinds: Sequence[str] = (), files: str = "*") -> Iterator[Damage]:
    """Yield the damages of all files, or of the kinds and files that are named."""
    found = sorted(file for file in lake.root.rglob(files) if file.is_file())
    return (damage for damage in every_damage(found) if not kinds or damage.kind in kinds)
