#!/usr/bin/env python3
"""What single things cost on the incrementation experiments' testbed, for testbed.json: processor seconds of the whole machine
(kernel threads too) for a stream, and time and processor seconds of one metadata operation, with nothing else running.

    pfs-testbed up ─▶ streams of 512 MiB, 300 files of each operation ─▶ what /proc/stat counted meanwhile, less an idle stretch's share

Prints JSON, the median of each. Run it with nothing else on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

STREAM_MIB = 512
FILES = 300
OPERATIONS = r"""
import json, os, sys, time
place, count = sys.argv[1], int(sys.argv[2])
def busy():
    words = open('/proc/stat').readline().split()[1:]
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, words[:8])
    return (user + nice + system + irq + softirq) / os.sysconf('SC_CLK_TCK')
def name(kind, i): return f"{place}/{kind}-{i:04d}"
def create(i): os.close(os.open(name('f', i), os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644))
def missing(i):
    try: os.stat(name('m', i))
    except FileNotFoundError: pass
def sync(i):
    file = os.open(name('f', i), os.O_WRONLY); os.write(file, b'x' * 4096); os.fsync(file); os.close(file)
steps = {
    'create': create,
    'missing': missing,
    'symlink': lambda i: os.symlink('/dev/shm/nothing', name('l', i)),
    'readlink': lambda i: os.readlink(name('l', i)),
    'sync': sync,
    'rename_over': lambda i: os.rename(name('f', i), name('l', i)),
    'unlink': lambda i: os.unlink(name('l', i)),
}
found = {}
for step, act in steps.items():
    time.sleep(1.2)
    before, began = busy(), time.monotonic()
    for i in range(count): act(i)
    took, used = time.monotonic() - began, busy() - before
    found[step] = [took / count, used / count]
print(json.dumps(found))
"""


def busy_s() -> float:
    """Processor seconds that anything took since the machine began."""
    user, nice, system, _idle, _iowait, irq, softirq, _steal = map(int, open("/proc/stat", encoding="ascii").readline().split()[1:9])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--testbed", required=True, help="the program pfs-testbed")
    parser.add_argument("--directory", required=True, help="where it works")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    environment = {**os.environ, "PFS_TESTBED_DIR": args.directory}

    def control(*words: str) -> str:
        done = subprocess.run([args.testbed, *words], env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"measure: `pfs-testbed {' '.join(words)}` failed: {done.stderr.strip()}")
        return done.stdout

    def costs(*command: str) -> tuple[float, float]:
        """Seconds and processor seconds, those of an idle machine taken off."""
        before, began = busy_s(), time.monotonic()
        control("exec", "0", "--", *command)
        took = time.monotonic() - began
        return took, busy_s() - before - idle * took

    control("up", "--force", "--osts", "4", "--tmpfs", "2048", "--ssds", "0", "--warm", "2048")
    try:
        time.sleep(3)
        before = busy_s()
        time.sleep(5)
        idle = (busy_s() - before) / 5
        root = pathlib.Path(args.directory, "mnt", "pfs", "measure")
        memory = pathlib.Path(args.directory, "mnt", "tmpfs")
        control("exec", "0", "--", "mkdir", "-p", str(root))
        control("exec", "0", "--", "dd", "if=/dev/urandom", f"of={memory}/source", "bs=4M", f"count={STREAM_MIB // 4}", "status=none")
        streams: dict[str, list[tuple[float, float]]] = {"write": [], "write_and_sync": [], "read": [], "copy_in_memory": []}
        for turn in range(args.rounds):
            file = f"{root}/stream-{turn}"
            source = f"{memory}/source"
            # In memory first: what reading the source costs is no cost of the file system.
            streams["copy_in_memory"].append(costs("dd", f"if={source}", "of=/dev/null", "bs=4M", "status=none"))
            streams["write"].append(costs("dd", f"if={source}", f"of={file}", "bs=4M", "status=none"))
            control("exec", "0", "--", "rm", file)
            subprocess.run(["sync"], check=True)
            streams["write_and_sync"].append(costs("dd", f"if={source}", f"of={file}", "bs=4M", "conv=fsync", "status=none"))
            control("cold")
            streams["read"].append(costs("dd", f"if={file}", "of=/dev/null", "bs=4M", "status=none"))
            control("exec", "0", "--", "rm", file)
        operations = [json.loads(control("exec", "0", "--", sys.executable, "-c", OPERATIONS, str(root), str(FILES))) for _ in range(args.rounds)]
    finally:
        subprocess.run([args.testbed, "down"], env=environment, capture_output=True, check=False)
    middle = statistics.median
    found = {
        "idle_processors": idle,
        "streams": {
            name: {"mib_s": STREAM_MIB / middle(took for took, _ in runs), "processor_s_per_gib": middle(used for _, used in runs) * 1024 / STREAM_MIB}
            for name, runs in streams.items()
        },
        "operations": {
            name: {"seconds": middle(run[name][0] for run in operations), "processor_s": middle(run[name][1] for run in operations) - idle * middle(run[name][0] for run in operations)}
            for name in operations[0]
        },
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
