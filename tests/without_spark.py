"""Python that runs before a command, so that it finds no Spark: imports of pyspark fail as if it were not installed."""

WITHOUT_SPARK = """
import sys
from importlib.abc import MetaPathFinder

class NotInstalled(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {"pyspark", "delta", "py4j"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled())
"""
