"""Each kind of damage to each file of a lake on a disk, one at a time."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.damage import flipped

Change = Callable[[bytes], bytes | None]
"""Returns other content; None deletes the file."""
KINDS: dict[str, Change] = {
    "deleted": lambda _: None,
    "emptied": lambda _: b"",
    "truncated": lambda content: content[: len(content) // 2],
    "cut by a byte": lambda content: content[:-1],
    "flipped": lambda content: flipped(content, len(content) // 3),
    "flipped near the end": lambda content: flipped(content, max(0, len(content) - 20)),
}
OLDER = "replaced by an older one"


@dataclass(frozen=True)
class Damage:
    """A kind of damage to a file, and the content that it leaves."""

    kind: str
    file: Path
    content: bytes | None

    @property
    def is_json(self) -> bool:
        """Return whether the content is JSON."""
        try:
            json.loads(self.content or b"")
        except ValueError:
            return False
        return True

    @contextmanager
    def done(self) -> Iterator[None]:
        """Do it, and undo it at the end."""
        lake = next(folder for folder in self.file.parents if (folder / "lake.json").exists() or folder.name == "lake")
        before = {file: file.read_bytes() for file in lake.rglob("*") if file.is_file()}
        self.file.unlink()
        if self.content is not None:
            self.file.write_bytes(self.content)
        try:
            yield
        finally:
            for file in lake.rglob("*"):
                if file.is_file() and file not in before:
                    file.unlink()
            for file, content in before.items():
                if not file.exists() or file.read_bytes() != content:
                    file.unlink(missing_ok=True)
                    file.write_bytes(content)


def every_damage(files: Sequence[Path]) -> Iterator[Damage]:
    """Yield every kind of damage of each of these files that changes it; an older file is one beside it."""
    for file in files:
        content = file.read_bytes()
        changed = [(kind, change(content)) for kind, change in KINDS.items()]
        older = [
            other for other in files if other.parent == file.parent and other < file and other.suffix == file.suffix
        ]
        changed += [(OLDER, older[-1].read_bytes())] if older else []
        yield from (Damage(kind, file, damaged) for kind, damaged in changed if damaged != content)
