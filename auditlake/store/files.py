"""Files of a lake, on a disk or in an object store: put, replace, fsync, write and read Parquet, delete a folder, copy.

On a disk, a file gets its name when its content is complete and fsynced; fsync of a folder makes the names in it
durable. In a store, an object exists only when it is complete and durable.

Authority: link(2), rename(2), fsync(2)
"""

import fcntl
import io
import os
import shutil
import stat
import time
import uuid
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from errno import ENODEV, ENXIO
from pathlib import Path, PurePosixPath
from typing import IO, Literal, ParamSpec, Self, TypeVar

from auditlake.store import objects
from auditlake.store.failures import NotAFile
from auditlake.store.place import Place, Remote

UNFINISHED = ".unfinished"
"""Suffix of a file that has no name yet; a killed process leaves it behind."""
FETCHED_FILE_BYTES, FETCHED_BYTES = 2 << 20, 32 << 20
"""A file of a store up to this size, of files up to that one, is read as a whole: a range would take as long."""
_SUMMED_BYTES = _COPIED_BYTES = 8 << 20
_NO_FILE = frozenset({ENODEV, ENXIO})
"""Errors of opening a socket, or a device that the system does not have."""
_SETTLED_NS = 1_000_000_000
"""Longer than a tick of the clock of any file system with fractions of a second."""
_REQUESTS_AT_ONCE = 32
_Item = TypeVar("_Item")
_Content = TypeVar("_Content")
_Given = ParamSpec("_Given")


def open_file(place: Place, mode: Literal["rb", "r+b"] = "rb") -> IO[bytes]:
    """Open a file that exists; raises OSError, FileNotFoundError without one, NotAFile for a pipe or a device.

    Others may have put one there: opening a pipe waits for a writer, and a device may have no end.
    """
    return place.open() if isinstance(place, Remote) else open(place, mode, opener=_opened)


def _opened(name: str, flags: int) -> int:
    try:
        descriptor = os.open(name, flags | os.O_NONBLOCK)
    except OSError as exc:
        if exc.errno in _NO_FILE:
            raise NotAFile(name) from exc
        raise
    if not _is_file(os.fstat(descriptor)):
        os.close(descriptor)
        raise NotAFile(name)
    return descriptor


def _is_file(found: os.stat_result) -> bool:
    """Return whether it can be opened as a file; a folder cannot be, without waiting."""
    return stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)


def read_file(place: Place) -> bytes:
    """Return the content of a file; raises as `open_file`."""
    if isinstance(place, Remote):
        return place.read_bytes()
    with open_file(place) as file:
        return file.read()


def require_files(places: Iterable[Place]) -> None:
    """Require of what others open that nothing is a pipe or a device; raises NotAFile. It may be missing."""
    for place in places:
        with suppress(FileNotFoundError, NotADirectoryError):
            if isinstance(place, Path) and not _is_file(os.stat(place)):  # noqa: PTH116 - a Path costs more
                raise NotAFile(str(place))


def put_if_absent(place: Place, content: bytes, *, locked: bool = False) -> None:
    """Write a file that does not exist yet; `content` must be unique, for example by an id.

    `locked`: in a store, send what a bucket with Object Lock requires.

    Raises FileExistsError if there is one with other content. After any other OSError it may or may not exist.
    """
    if isinstance(place, Remote):
        objects.create(place.bucket, place.key, content, "SHA256" if locked else None)
        return
    with _unfinished(place) as unfinished:
        unfinished.write_bytes(content)
        sync(unfinished)
        _link(unfinished, place, content)
        sync(place.parent)


def _link(unfinished: Path, place: Path, content: bytes) -> None:
    """Link a file to its name. An error although it took effect is a reply that was lost (over NFS)."""
    try:
        os.link(unfinished, place)
    except OSError:
        try:
            recorded = read_file(place)
        except FileNotFoundError:
            recorded = None
        if recorded != content:
            raise


@contextmanager
def _unfinished(place: Path) -> Iterator[Path]:
    """Yield a temporary name in the same folder, which no other writer of the file has; the name is gone at the end.

    A failure names the file itself, also one of a write to an open file, which has no name: the disk is full.
    """
    unfinished = place.with_name(f".{uuid.uuid4()}{UNFINISHED}")
    try:
        yield unfinished
    except OSError as exc:
        exc.filename = str(place)
        raise
    finally:
        unfinished.unlink(missing_ok=True)


def ensure_folder(place: Place) -> None:
    """Create a folder that is missing, with its parents, if stores have folders; its name is not fsynced."""
    if isinstance(place, Path):
        place.mkdir(parents=True, exist_ok=True)


