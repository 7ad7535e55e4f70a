"""`pyspark.sql.functions`, imported when the first of them is called.

Modules that plan for both executors import it as F: what runs in DuckDB needs no Spark installed, and does not wait for
its import of a second.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.functions import *  # noqa: F403 - all of them, for mypy
else:

    def __getattr__(name: str) -> Any:  # noqa: ANN401 - any function
        """Return the function of that name, and keep it; raises ModuleNotFoundError if pyspark is not installed."""
        from pyspark.sql import functions  # noqa: PLC0415 - see above

        found = globals()[name] = getattr(functions, name)
        return found
