"""Python that runs before a command, so that it finds no Spark: imports of pyspark fail as if it were not installed."""

WITHOUT_SPARK = """
import sys
sys.modules.update(dict.fromkeys(("pyspark", "delta", "py4j")))
"""
