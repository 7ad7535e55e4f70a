"""The store over the S3 protocol: conditional puts, reads, listings, leases, and Delta tables on top of it."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import cast

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError

from auditlake.delta.append_table import AppendLog
from auditlake.delta.log_reader import TailTransactions, live_files, tail_transactions
from auditlake.delta.log_writer import moved, put_commit
from auditlake.delta.small_tables import read_small_table
from auditlake.delta.sql import read_newest, select
from auditlake.delta.table import open_table
from auditlake.errors import LakeConflict, LakeUnusable
from auditlake.lake import lease, parking
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import read_manifest
from auditlake.lake.parking import Cause, Parked, find_parked, park, unpark
from auditlake.lake.stage_lock import Stage, hold, holder_lives
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.store import files, objects
from auditlake.store.failures import as_lake_error
from auditlake.store.place import Place, Remote
from tests.faulty_store import RESET, FaultyStore
from tests.http_server import serving
from tests.s3_server import SECRET, forget
from tests.unit.delta.test_log_writer import expire

_THROTTLED_S = 5
SCHEMA = pa.schema([("lsn", pa.int64()), ("text", pa.string())])
_HOLDER = """
import sys
from auditlake.lake.layout import Lake
from auditlake.lake.stage_lock import Stage, hold
from auditlake.store.place import parse_url
with hold(Lake(parse_url(sys.argv[1])), "follow", Stage.CAPTURE):
    print("held", flush=True)
    sys.stdin.read()
"""


def _rows(*lsns: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"lsn": lsn, "text": f"t{lsn}"} for lsn in lsns], schema=SCHEMA)


def _at_once(count: int, work: Callable[[int], None]) -> None:
    ready = threading.Barrier(count)

    def run(number: int) -> None:
        ready.wait()
        work(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_of_eight_puts_at_once_one_succeeds(remote_folder: Remote) -> None:
    """The object is that writer's; the others learn that it exists."""
    place, won, lost = remote_folder / "entry", list[int](), list[int]()

    def put(number: int) -> None:
        try:
            files.put_if_absent(place, f"writer {number}".encode())
        except FileExistsError:
            lost.append(number)
        else:
            won.append(number)

    _at_once(8, put)
    assert (len(won), len(lost)) == (1, 7)
    assert place.read_text() == f"writer {won[0]}"


def test_a_put_whose_reply_is_lost_has_succeeded(remote_folder: Remote) -> None:
    """The repetition is refused by the store, but the object has our content."""
    place = remote_folder / "entry"
    files.put_if_absent(place, b"our id")
    files.put_if_absent(place, b"our id")
    with pytest.raises(FileExistsError):
        files.put_if_absent(place, b"another id")


def test_a_change_whose_connection_is_reset_is_repeated(remote_folder: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it took effect or not, it is made once; obstore repeats neither conditional puts nor deletions."""
    bucket, key = remote_folder.bucket, (remote_folder / "entry").key
    with FaultyStore(os.environ["AWS_ENDPOINT_URL"], 0.0, 1) as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.endpoint)
        monkeypatch.setattr(objects, "_store", objects._store.__wrapped__)  # noqa: SLF001 - it has the other endpoint
        store.spoil(RESET, RESET)
        etag = objects.create(bucket, key, b"first")
        store.spoil(RESET, RESET)
        objects.put_if_match(bucket, key, b"second", etag)
        assert objects.get(bucket, key).content == b"second"
        store.spoil(RESET, RESET)
        objects.delete(bucket, [key])
        assert (objects.head(bucket, key), store.made[RESET]) == (None, 6)


def test_throttled_requests_are_repeated_for_seconds(remote_folder: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten retries, the default, are over within five seconds in nine of ten cases."""
    AppendLog(_path(remote_folder / "log"), SCHEMA).append(_rows(1, 2), {"app": 2})
    place = remote_folder / "entry"
    files.put_if_absent(place, b"first")
    requests: tuple[Callable[[], object], ...] = (
        place.read_bytes,
        lambda: files.put_if_absent(remote_folder / "other", b"second"),
        lambda: open_table(remote_folder / "log"),
    )
    with FaultyStore(os.environ["AWS_ENDPOINT_URL"], 0.0, 1) as store, ThreadPoolExecutor(len(requests)) as pool:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.endpoint)
        monkeypatch.setattr(objects, "_store", objects._store.__wrapped__)  # noqa: SLF001 - it has the other endpoint
        with store.refusing("SlowDown"):
            made = [pool.submit(request) for request in requests]
            time.sleep(_THROTTLED_S)
            assert not any(each.done() for each in made)
        for each in made:
            each.result()
    assert store.made["SlowDown"] > len(requests)


