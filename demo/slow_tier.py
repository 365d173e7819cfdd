"""The slow durable tier of the demo: a directory mounted through terrace-slowfs."""

import ctypes
import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
START_S_MAX = 20


@dataclass(frozen=True)
class Limits:
    """The Sea paper's parallel file system: one storage server's bandwidths, and a server's round trip."""

    write_mib_s: float = 121
    read_mib_s: float = 1381
    latency_us: int = 500


class SlowTier:
    """`with SlowTier(...) as tier:` mounts `source` at `mount`; afterwards `tier.traffic` tells what reached `source`.

    A mount starts with nothing cached, so each run pays for its first reads.
    """

    def __init__(self, program: Path, source: Path, mount: Path, limits: Limits):
        self.program, self.source, self.mount, self.limits = program, source, mount, limits
        self.report = mount.with_suffix(".json")
        self.traffic: dict[str, int] = {}

    def __enter__(self) -> "SlowTier":
        self.mount.mkdir(parents=True, exist_ok=True)
        unmount(self.mount)  # a demo that was killed may have left it
        self.report.unlink(missing_ok=True)
        command = [self.program, "--source", self.source, "--mount", self.mount, "--report", self.report]
        command += ["--write-mib", self.limits.write_mib_s, "--read-mib", self.limits.read_mib_s]
        command += ["--latency-us", self.limits.latency_us, "--write-back", "--foreground"]
        self.server = subprocess.Popen([str(word) for word in command])
        deadline = time.monotonic() + START_S_MAX
        while not os.path.ismount(self.mount):
            if self.server.poll() is not None or time.monotonic() > deadline:
                self.server.kill()
                raise SystemExit(f"demo: the slow durable tier could not be mounted at {self.mount}")
            time.sleep(0.01)
        return self

    def settle(self) -> None:
        """Waits until what programs wrote has left the kernel's cache for the tier."""
        descriptor = os.open(self.mount, os.O_RDONLY)
        try:
            if LIBC.syncfs(descriptor):
                raise OSError(ctypes.get_errno(), "syncfs", str(self.mount))
        finally:
            os.close(descriptor)

    def __exit__(self, failure: type | None, *_: object) -> None:
        if failure:
            # What failed may still use the mount: its own message is the one to show.
            subprocess.run([*unmount_command(lazily=True), self.mount])
            self.server.kill()
            return
        unmount(self.mount)
        try:
            self.server.wait(timeout=5)
        except subprocess.TimeoutExpired:
            # A mount namespace that was made meanwhile (a container's, say) still has the mount.
            self.server.terminate()
            self.server.wait(timeout=60)
        self.traffic = json.loads(self.report.read_text())


def unmount(mount: Path) -> None:
    """Unmounts `mount` if it is mounted; a program that has just ended may keep it busy for a moment."""
    for _ in range(50):
        if not os.path.ismount(mount):
            return
        done = subprocess.run([*unmount_command(), mount], capture_output=True, text=True)
        if done.returncode == 0:
            return
        time.sleep(0.1)
    raise SystemExit(f"demo: {mount} cannot be unmounted: {done.stderr.strip()}")


def unmount_command(lazily: bool = False) -> list[str]:
    command = ["umount"] if os.geteuid() == 0 else [shutil.which("fusermount3") or "fusermount", "-u"]
    return [*command, *(["-l" if command == ["umount"] else "-z"] if lazily else [])]
