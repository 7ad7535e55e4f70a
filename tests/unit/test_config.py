"""Settings: precedence of flag, environment and file, and values that are refused."""

import os
import re
from pathlib import Path

import pyarrow as pa
import pytest

from auditlake.config import Settings, load_settings
from auditlake.delta.append_table import AppendLog
from auditlake.delta.checkpoints import checkpoint
from auditlake.delta.sql import read_newest, select
from auditlake.errors import ConfigError, Unsupported
from auditlake.settings.connection_strings import redacted
from auditlake.source.connection import pinned_conninfo

NUMBERS = pa.schema([("number", pa.int64())])
EXAMPLE = Path(__file__).parents[2] / "conf" / "auditlake.toml"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run in an empty folder, without environment variables of the caller."""
    for name in ("SOURCE", "LAKE", "SLOT", "PUBLICATION", "TABLES", "SPARK"):
        monkeypatch.delenv(f"AUDITLAKE_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_has_defaults_without_any_setting(empty_folder: Path) -> None:
    """Nothing but the source needs to be set."""
    settings = load_settings()
    assert (settings.source, settings.tables, settings.spark) == (None, None, {})
    assert (settings.slot, settings.publication) == ("auditlake", "auditlake")
    assert settings.lake == empty_folder / "lake"


def test_flag_beats_environment_beats_file(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each layer hides the one below it, setting by setting."""
    (empty_folder / "auditlake.toml").write_text('slot = "file"\npublication = "file"\nlake = "file"\n')
    monkeypatch.setenv("AUDITLAKE_SLOT", "environment")
    monkeypatch.setenv("AUDITLAKE_PUBLICATION", "environment")
    settings = load_settings(slot="flag", publication=None, lake=None)
    assert (settings.slot, settings.publication, settings.lake.name) == ("flag", "environment", "file")


def test_reads_the_file_it_is_given(tmp_path: Path) -> None:
    """--config replaces the file of the working folder."""
    Path("auditlake.toml").write_text('slot = "default_file"\n')
    other = tmp_path / "other.toml"
    other.write_text('slot = "other_file"\n')
    assert load_settings(other).slot == "other_file"


def test_a_copy_of_the_example_sets_source_and_lake_alone() -> None:
    """Who copies conf/auditlake.toml and changes nothing masks, expires and signs nothing."""
    assert load_settings(EXAMPLE) == load_settings(source="postgresql://auditlake@localhost:5432/shop", lake="./lake")


def test_example_shows_every_setting(tmp_path: Path) -> None:
    """Without the signs of comment, conf/auditlake.toml has each setting, of tables too, with a valid value."""
    shown = tmp_path / "shown.toml"
    shown.write_text(re.sub(r"^#(?=\S)", "", EXAMPLE.read_text(), flags=re.MULTILINE))
    settings = load_settings(shown)
    assert settings.model_fields_set == Settings.model_fields.keys()
    for table in (settings.mask, settings.digest, settings.retention):
        assert table is not None
        assert table.model_fields_set == type(table).model_fields.keys()
    assert settings.spark == {
        "spark.master": "local[*]",
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": "4",
    }


def test_reads_spark_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """AUDITLAKE_SPARK is JSON; numbers and booleans become Spark's text."""
    monkeypatch.setenv("AUDITLAKE_SPARK", '{"master": "local[1]", "spark.ui.enabled": true, "spark.task.cpus": 1}')
    assert load_settings().spark == {"spark.master": "local[1]", "spark.ui.enabled": "true", "spark.task.cpus": "1"}