def test_a_folder_is_what_its_objects_begin_with(remote_folder: Remote) -> None:
    """Existence, listing from a name, patterns, deletion; an absent object is an absent file."""
    for name in ("a/1.json", "a/2.json", "a/b/3.json", "ab/4.json"):
        files.replace_file(remote_folder / name, "{}", durable=True)
    assert [child.name for child in remote_folder.iterdir()] == ["a", "ab"]
    assert [place.name for place in remote_folder.glob("*/*.json")] == ["1.json", "2.json", "4.json"]
    assert [name for name, _ in files.list_versioned(remote_folder / "a", "1.json")] == ["2.json", "b/3.json"]
    assert (remote_folder / "a").exists()
    files.remove_folder(remote_folder / "a")
    assert not (remote_folder / "a").exists()
    assert (remote_folder / "ab" / "4.json").stat().st_size == 2
    with pytest.raises(FileNotFoundError):
        (remote_folder / "a" / "1.json").read_text()


@pytest.mark.parametrize("rows", [3, 2_000_000])
def test_a_parquet_file_is_read_as_it_was_written(remote_folder: Remote, rows: int) -> None:
    """The smaller in one request, the larger in parts; without its end there is no object."""
    table, place = pa.table({"n": range(rows)}), remote_folder / "part-c000.parquet"
    with files.new_file(place) as sink:
        pq.write_table(table, sink, use_dictionary=False)
    assert pq.ParquetFile(files.parquet(place)).read().equals(table)
    unfinished = remote_folder / "other-c000.parquet"
    with pytest.raises(RuntimeError), files.new_file(unfinished) as sink:  # noqa: PT012 - the end must not come
        pq.write_table(table, sink)
        raise RuntimeError
    assert not unfinished.exists()


def test_an_error_of_the_store_has_neither_credentials_nor_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that cannot be reached is an OSError with a short reason."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(objects, "_RETRY_S", 0.2)
    with pytest.raises(OSError, match="The store failed") as failed:
        Remote("s3://unreachable", "lake").read_bytes()
    assert SECRET not in str(failed.value)
    assert len(str(failed.value)) < 200


class _Refusing(BaseHTTPRequestHandler):
    """Answers every request as a store without rights for it."""

    def do_GET(self) -> None:
        body = b"<Error><Code>AccessDenied</Code></Error>"
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_GET  # noqa: N815 - names of http.server

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_a_bucket_that_does_not_exist_is_named(remote_folder: Remote) -> None:
    """By what reads and by what writes first; it is no missing object, and no folder to be made writable."""
    missing, empty = (Lake(cast("Path", place)) for place in (Remote("s3://no-such-bucket", "shop"), remote_folder))
    with pytest.raises(LakeUnusable, match="bucket s3://no-such-bucket does not exist"):
        read_manifest(missing)
    with (
        pytest.raises(LakeUnusable, match="bucket s3://no-such-bucket does not exist"),
        hold(missing, "x", Stage.CAPTURE),
    ):
        pass
    assert read_manifest(empty) is None


