#!/usr/bin/env bash
# image.sh [CONTEXT]: build the image `auditlake` as root without a registry: mmdebstrap, pip, buildah.
# What is in the context folder already is not made again.
set -euo pipefail
cd "$(dirname "$0")/.."
context=${1:-build/image}
mkdir -p "$context/wheels"
[ -f "$context/rootfs.tar" ] ||
    mmdebstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$context/rootfs.tar"
rm -rf build/lib # modules of an earlier build would get into the wheel
.venv/bin/python -m pip wheel --quiet --no-deps --wheel-dir "$context/wheels" .
.venv/bin/python -m pip wheel --quiet --wheel-dir "$context/wheels" "$context"/wheels/auditlake-*.whl
buildah ${BUILDAH_OPTIONS:-} bud --isolation chroot --format docker --file Containerfile --tag auditlake "$context"