def test_splits_tables_of_the_environment_at_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable cannot hold a list."""
    monkeypatch.setenv("AUDITLAKE_TABLES", "public.*, sales.orders")
    assert load_settings().tables == ("public.*", "sales.orders")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('slots = "a"', "slots (from auditlake.toml) is not a setting"),
        ('slot = "My-Slot"', "slot (from auditlake.toml) is 'My-Slot'"),
        ('publication = ""', "publication (from auditlake.toml) is ''"),
        ('tables = ["orders"]', "tables (from auditlake.toml) has 'orders'"),
        ('spark = "local"', "spark (from auditlake.toml) is not JSON"),
        ("slot = ", "settings file auditlake.toml is not TOML"),
        pytest.param(
            "#" * (2**20 + 1),
            "settings file auditlake.toml cannot be read: it has more than",
            id="long",
        ),
        ('\ufeffslots = "a"', "slots (from auditlake.toml) is not a setting"),
        ('[mask]\n"public.t.note" = "hash"', "mask.public.t.note (from auditlake.toml) is not a setting"),
        (f"slot = {'[' * 5_000}", "settings file auditlake.toml is nested too deeply"),
        ('[retention]\nchange = "1 year"', "retention.change (from auditlake.toml) is not a setting"),
        ("seal_every_s = inf", "seal_every_s (from auditlake.toml) is inf"),
        ("[digest]\nevery_s = 60", "digest.to (from auditlake.toml) is not set"),
        ("lake = true", "lake (from auditlake.toml) is True, need a path"),
        ('lake = ""', "lake (from auditlake.toml) is '', need a path"),
        ('lake = "file://lake"', "lake (from auditlake.toml) is 'file://lake', need three slashes"),
        (
            'lake = "~nobody-of-this-name/lake"',
            "lake (from auditlake.toml) is '~nobody-of-this-name/lake', and there is no",
        ),
        ("spool = [7]", "spool (from auditlake.toml) is [7], need a path"),
        ("[digest]\nto = 7", "digest.to (from auditlake.toml) is 7, need a path"),
        ('[mask]\nsecret = "\\u0000"', "mask.secret (from auditlake.toml) has a secret that is not a path"),
        ("heartbeat_s = true", "heartbeat_s (from auditlake.toml) is true, need a number"),
        ("copy_connections = false", "copy_connections (from auditlake.toml) is false, need a number"),
        ('[spark]\nmaster = "local[2]"\ntz = "UTC"', "spark (from auditlake.toml) has tz, a setting of auditlake"),
    ],
)
def test_names_the_setting_and_its_origin(text: str, message: str) -> None:
    """An error names the setting and its origin."""
    Path("auditlake.toml").write_text(text)
    with pytest.raises(ConfigError) as failure:
        load_settings()
    assert failure.value.message.startswith(message)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("sources = ''", "Did you mean source?"),
        ('[retention]\nchange = "1 year"', "Did you mean changes?"),
        ('[retention]\ntz = "UTC"', "Write tz above the first [table] of the file"),
        ("[mask]\nhidden = []", "Settings are columns, strict, secret, mcp."),
    ],
)
def test_hint_names_the_setting_that_was_meant(text: str, hint: str) -> None:
    """A name that is misspelt, or below a table that it does not belong to, is named as it should be."""
    Path("auditlake.toml").write_text(text)
    with pytest.raises(ConfigError) as failure:
        load_settings()
    assert (failure.value.hint or "").startswith(hint)


def test_names_a_flag_as_it_is_typed() -> None:
    """The origin of a wrong flag is the flag itself, with its dashes."""
    with pytest.raises(ConfigError, match=r"copy_connections \(from --copy-connections\)"):
        load_settings(copy_connections="many")


def test_names_every_wrong_setting_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One run reports everything that must be fixed."""
    monkeypatch.setenv("AUDITLAKE_SLOT", "A")
    with pytest.raises(ConfigError) as failure:
        load_settings(tables=("orders",))
    assert "slot (from AUDITLAKE_SLOT)" in failure.value.message
    assert (
        "tables (from --table) has 'orders', need patterns of schema and table such as public.orders"
        in failure.value.message
    )


