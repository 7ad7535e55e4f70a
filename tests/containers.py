"""Run podman, as root, with the images of this clone in `build/`.

Containers share nothing with those of the machine. They run also inside a container or a virtual machine that withholds
from root what podman expects: without cgroups of their own, and with limits that are not raised.
"""

import os
import subprocess
from pathlib import Path

_ROOT = Path(__file__).parents[1]
STORAGE = ("--storage-driver=overlay", f"--root={_ROOT / 'build/images'}", f"--runroot={_ROOT / 'build/run'}")
# crun refuses a machine with controllers in both versions of cgroups; in a mount namespace they can be hidden from it.
_ALONE = 'umount /sys/fs/cgroup/unified 2>/dev/null; exec "$@"'
RUN_OPTIONS = ("--cgroups=disabled", "--ulimit=nofile=4096", "--ulimit=nproc=4096")
"""Of `podman run`: without them no container starts where root may not raise limits."""


def podman_line(*arguments: str | Path) -> list[str]:
    """Return the command line of podman."""
    return ["unshare", "--mount", "sh", "-c", _ALONE, "sh", "podman", *STORAGE, *map(str, arguments)]


def podman(*arguments: str | Path, code: int = 0) -> str:
    """Run podman, which has to end with this exit code; return its output, or that of the command in the container."""
    environment = {**os.environ, "TMPDIR": "/var/tmp"}  # noqa: S108 - of podman, which copies images there
    done = subprocess.run(podman_line(*arguments), env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, f"podman {arguments} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout
