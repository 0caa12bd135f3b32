"""The location of a cache: apart for each host or executor, and for each boot of the machine."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess

_boot = ""


def executor_cache(cache: str) -> str:
    """The cache of this executor alone: below the given directory, or where Spark lets it work, which goes with it.

    Spark gives every executor a working directory of its own, and its Python workers inherit it.
    """
    here = os.getcwd()
    return os.path.join(cache, hashlib.sha256(here.encode()).hexdigest()[:12]) if cache else os.path.join(here, "state")


def boot_id() -> str:
    """Name this boot of the machine: an unsynced cache does not outlive it."""
    global _boot
    if not _boot:
        try:
            with open("/proc/sys/kernel/random/boot_id") as file:
                _boot = file.read().strip()
        except FileNotFoundError:  # not Linux: the second of the last boot does as well
            _boot = subprocess.run(
                ["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=True
            ).stdout.strip()
    return _boot


def discard_other_boots(cache: str, job: str) -> None:
    """Delete what earlier boots of the machine left."""
    root = os.path.join(cache, job)
    for name in os.listdir(root) if os.path.isdir(root) else ():
        if name != boot_id():
            shutil.rmtree(os.path.join(root, name), ignore_errors=True)