def replace_file(
    place: Place, content: str, *, durable: bool, before_rename: Callable[[], None] = lambda: None
) -> None:
    """Replace a file, in an existing folder; a reader sees the old content or the new one. Raises OSError."""
    if isinstance(place, Remote):
        before_rename()
        objects.put(place.bucket, place.key, content.encode())
        return
    with _unfinished(place) as unfinished:
        with unfinished.open("w") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        before_rename()
        unfinished.rename(place)
    if durable:
        sync(place.parent)


def read_versioned(place: Place) -> tuple[bytes, str | None]:
    """Read a file, and its version in an object store, which `replace_version` takes; raises FileNotFoundError."""
    if isinstance(place, Remote):
        got = objects.get(place.bucket, place.key)
        return got.content, got.etag
    return read_file(place), None


def replace_version(place: Place, content: str, version: str | None) -> str | None:
    """Replace a file, durable; in a store only if it still has this version, or without one is absent.

    Return its new version. Raises FileExistsError if another process changed it.
    """
    if isinstance(place, Path):
        replace_file(place, content, durable=True)
        return None
    if version is None:
        return objects.create(place.bucket, place.key, content.encode())
    return objects.put_if_match(place.bucket, place.key, content.encode(), version)


def update_file(place: Place, change: Callable[[bytes | None], str | None]) -> None:
    """Replace a file, durable, by what `change` makes of its content, None without one; raises OSError.

    The file stays as it is if that is None. Writers change it one after the other; `change` is called again if another
    one came first.
    """
    while True:
        with suppress(FileExistsError):
            if _is_updated(place, change):
                return


def _is_updated(place: Place, change: Callable[[bytes | None], str | None]) -> bool:
    """Return whether the file is as it should be; False, or FileExistsError, if another writer changed it first."""
    try:
        if isinstance(place, Path):
            return _is_updated_alone(place, change)
        before, version = read_versioned(place)
    except FileNotFoundError:
        if (new := change(None)) is not None:
            put_if_absent(place, new.encode())
    else:
        if (changed := change(before)) is not None:
            replace_version(place, changed, version)
    return True


