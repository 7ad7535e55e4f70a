#!/usr/bin/env bash
# Install everything that `make demo` and `make test` need: Python environment, Java, openssl, Delta jars.
# Prints one line per step, and nothing if everything is installed; downloads only missing parts.
# `setup.sh packages` stops after the Python environment.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.venv
made="$venv/made"            # written last: an environment without it is incomplete
stamp="$venv/installed-for" # checksum of the pyproject.toml that is installed

say() { printf 'setup: %s\n' "$*" >&2; }
die() {
  printf 'setup: error: %s\n' "$*" >&2
  exit 3
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  else
    sudo -n "$@"
  fi
}

can_install() {
  command -v apt-get >/dev/null && { [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null; }
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  die "no Python 3.11 or newer found; install python3.11, or name one with PYTHON=/path/to/python3"
}

ensure_environment() {
  [ -f "$made" ] && "$venv/bin/python" -c '' 2>/dev/null && return
  local python version
  python=$(find_python)
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    die "$python cannot create environments: install python$version-venv (Debian, Ubuntu: apt-get install python$version-venv)"
  fi
  say "creating $venv with $("$python" --version)"
  rm -rf "$venv"
  "$python" -m venv "$venv"
  touch "$made"
}

# Python compiles what it imports: a third of the time went into compiling everything else.
install() {
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "$@"
}

spark_requirement() {
  "$venv/bin/python" -c 'import re; print(re.search(r"pyspark==[\d.]+", open("pyproject.toml").read())[0])'
}

ensure_packages() {
  local wanted
  wanted=$(cksum pyproject.toml)
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && return
  say "installing packages (pyspark is 450 MB: minutes, the first time)"
  # pip builds pyspark's wheel itself, on one core: meanwhile the other installs what needs no Spark. Its jars are
  # compressed already; once more would take half of the time.
  install --no-deps --config-settings=--build-option=--compression=stored "$(spark_requirement)" &
  install -e '.[demo]' && wait $! && install -e '.[demo,dev]' ||
    die "pip could not install the packages; see its message above"
  printf '%s\n' "$wanted" >"$stamp"
}

java_is_new_enough() {
  "$venv/bin/python" -c 'from auditlake.spark.java import require_java; require_java()' 2>/dev/null
}

ensure_java() {
  java_is_new_enough && return
  if can_install; then
    say "installing Java 17 with apt-get"
    as_root apt-get update -qq >&2 || die "apt-get update failed; install Java 17 by hand"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openjdk-17-jre-headless >&2 ||
      as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq default-jre-headless >&2 ||
      die "apt-get could not install Java; install Java 17 by hand"
    java_is_new_enough && return
  fi
  die "no Java 17 or newer; install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
}

# The tests make certificates for a server with TLS.
ensure_openssl() {
  command -v openssl >/dev/null && return
  can_install || die "no openssl; install it (Debian, Ubuntu: apt-get install openssl)"
  say "installing openssl with apt-get"
  as_root apt-get update -qq >&2 || die "apt-get update failed; install openssl by hand"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openssl >&2 || die "apt-get could not install openssl"
}

ensure_jars() {
  "$venv/bin/python" -m auditlake.spark.jars > /dev/null
}

# A JVM with an archive of its parsed classes starts in half the time.
ensure_class_archive() {
  "$venv/bin/python" -m auditlake.apply.warmup || say "no class-data archive: commands that use Spark start slower"
}

# The usual case, with one start of Python: every `make` target runs this script.
is_complete() {
  [ -f "$made" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(cksum pyproject.toml)" ] || return 1
  command -v openssl >/dev/null || return 1
  "$venv/bin/python" -c '
import sys
from auditlake.spark.jvm import archive_path
from auditlake.spark.jars import delta_jars, jars_folder
sys.exit(not (jars_folder().is_dir() and archive_path(delta_jars({})).is_file()))
' 2>/dev/null
}

if is_complete; then
  exit 0
fi
ensure_environment
ensure_packages
[ "${1:-}" = packages ] && exit 0
ensure_java
ensure_openssl
ensure_jars
ensure_class_archive
