"""The lake of the tests of erasure in a bucket, and all that the bucket has of it, versions of objects included."""

from pathlib import Path
from typing import Any
from uuid import uuid4

from auditlake.failpoints import After
from auditlake.lake.erasures import unfinished
from auditlake.lake.layout import Lake
from auditlake.store.place import Place, Remote, parse_url
from tests.command import run, run_here
from tests.erasure_lake import OF_ONE, ONE, columns_gone, found_in, states, without
from tests.s3_server import forget


def copied_into_bucket(written: Path, store: Any, **options: object) -> Lake:
    """Copy it into a new bucket with these options; one with `Status` keeps versions."""
    name = f"tests-{uuid4().hex}"
    status = options.pop("Status", None)
    store.create_bucket(Bucket=name, **options)
    if status is not None:
        store.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": status})
    for file in written.rglob("*"):
        if file.is_file():
            store.put_object(Bucket=name, Key=f"lake/{file.relative_to(written)}", Body=file.read_bytes())
    return Lake(parse_url(f"s3://{name}/lake"))  # type: ignore[arg-type] # as Lake documents


def bucket_of(lake: Lake) -> str:
    """Return the name of the bucket of a lake."""
    root: Place = lake.root
    assert isinstance(root, Remote)
    return root.bucket.partition("://")[2]


def all_versions(lake: Lake, store: Any) -> list[dict[str, Any]]:
    """List all versions of all objects in the bucket of a lake."""
    pages = store.get_paginator("list_object_versions").paginate(Bucket=bucket_of(lake))
    return [each for page in pages for each in page.get("Versions", ())]


def everything(lake: Lake, store: Any, to: Path) -> Lake:
    """Write every version of every object into a folder."""
    for number, each in enumerate(all_versions(lake, store)):
        found = store.get_object(Bucket=bucket_of(lake), Key=each["Key"], VersionId=each["VersionId"])
        file = to / f"{number}" / each["Key"]
        file.parent.mkdir(parents=True)
        file.write_bytes(found["Body"].read())
    return Lake(to)


def kill_and_finish(lake: Lake, store: Any, step: str, to: Path) -> None:
    """Kill an erasure after a step: rows can be read meanwhile, and it ends as without the kill, in all versions."""
    before = states(lake)
    at = ["--lake", str(lake.root)]
    assert run(["forget", *OF_ONE, "--delete-versions", *at], {"AUDITLAKE_FAILPOINT": step}).code == -9
    forget(lake.root)
    for (lsn, table), rows in states(lake).items():
        assert [row["id"] for row in rows] == [row["id"] for row in before[lsn, table]]
    if step != After.ERASURE_ENDED:
        assert run_here(["forget", "--resume", *at]).code == 3
    assert run_here(["forget", "--resume", "--delete-versions", *at]).code == 0
    assert unfinished(lake) == []
    assert found_in(everything(lake, store, to), ONE) == {}
    assert states(lake) == without(before, columns_gone)