def _is_updated_alone(place: Path, change: Callable[[bytes | None], str | None]) -> bool:
    """The same on a disk: the lock of a file that was replaced while this one waited for it is worth nothing."""
    with open_file(place, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not os.path.samestat(place.stat(), os.fstat(file.fileno())):
            return False
        if (changed := change(file.read())) is not None:
            replace_file(place, changed, durable=True)
    return True


def remove_version(place: Place, absent: str, version: str | None) -> None:
    """Remove a file; in a store, which deletes no object on a condition, replace this version of it by `absent`.

    Raises as `replace_version`.
    """
    if isinstance(place, Path):
        place.unlink(missing_ok=True)
    else:
        replace_version(place, absent, version)


def write_new(place: Place, content: bytes) -> None:
    """Write a file under a new name; it is durable when this returns."""
    if isinstance(place, Remote):
        objects.put(place.bucket, place.key, content)
        return
    place.write_bytes(content)
    sync(place, place.parent)


@contextmanager
def new_file(place: Place) -> Iterator[Path | IO[bytes]]:
    """Yield what a Parquet writer takes, to write a file under a new name; durable at the end, gone after an error."""
    if isinstance(place, Path):
        try:
            yield place
        except BaseException as exc:
            place.unlink(missing_ok=True)
            if isinstance(exc, OSError):
                exc.filename = exc.filename or str(place)
            raise
        sync(place, place.parent)
        return
    upload = objects.Upload(place.session, place.bucket, place.key)
    yield upload  # type: ignore[misc] # RawIOBase is all that pyarrow asks for
    upload.finish()


def crc32(place: Place) -> int:
    """Return the CRC-32 of a file's content."""
    found = 0
    with open_file(place) as file:
        while content := file.read(_SUMMED_BYTES):
            found = zlib.crc32(content, found)
    return found


def crc32_written(place: Place, sink: object) -> int:
    """Return the CRC-32 of a file that was written to what `new_file` yielded; a store is not asked for it."""
    return sink.crc32 if isinstance(sink, objects.Upload) else crc32(place)


def read_each(folder: Place, read: Callable[[_Item], _Content], items: Sequence[_Item]) -> list[_Content]:
    """Read a file of a folder for each item: one after the other on a disk, many at once in a store."""
    if isinstance(folder, Path) or not items:
        return [read(item) for item in items]
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        return list(pool.map(read, items))


class AtOnce:
    """Runs functions that wait for a store at the same time; on a disk, each when it is started."""

    def __init__(self, place: Place) -> None:
        self._pool = None if isinstance(place, Path) else ThreadPoolExecutor(_REQUESTS_AT_ONCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def start(self, read: Callable[_Given, _Content], *args: _Given.args, **kwargs: _Given.kwargs) -> Future[_Content]:
        """Start a function; its result, or its exception, is that of the future."""
        if self._pool is not None:
            return self._pool.submit(read, *args, **kwargs)
        done: Future[_Content] = Future()
        done.set_result(read(*args, **kwargs))
        return done


def parquet(place: Place) -> Path | IO[bytes]:
    """Return what pyarrow's Parquet reader takes; raises NotAFile."""
    require_files([place])
    return place if isinstance(place, Path) else place.open()


def drop_folder(place: Place) -> bool:
    """Delete a folder on a disk; return False in a store, where another process may still write objects below it."""
    if isinstance(place, Path) and place.exists():
        remove_folder(place)
    return isinstance(place, Path)


def remove_folder(place: Place) -> None:
    """Delete a folder with all that is in it."""
    if isinstance(place, Path):
        shutil.rmtree(place)
        return
    objects.delete(place.bucket, list(objects.list_keys(place.bucket, f"{place.key}/")))


def read_listed(place: Place, etag: str | None) -> bytes:
    """Read a file that a listing showed; with an ETag, from a store, the same content is read once."""
    return (
        objects.get_listed(place.session, place.bucket, place.key, etag)
        if isinstance(place, Remote)
        else read_file(place)
    )


def parquet_listed(place: Place, etag: str | None) -> Path | IO[bytes]:
    """Return what pyarrow's Parquet reader takes, of a file that a listing showed (`read_listed`)."""
    return parquet(place) if isinstance(place, Path) else io.BytesIO(read_listed(place, etag))


def list_versioned(folder: Place, name: str) -> Iterator[tuple[str, str | None]]:
    """Yield the names in a folder of a store that are greater than `name`, in order, with their ETags.

    On a disk all names, in any order; raises FileNotFoundError if it has no such folder.
    """
    if isinstance(folder, Path):
        yield from ((file.name, None) for file in folder.iterdir())
        return
    prefix = f"{folder.key}/"
    for key, etag in objects.etags(folder.bucket, prefix, after=name):
        yield key.removeprefix(prefix), etag


def move(place: Place, to: Place) -> None:
    """Give a file a new name in an existing folder; it is durable when this returns."""
    if isinstance(place, Path) and isinstance(to, Path):
        sync(place)
        place.rename(to)
        sync(to.parent)
    elif isinstance(place, Remote) and isinstance(to, Remote):
        objects.copy(place.bucket, place.key, to.key)
        objects.delete(place.bucket, [place.key])
    else:
        raise TypeError(f"{place} and {to} are on different stores")


def relative_name(place: Place, folder: Place) -> str:
    """Return the name of a file relative to a folder above it, with slashes."""
    return str(PurePosixPath(str(place)).relative_to(str(folder)))


def fingerprint(folder: Place) -> object:
    """Return a value that changes when files in a folder come, go or are replaced; None if there is no folder.

    A folder on a disk that was written just now equals nothing, because the next write may have the same time.
    """
    if isinstance(folder, Remote):
        return tuple(objects.etags(folder.bucket, f"{folder.key}/")) or None
    try:
        written_ns = os.stat(folder).st_mtime_ns  # noqa: PTH116 - called before every batch; a Path costs more
    except FileNotFoundError:
        return None
    return written_ns if is_settled(written_ns) else object()


def is_settled(written_ns: int) -> bool:
    """Return whether the next write of a file or folder last written then gets another time."""
    return time.time_ns() - written_ns > _SETTLED_NS


def file_versions(folder: Place) -> dict[str, object]:
    """Return for each file of a folder, by name, a value that changes when the file is replaced."""
    if isinstance(folder, Remote):
        prefix = f"{folder.key}/"
        return {key.removeprefix(prefix): etag for key, etag in objects.etags(folder.bucket, prefix)}
    try:
        with os.scandir(folder) as files:
            return {file.name: (file.inode(), file.stat().st_mtime_ns) for file in files}
    except FileNotFoundError:
        return {}


def list_written(folder: Place) -> Iterator[tuple[str, float]]:
    """Yield the files below a folder by their relative names, with the time when each was written, in seconds."""
    if isinstance(folder, Remote):
        prefix = f"{folder.key}/"
        yield from ((key.removeprefix(prefix), time_s) for key, time_s in objects.written_keys(folder.bucket, prefix))
        return
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):  # another process has deleted it
            if file.is_file():
                yield relative_name(file, folder), file.stat().st_mtime


def remove_files(places: Sequence[Place]) -> None:
    """Delete files of one disk or bucket, also those that do not exist."""
    for place in places:
        if isinstance(place, Path):
            place.unlink(missing_ok=True)
    if remote := [place for place in places if isinstance(place, Remote)]:
        objects.delete(remote[0].bucket, [place.key for place in remote])


def remove_durably(places: Sequence[Place]) -> None:
    """Delete files as `remove_files`; this is durable when it returns."""
    remove_files(places)
    sync(*{place.parent for place in places if isinstance(place, Path) and place.parent.is_dir()})


def modified_s(folder: Place) -> float:
    """Return when a folder was modified last; in a store, when its last object was."""
    if isinstance(folder, Path):
        return folder.stat().st_mtime
    return max((time_s for key, time_s in objects.written_keys(folder.bucket, folder.key)), default=0)


def list_folders(folder: Place, expected: Collection[str]) -> list[tuple[str, str]]:
    """List the folders two levels below a folder; in a store, those `expected` in it at the same time as itself."""
    if isinstance(folder, Path):
        return [(found.parent.name, found.name) for found in folder.glob("*/*")]
    with AtOnce(folder) as at_once:
        early = {name: at_once.start(_names, folder / name) for name in expected}
        below = {name: early.get(name) or at_once.start(_names, folder / name) for name in _names(folder)}
        return [(name, each) for name, found in below.items() for each in found.result()]


def _names(folder: Place) -> list[str]:
    return [child.name for child in folder.iterdir()]


def local_path(place: Place) -> Path | None:
    """Return a place as a path, for what only disks have: locks, inodes, folders; None if it is in a store."""
    return place if isinstance(place, Path) else None


def full_name(place: Place) -> str:
    """Return the one full name of a place, also if it was named by a relative path or a link."""
    return os.path.realpath(place) if isinstance(place, Path) else str(place)


def leads_out(place: Place, folder: Place) -> bool:
    """Return whether a file in a folder is a link to one outside of it."""
    if isinstance(place, Remote) or isinstance(folder, Remote):
        return False
    return not Path(os.path.realpath(place)).is_relative_to(os.path.realpath(folder))


def free_bytes(place: Place) -> int | None:
    """Return the free space on a place's disk; None in a store, which has no limit."""
    return shutil.disk_usage(place).free if isinstance(place, Path) else None


def set_mode(place: Place, mode: int) -> None:
    """Set the permissions of a file, if it has any."""
    if isinstance(place, Path):
        place.chmod(mode)


def size_bytes(place: Place) -> int:
    """Return the size of a file."""
    return place.stat().st_size if isinstance(place, Path) else objects.size(place.session, place.bucket, place.key)


def make_folder(place: Place) -> None:
    """Create a folder and its missing parents; their names are on the disk when this returns."""
    if not isinstance(place, Path):
        return
    missing = [place, *place.parents]
    missing = missing[: next(depth for depth, folder in enumerate(missing) if folder.is_dir())]
    place.mkdir(parents=True, exist_ok=True)
    sync(*(folder.parent for folder in reversed(missing)))


def sync(*places: Place) -> None:
    """Fsync files and folders."""
    for path in places:
        if not isinstance(path, Path):
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def copy_file(source: Place, target: Place) -> int:
    """Copy a file into an existing folder; return its bytes. Raises OSError, FileNotFoundError without a source."""
    with open_file(source) as reading:
        if not isinstance(target, Path):
            upload = objects.Upload(target.session, target.bucket, target.key)
            shutil.copyfileobj(reading, upload, _COPIED_BYTES)
            upload.finish()
            return upload.tell()
        with _unfinished(target) as unfinished:
            with unfinished.open("wb") as writing:
                shutil.copyfileobj(reading, writing, _COPIED_BYTES)
                writing.flush()
                os.fsync(writing.fileno())
                size_bytes = writing.tell()
            unfinished.rename(target)
    sync(target.parent)
    return size_bytes


def existing_files(folder: Place) -> set[str]:
    """List the files below a folder that copies go to, and delete what killed copies left; one process at a time."""
    names = {name for name, _ in list_written(folder)}
    unfinished = {name for name in names if name.endswith(UNFINISHED)}
    remove_files([folder / name for name in unfinished])
    return names - unfinished