@pytest.mark.parametrize("name", ["AUDITLAKE_TABLES", "AUDITLAKE_LAKE"])
def test_refuses_a_variable_that_is_not_utf8(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has other bytes as half surrogate pairs."""
    monkeypatch.setenv(name, "\udcff")
    with pytest.raises(ConfigError, match=f"{name} is not UTF-8"):
        load_settings()


def test_refuses_a_flag_that_is_not_utf8() -> None:
    """A pattern, before pydantic would fail to quote it."""
    for flags in ({"tables": ("public.t", "caf\udce9")}, {"slot": "\udcff"}, {"lake": "a\udcff"}):
        with pytest.raises(ConfigError, match=r"--(table|slot|lake) is not UTF-8"):
            load_settings(**flags)


def test_refuses_a_config_file_that_does_not_exist() -> None:
    """A file named by --config must exist."""
    with pytest.raises(ConfigError, match=r"settings file absent\.toml cannot be read"):
        load_settings(Path("absent.toml"))


def test_a_file_that_another_user_left_in_a_public_folder_is_not_read(
    empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's settings start programs; a file that is named is read."""
    file = empty_folder / "auditlake.toml"
    file.write_text('slot = "trap"')
    if os.geteuid() == 0:
        os.chown(file, 54_321, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 54_321)
    assert load_settings().slot == "trap"
    empty_folder.chmod(0o777)
    with pytest.raises(ConfigError, match="belongs to another user"):
        load_settings()
    assert load_settings(file).slot == "trap"


def test_never_shows_the_password() -> None:
    """Neither the representation nor an error about the source repeats the connection string."""
    settings = load_settings(source="postgresql://me:hunter2@db/shop")
    assert "hunter2" not in f"{settings} {settings!r}"
    with pytest.raises(ConfigError) as failure:
        load_settings(source="host=db password=x hunter2")
    assert "hunter2" not in f"{failure.value.message} {failure.value.hint}"
    assert failure.value.__suppress_context__


@pytest.mark.parametrize(
    ("conninfo", "shown"),
    [
        ("postgresql://me:hunter2@db:5433/shop", "user=me dbname=shop host=db port=5433"),
        ("host=db password=hunter2 dbname='my shop'", "host=db dbname='my shop'"),
        ("host=db hunter2", "(unreadable connection string)"),
        ("postgresql://me:1@hunter2@db/shop", "(unreadable connection string)"),
    ],
)
def test_redacts_a_connection_string(conninfo: str, shown: str) -> None:
    """Host, user and database are kept; the password is removed."""
    assert set(redacted(conninfo).split()) == set(shown.split())


@pytest.mark.parametrize(
    "source",
    [
        "postgresql://me:1@hunter2@db/shop",
        "postgres://me:1@hunter2,2@db/shop",
        "postgresql://me:1@x:hunter2@db/shop",
        "postgresql://me:12/hunter2@db/shop",
        "postgresql://me:12/3@hunter2@db:5432/shop?sslmode=require",
        "postgresql://me:1@hunter2/2@db/shop",
        "postgresql://db/hunter2@shop",
        "dbname=postgresql://me:hunter2@db/shop",
        "host=db dbname='postgres://me:hunter2@db/shop'",
    ],
)
def test_a_password_that_libpq_takes_for_another_part_is_refused(source: str) -> None:
    """Each message about a connection names its host and database."""
    for refuse in (lambda: load_settings(source=source), lambda: pinned_conninfo(source)):
        with pytest.raises(ConfigError, match=r"has an @ in its host|has a URI as its dbname") as failure:
            refuse()
        assert "hunter2" not in f"{failure.value.message} {failure.value.hint}"
    if not source.startswith("postgres"):
        return
    with pytest.raises(ConfigError, match="has an @ in its host") as failure:
        load_settings(digest={"to": source})
    assert "hunter2" not in f"{failure.value.message} {failure.value.hint}"


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("postgresql://me:p%40ss%2Fword@db/sh%40p", "user=me dbname=sh@p host=db"),
        ("postgresql://me:1?2#3@db:5432,[::1]:5433/shop", "user=me dbname=shop host=db,::1 port=5432,5433"),
        ("postgresql://db/shop?user=me@company.com", "user=me@company.com dbname=shop host=db"),
        ("postgresql://me@%40socket/shop", "user=me dbname=shop host=@socket"),
        ("postgresql:///shop?host=/run/a@b", "dbname=shop host=/run/a@b"),
        ("host=@socket dbname=sh@p user=me@company.com", "user=me@company.com dbname=sh@p host=@socket"),
    ],
)
def test_an_at_sign_in_its_place_is_taken(source: str, parts: str) -> None:
    """In a user, in the name of a socket, and escaped."""
    load_settings(source=source)
    pinned_conninfo(source)
    assert set(redacted(source).split()) == set(parts.split())


def test_asks_for_a_source() -> None:
    """The error of a command that needs the source shows how to set it."""
    with pytest.raises(ConfigError, match="no source is set") as failure:
        load_settings().source_required()
    assert failure.value.hint is not None
    assert "AUDITLAKE_SOURCE" in failure.value.hint