@pytest.mark.parametrize(
    "failing", [open_table, lambda place: write_deltalake(str(place), _rows(1), storage_options=objects.options())]
)
def test_a_store_that_refuses_deltalake_is_an_error_of_the_lake(
    failing: Callable[[Place], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reader and writer of deltalake raise different exceptions; their texts for 403 are unlike those of failures."""
    with serving(_Refusing) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "b"}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises((OSError, DeltaError)) as raised:
            failing(Remote("s3://refused", "lake"))
    found = as_lake_error(raised.value)
    assert found is not None
    assert found.message == "the store failed: AccessDenied"


def _as_a_new_process(folder: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what this process has of the store, and its connection to the other endpoint."""
    monkeypatch.setattr(objects, "_store", objects._store.__wrapped__)  # noqa: SLF001 - it has the other endpoint
    forget(folder)


def test_a_query_of_a_table_lets_other_threads_run(remote_folder: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is asked through a thread of this process, which would never answer."""
    log = AppendLog(_path(remote_folder), SCHEMA)
    log.append(_rows(1, 2), {"app": 2})
    with FaultyStore(os.environ["AWS_ENDPOINT_URL"], 0.0, 1) as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.endpoint)
        _as_a_new_process(remote_folder, monkeypatch)
        found = select("select max(lsn) as lsn from t", t=read_newest(_path(remote_folder)))
    assert found["lsn"].to_pylist() == [2]


def test_a_query_that_the_store_refuses_is_an_error_of_the_lake(
    remote_folder: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB reads through this process, and keeps its exceptions."""
    log = AppendLog(_path(remote_folder), SCHEMA)
    log.append(_rows(1, 2), {"app": 2})
    with FaultyStore(os.environ["AWS_ENDPOINT_URL"], 0.0, 1) as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.endpoint)
        _as_a_new_process(remote_folder, monkeypatch)
        table = read_newest(_path(remote_folder))
        with store.refusing("AccessDenied"), pytest.raises(OSError, match="refuses access") as raised:
            select("select max(lsn) as lsn from t", t=table)
    found = as_lake_error(raised.value)
    assert found is not None
    assert found.message.startswith(f"{remote_folder}/part-")
    assert found.message.endswith("The store refuses access (403 Forbidden, AccessDenied)")


def test_positions_and_rows_of_an_append_table(remote_folder: Remote) -> None:
    """Two writers: the one that did not see the other's commit is refused; nothing is lost."""
    log = AppendLog(_path(remote_folder), SCHEMA)
    log.append(_rows(1, 2), {"app": 2})
    late = AppendLog(_path(remote_folder), SCHEMA)
    log.append(_rows(3), {"app": 3})
    with pytest.raises(LakeConflict, match="another process committed"):
        late.append(_rows(4), {"app": 4})
    table = open_table(remote_folder)
    assert sorted(pa.table(table.to_pyarrow_table())["lsn"].to_pylist()) == [1, 2, 3]
    assert tail_transactions(remote_folder, ["app"]) == TailTransactions(table.version(), None, {"app": 3})


def test_small_files_are_joined_and_the_log_is_checkpointed(
    remote_folder: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Afterwards the log is read from its checkpoint on, and has the same rows."""
    monkeypatch.setattr("auditlake.delta.append_table._CHECKPOINT_EVERY", 4)
    log = AppendLog(_path(remote_folder), SCHEMA)
    for lsn in range(6):
        log.append(_rows(lsn), {"app": lsn})
    log.tidy()
    while not (remote_folder / "_delta_log" / "_last_checkpoint").exists():
        time.sleep(0.01)
    version = open_table(remote_folder).version()
    assert len(live_files(remote_folder, version)) == 1
    assert (remote_folder / "_delta_log" / "_last_checkpoint").exists()
    assert sorted(pa.table(open_table(remote_folder).to_pyarrow_table())["lsn"].to_pylist()) == list(range(6))
    assert tail_transactions(remote_folder, ["app"]) == TailTransactions(version, None, {"app": 5})


def test_a_table_that_is_created_again_has_its_own_log(remote_folder: Remote) -> None:
    """Positions, files and rows are those of the second table, although versions and names of entries are the same."""
    for lsn in (1, 2):
        AppendLog(_path(remote_folder), SCHEMA).append(_rows(lsn), {"app": lsn})
        for _ in range(2):
            assert tail_transactions(remote_folder, ["app"]) == TailTransactions(1, None, {"app": lsn})
            assert [json.loads(add["stats"])["maxValues"]["lsn"] for add in live_files(remote_folder, 1)] == [lsn]
            assert read_small_table(remote_folder.session, remote_folder, SCHEMA)["lsn"].to_pylist() == [lsn]
        files.remove_folder(remote_folder)
    assert tail_transactions(remote_folder, ["app"]) is None
    assert read_small_table(remote_folder.session, remote_folder, SCHEMA).num_rows == 0


def test_no_commit_of_many_writers_is_lost(remote_folder: Remote) -> None:
    """Writers that race for the next version get one each."""
    AppendLog(_path(remote_folder), SCHEMA)
    versions: list[int] = []

    def write(number: int) -> None:
        version = 1
        for _ in range(3):
            while True:
                try:
                    put_commit(remote_folder, version, f"writer {number}", [])
                except FileExistsError:
                    version += 1
                else:
                    versions.append(version)
                    break

    _at_once(4, write)
    assert sorted(versions) == list(range(1, 13))
    assert open_table(remote_folder).version() == 12


def _put_raw(place: Remote, name: str) -> None:
    """Write an empty object whose key may be one that obstore does not write."""
    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    client.put_object(Bucket=place.bucket.removeprefix("s3://"), Key=f"{place.key}/{name}", Body=b"")


def test_marks_of_folders_are_no_files(remote_folder: Remote) -> None:
    """Tools that show a bucket as folders write them."""
    lake = remote_folder / "lake"
    for name in ("", "history/", "history/public/"):
        _put_raw(lake, name)
    assert list(lake.iterdir()) == [lake / "history"]
    assert list(files.list_written(lake)) == []
    assert list((remote_folder / "new").iterdir()) == []
    files.put_if_absent(lake / "history" / "public" / "x.json", b"{}")
    assert [name for name, _ in files.list_written(lake)] == ["history/public/x.json"]


@pytest.mark.parametrize("name", ["history//x", "history/../x", "history/\u202e//x"])
def test_an_object_that_has_no_name_is_named(remote_folder: Remote, name: str) -> None:
    """Whoever may write the bucket can make it, and no command can read the folder."""
    _put_raw(remote_folder, name)
    with pytest.raises(LakeUnusable, match=r"whose key cannot be read: .*/history/") as raised:
        list(files.list_written(remote_folder))
    assert name.replace("\u202e", "\\u202e") in raised.value.message


@pytest.mark.parametrize("version", [0, 2])
def test_a_version_whose_entry_was_deleted_is_not_written_again(remote_folder: Remote, version: int) -> None:
    """No reader would see the commit of a process that planned it before: a later checkpoint exists."""
    expire(remote_folder, 3)
    with pytest.raises(FileExistsError, match="had this version"):
        put_commit(remote_folder, version, "WRITE", moved({"app": 99}))
    entries = [name for name, _ in files.list_versioned(remote_folder / "_delta_log", "") if name.endswith(".json")]
    expected = [f"{each:020}.json" for each in (5, 6)]
    assert entries == ([f"{0:020}.json"] if version == 0 else []) + expected
    put_commit(remote_folder, open_table(remote_folder).version() + 1, "WRITE", moved({"app": 99}))
    assert open_table(remote_folder).transaction_version("app") == 99


def test_a_lease_is_held_by_one_process_and_free_once_it_has_died(remote_folder: Remote) -> None:
    """On the same machine the lease need not expire first."""
    lake = Lake(_path(remote_folder))
    command = [sys.executable, "-c", _HOLDER, str(remote_folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(LakeConflict, match=rf"process {first.pid} on .* \(auditlake follow, since 20"):
            hold(lake, "capture", Stage.CAPTURE).__enter__()
        assert holder_lives(lake, Stage.CAPTURE) is True
        first.kill()
    started = time.monotonic()
    with hold(lake, "capture", Stage.CAPTURE):
        assert time.monotonic() - started < lease.EXPIRY_S / 4
    assert holder_lives(lake, Stage.CAPTURE) is False


def test_a_lease_of_another_machine_expires_when_it_is_not_renewed(
    remote_folder: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A holder that renews it keeps it; one that is paused loses it, and notices."""
    monkeypatch.setattr(lease, "RENEW_S", 0.1)
    monkeypatch.setattr(lease, "EXPIRY_S", 1.0)
    monkeypatch.setattr(lease, "_WATCH_S", 0.2)
    place = remote_folder / "apply.lock"
    monkeypatch.setattr(lease, "lives", lambda _: None)
    first = lease.Lease(place, {"command": "apply"})
    with pytest.raises(lease.Taken):
        lease.Lease(place, {"command": "apply"})
    first._ended.set()  # noqa: SLF001 - as if it were paused
    second = lease.Lease(place, {"command": "apply"})
    first.release()  # too late: it is not ours any more
    holder = lease.read_holder(place)
    assert holder is not None
    assert holder["id"] == second.id
    second.release()
    assert lease.read_holder(place) is None


def test_a_lease_is_released_after_a_renewal_that_is_under_way(
    remote_folder: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the renewal would stay, as that of a process that lives."""
    monkeypatch.setattr(lease, "RENEW_S", 0.01)
    put, begun, releasing = objects.put_if_match, threading.Event(), threading.Event()

    def put_slowly(bucket: str, key: str, content: bytes, etag: str) -> str:
        etag = put(bucket, key, content, etag)
        if b'"renewed"' in content:
            begun.set()
            releasing.wait()
        return etag

    monkeypatch.setattr(objects, "put_if_match", put_slowly)
    held = lease.Lease(remote_folder / "apply.lock", {"command": "apply"})
    assert begun.wait(30)
    with ThreadPoolExecutor(1) as pool:
        released = pool.submit(held.release)
        assert held._ended.wait(30)  # noqa: SLF001 - the release has begun
        releasing.set()
        released.result()
    assert lease.read_holder(remote_folder / "apply.lock") is None


def test_a_process_takes_a_lease_again_that_it_could_not_release(
    remote_folder: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own life does not keep it out."""
    held = lease.Lease(remote_folder / "apply.lock", {"command": "apply"})
    with monkeypatch.context() as lost:
        lost.setattr(lease, "replace_version", _lose)
        held.release()
    again = lease.Lease(remote_folder / "apply.lock", {"command": "apply"})
    again.release()
    assert lease.read_holder(remote_folder / "apply.lock") is None


def _lose(*_: object) -> None:
    raise OSError


@pytest.mark.parametrize("failure", [OSError, MemoryError, KeyError])
def test_a_lease_is_renewed_after_a_renewal_whose_reply_was_lost(
    remote_folder: Remote, monkeypatch: pytest.MonkeyPatch, failure: type[Exception]
) -> None:
    """Its holder knows its own content again, and does not take it for another holder's."""
    monkeypatch.setattr(lease, "RENEW_S", 0.1)
    put, lost = objects.put_if_match, list[bytes]()

    def put_and_fail_once(bucket: str, key: str, content: bytes, etag: str) -> str:
        etag = put(bucket, key, content, etag)
        if b'"renewed"' in content and not lost:
            lost.append(content)
            raise failure
        return etag

    monkeypatch.setattr(objects, "put_if_match", put_and_fail_once)
    held = lease.Lease(remote_folder / "apply.lock", {"command": "apply"})
    for _ in range(100):
        holder = lease.read_holder(remote_folder / "apply.lock")
        if holder is not None and holder["renewed"] > 1:
            break
        time.sleep(0.1)
    held.release()
    assert lost
    assert holder is not None
    assert holder["renewed"] > 1


def test_of_many_processes_that_find_a_dead_holder_one_takes_its_lease(remote_folder: Remote) -> None:
    """The content of a lease is that of a process that has died on this machine."""
    place = remote_folder / "apply.lock"
    dead = {**lease.this_process(), "pid": 2**22 + 1, "started": "1", "command": "apply", "since": "now", "id": "dead"}
    files.put_if_absent(place, json.dumps(dead).encode())
    taken: list[lease.Lease] = []
    refused: list[int] = []

    def take(number: int) -> None:
        try:
            taken.append(lease.Lease(place, {"command": "apply"}))
        except lease.Taken:
            refused.append(number)

    _at_once(4, take)
    assert (len(taken), len(refused)) == (1, 3)
    taken[0].release()


def test_a_process_that_lost_its_lease_cannot_change_a_record_of_its_successor(
    remote_folder: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It read the record before it lost the lease, and would replace it by an outdated one."""
    lake, table = Lake(_path(remote_folder)), TableName("public", "orders")
    early = Parked(table, Cause.APPLY, Lsn(10), Lsn(11), "a reason", "a remedy")
    assert park(lake, early)
    assert find_parked(lake, table, Cause.APPLY) == early
    with monkeypatch.context() as paused:
        read = files.read_versioned

        def read_then_pause(place: Place) -> tuple[bytes, str | None]:
            found = read(place)
            paused.undo()
            assert unpark(lake, table, Cause.APPLY)
            return found

        paused.setattr(parking, "read_versioned", read_then_pause)
        with pytest.raises(LakeConflict, match="another process changed"):
            park(lake, Parked(table, Cause.APPLY, Lsn(20), Lsn(21), "another", "a remedy"))
    assert find_parked(lake, table, Cause.APPLY) is None
    assert not unpark(lake, table, Cause.APPLY)
    assert park(lake, early)


def _path(folder: Remote) -> Path:
    """Return the place as `Lake` has it."""
    return cast("Path", folder)


def test_commits_do_not_wait_for_a_checkpoint(remote_folder: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """They succeed while a checkpoint hangs, and none is queued behind it; its failure is raised before a commit."""
    go_on, started = threading.Event(), []

    def slow(table: Place, _kept_for_s: float) -> None:
        started.append(table)
        go_on.wait(30)
        raise OSError("the store is gone")

    monkeypatch.setattr("auditlake.delta.append_table.checkpoint", slow)
    monkeypatch.setattr("auditlake.delta.append_table._CHECKPOINT_EVERY", 2)
    log = AppendLog(_path(remote_folder), SCHEMA)
    for lsn in range(6):
        log.append(_rows(lsn), {"app": lsn})
    assert started == [remote_folder]
    go_on.set()
    with pytest.raises(LakeUnusable, match="the store is gone"):
        _append_all(log, range(6, 1000))


def _append_all(log: AppendLog, lsns: range) -> None:
    for lsn in lsns:
        log.append(_rows(lsn), {"app": lsn})


@pytest.mark.parametrize(("ignored", "condition"), [("create", "If-None-Match"), ({"e_tag": None}, "If-Match")])
def test_a_store_that_ignores_conditions_is_refused(
    remote_folder: Remote, monkeypatch: pytest.MonkeyPatch, ignored: object, condition: str
) -> None:
    """It would lose commits without a sign."""
    put = objects._put  # noqa: SLF001 - below what retries a put

    def overwrites(bucket: str, key: str, content: bytes, mode: object, checksum: str | None = None) -> str:
        return put(bucket, key, content, "overwrite" if type(mode) is type(ignored) else mode, checksum)

    monkeypatch.setattr(objects, "_put", overwrites)
    with pytest.raises(LakeUnusable, match=condition):
        lease.Lease(remote_folder / "capture", {"stage": "capture"})


def test_a_checkpoint_may_be_replaced_whatever_its_table_is_called(remote_folder: Remote) -> None:
    """Spark and deltalake write checkpoints of one version with different bytes; only data files end in -c000."""
    place = remote_folder / "doc0001" / "_delta_log" / f"{10:020}.checkpoint.parquet"
    objects.put(place.bucket, place.key, b"of Spark")
    with place.open() as first:
        assert first.read() == b"of Spark"
    objects.put(place.bucket, place.key, b"of deltalake")
    with place.open() as second:
        assert second.read() == b"of deltalake"


def test_the_size_of_what_never_changes_is_asked_once(remote_folder: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data file is opened and measured again and again by an engine; a record may be replaced by a longer one."""
    data, record = remote_folder / "part-0-c000.snappy.parquet", remote_folder / "record.json"
    objects.put(data.bucket, data.key, b"x" * 1_000_000)
    objects.put(record.bucket, record.key, b"{}")
    assert [objects.size(each.session, each.bucket, each.key) for each in (data, record)] == [1_000_000, 2]
    with data.open() as first:
        first.seek(-3, 2)
        assert first.read() == b"xxx"
    objects.put(record.bucket, record.key, b"{ }")
    assert objects.size(record.session, record.bucket, record.key) == 3
    monkeypatch.setattr(objects, "head", lambda *_: pytest.fail("its size is known"))
    monkeypatch.setattr("obstore.store.S3Store.get", lambda *_, **__: pytest.fail("its end is known"))
    assert objects.size(data.session, data.bucket, data.key) == 1_000_000
    with data.open() as again:
        again.seek(-3, 2)
        assert again.read() == b"xxx"


def test_each_request_of_a_deletion_is_counted(remote_folder: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """Obstore makes one for each thousand objects."""
    requests, counted = list[int](), list[float]()
    monkeypatch.setattr(objects, "count", lambda _counter, _operation, by=1: counted.append(by))
    monkeypatch.setattr(objects, "_store", objects._store.__wrapped__)  # noqa: SLF001 - it has the other endpoint
    with FaultyStore(os.environ["AWS_ENDPOINT_URL"], 0.0, 1) as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.endpoint)
        monkeypatch.setattr(store, "fault", lambda: requests.append(1))
        objects.delete(remote_folder.bucket, [f"{remote_folder.key}/{n}" for n in range(1001)])
    assert sum(counted) == len(requests) == 2
