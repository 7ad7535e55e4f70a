#!/usr/bin/env bash
# Make everything `make demo` and `make test` need: Python environment, Java, Delta jars.
# Says one line per step it takes, nothing where all is there already; asks the network only for what is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.venv
made="$venv/made"            # written last: an environment without it was cut short
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
    die "$python cannot make environments: install python$version-venv (Debian, Ubuntu: apt-get install python$version-venv)"
  fi
  say "making $venv with $("$python" --version)"
  rm -rf "$venv"
  "$python" -m venv "$venv"
  touch "$made"
}

ensure_packages() {
  local wanted
  wanted=$(cksum pyproject.toml)
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && return
  say "installing packages (pyspark is 450 MB: minutes, the first time)"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[demo,dev]' ||
    die "pip could not install the packages; its message is above"
  printf '%s\n' "$wanted" >"$stamp"
}

java_is_new_enough() {
  "$venv/bin/python" -c 'from auditlake.lake.java import require_java; require_java()' 2>/dev/null
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

ensure_jars() {
  "$venv/bin/python" -m auditlake.lake.jars
}

ensure_environment
ensure_packages
ensure_java
ensure_jars