@pytest.mark.parametrize(("lake", "path"), [("/data/lake", "/data/lake"), ("file:///data/my%20lake", "/data/my lake")])
def test_takes_a_path_or_a_file_uri(lake: str, path: str) -> None:
    """Both name a local folder."""
    assert load_settings(lake=lake).lake == Path(path)


def test_takes_a_folder_in_a_bucket() -> None:
    """Spark gets the settings of the store with it, and no credentials."""
    settings = load_settings(lake="s3://bucket/some/lake/", spark={"hadoop.fs.s3a.endpoint": "http://here"})
    assert str(settings.lake) == "s3://bucket/some/lake"
    assert settings.spark["spark.hadoop.fs.s3.impl"] == "org.apache.hadoop.fs.s3a.S3AFileSystem"
    assert settings.spark["spark.hadoop.fs.s3a.endpoint"] == "http://here"
    assert not [name for name in settings.spark if "secret" in name or "access.key" in name]


@pytest.mark.parametrize(
    "lake", ["s3://bucket", "s3:///lake", "s3://b/a%20b", "s3://b/a//b", "s3://b/a?x=1", "s3://b/a b"]
)
def test_refuses_an_url_that_names_no_folder_or_would_be_misread(lake: str) -> None:
    """The value is shown."""
    with pytest.raises(ConfigError, match=r"lake \(from --lake\) is 's3:"):
        load_settings(lake=lake)


def test_a_password_in_the_url_of_a_lake_is_not_repeated() -> None:
    """Credentials come from the environment; one in the URL would be in every message."""
    with pytest.raises(ConfigError, match="credentials") as refused:
        load_settings(lake="s3://key:hunter2@bucket/lake")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "lake", ["gs://bucket/lake", "abfss://c@account.dfs.core.windows.net/lake", "hdfs://name/lake"]
)
def test_refuses_a_lake_on_another_store(lake: str) -> None:
    """They are not supported; the error is raised before anything is written."""
    with pytest.raises(Unsupported, match="need a local path or s3://"):
        load_settings(lake=lake)


@pytest.mark.parametrize("name", ["a%20b", "a%b", "a\\b", "a[1]", "a|b", "a^b", "a\tb", "a\nb", "a?b", "a*b"])
def test_a_lake_whose_path_would_be_misread_is_refused(tmp_path: Path, name: str) -> None:
    """Readers interpret such a character as an escape, a separator or part of a pattern."""
    with pytest.raises(ConfigError, match=r"lake \(from --lake\) is .*, need a path without") as refused:
        load_settings(lake=str(tmp_path / name))
    assert refused.value.exit_code == 3
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a b", "é", "a'b", "a#b", "a{b}", "a:b", "a+b"])
def test_a_lake_may_be_in_a_folder_of_any_other_name(tmp_path: Path, name: str) -> None:
    """Rows can be read, compacted and checkpointed in a folder of this name."""
    assert load_settings(lake=str(tmp_path / name)).lake == tmp_path / name
    log = AppendLog(tmp_path / name, NUMBERS)
    for number in range(3):
        log.append(pa.RecordBatch.from_pylist([{"number": number}], schema=NUMBERS), {"app": number})
    log.tidy()
    checkpoint(tmp_path / name)
    assert select("select sum(number) as n from log", log=read_newest(tmp_path / name)).to_pylist() == [{"n": 3}]


@pytest.mark.parametrize(
    "to",
    [
        "host=db dbname=digests password=hunter2",
        " service = digests",
        "dbname=digests",
        "sslmode=require host=db password=hunter2",
    ],
)
def test_a_conninfo_for_digests_is_not_taken_for_a_folder(to: str) -> None:
    """The message has the form that names a database, and no password."""
    with pytest.raises(ConfigError, match="is a conninfo, need the database as a URI: postgresql://user@") as caught:
        load_settings(digest={"to": to})
    assert "hunter2" not in str(caught.value)


def test_a_folder_for_digests_may_have_an_equals_sign_in_its_name(tmp_path: Path) -> None:
    """It is no setting of libpq."""
    settings = load_settings(digest={"to": str(tmp_path / "part=1")})
    assert settings.digest is not None
    assert settings.digest.to == tmp_path / "part=1"
