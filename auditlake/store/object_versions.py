"""Older versions of objects, in a bucket that keeps them: list and delete those that are not current.

A bucket with versioning keeps replaced and deleted objects: a deletion only adds a marker. obstore neither lists nor
deletes versions, so this needs boto3, and the rights s3:ListBucketVersions and s3:DeleteObjectVersion. Markers stay;
they have no content, and to delete one before the versions below it would bring an object back.

Authority: docs.aws.amazon.com/AmazonS3/latest/userguide/DeletingObjectVersions.html
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from auditlake.errors import ConfigError, LakeUnusable
from auditlake.extras import S3
from auditlake.store.objects import current_version, endpoint
from auditlake.store.place import Place, Remote

_AT_ONCE = 1000
"""So many versions are deleted by one request, which is the limit of S3."""


@dataclass(frozen=True, slots=True)
class Noncurrent:
    """A version of an object that is not the current one."""

    key: str
    version: str
    size_bytes: int


def keeps_versions(*objects: Place) -> bool:
    """Return whether the bucket of these objects, one of them just written, keeps or kept versions; no disk does."""
    return any(current_version(each.bucket, each.key) is not None for each in _remote(objects))


def list_noncurrent(folders: Iterable[Place]) -> list[Noncurrent]:
    """List noncurrent versions below folders of one bucket, none on a disk; raises ConfigError, LakeUnusable."""
    found: list[Noncurrent] = []
    if not (listed := _remote(folders)):  # boto3 is not needed
        return found
    pages = _client().get_paginator("list_object_versions")
    for folder in listed:
        try:
            for page in pages.paginate(Bucket=_name(folder), Prefix=f"{folder.key}/"):
                versions = (each for each in page.get("Versions", ()) if not each["IsLatest"])
                found += (Noncurrent(each["Key"], each["VersionId"], each["Size"]) for each in versions)
        except _errors() as exc:
            raise _refused(f"versions below {folder} cannot be listed", exc) from exc
    return found


def delete_noncurrent(place: Place, versions: Sequence[Noncurrent]) -> None:
    """Delete versions in a bucket for good, none on a disk; raises ConfigError, LakeUnusable if one is kept."""
    if not isinstance(place, Remote):
        return
    for begin in range(0, len(versions), _AT_ONCE):
        part = versions[begin : begin + _AT_ONCE]
        objects = [{"Key": each.key, "VersionId": each.version} for each in part]
        try:
            reply = _client().delete_objects(Bucket=_name(place), Delete={"Objects": objects, "Quiet": True})
        except _errors() as exc:
            raise _refused(f"versions in {place.bucket} cannot be deleted", exc) from exc
        if kept := reply.get("Errors"):
            raise LakeUnusable(
                f"{len(kept)} versions in {place.bucket} cannot be deleted, first {kept[0]['Key']}: {kept[0]['Code']}",
                "Remove what keeps them, as a lock or a policy of the bucket; then run auditlake forget --resume.",
            )


def _remote(places: Iterable[Place]) -> list[Remote]:
    return [place for place in places if isinstance(place, Remote)]


def _name(place: Remote) -> str:
    return place.bucket.partition("://")[2]


def _client() -> Any:  # noqa: ANN401 - boto3 has no types
    try:
        import boto3  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        raise ConfigError(
            "the bucket keeps versions of objects, and boto3, which lists and deletes them, is not installed",
            f"{S3.command}.",
        ) from None
    return boto3.client("s3", endpoint_url=endpoint())


def _errors() -> tuple[type[Exception], ...]:
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - of boto3

    return (BotoCoreError, ClientError)


def _refused(what: str, exc: Exception) -> LakeUnusable:
    response = getattr(exc, "response", {})
    code = response.get("Error", {}).get("Code", type(exc).__name__)
    return LakeUnusable(
        f"{what}: {code}", "It needs s3:ListBucketVersions and s3:DeleteObjectVersion. Then: auditlake forget --resume."
    )
