"""Keep this process from importing a package that another one would use if it were there.

pyarrow looks for pandas at its first array, and importing that takes longer than all the rest of a capture's start;
capture gives nothing to pandas and takes nothing from it. A package that is imported already stays.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _LeftOut(MetaPathFinder):
    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname == self._package:
            raise ModuleNotFoundError(f"{fullname} is left out of this process", name=fullname)
        return None


def leave_out(package: str) -> None:
    """Make every later import of `package` fail as if it were not installed."""
    sys.meta_path.insert(0, _LeftOut(package))
