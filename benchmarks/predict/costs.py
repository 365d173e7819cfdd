#!/usr/bin/env python3
"""Processor seconds that the testbed's file system takes for a gibibyte, and how fast its servers make data durable.

    costs.py --testbed PROGRAM [--write]

The simulation's parts, measured one by one: a stream is written or read while nothing else runs, and the whole machine's processor
time is counted (/proc/stat), so that the kernel's own threads (network, queues, writing back) are in it, which the accounts of the
file system's processes leave out. What the machine takes when idle is subtracted. `--write` puts the numbers into testbed.json.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "incrementation")]
from experiment import Testbed  # noqa: E402

MIB, FILES, FILE_MIB = 1 << 20, 4, 64
TICKS = os.sysconf("SC_CLK_TCK")
IDLE, IOWAIT, GUESTS = 3, 4, 8


def busy_s() -> float:
    """Of all processors since boot: everything but idle and waiting."""
    with open("/proc/stat", encoding="ascii") as stat:
        ticks = [int(word) for word in stat.readline().split()[1:]]
    return sum(count for place, count in enumerate(ticks) if place not in (IDLE, IOWAIT) and place < GUESTS) / TICKS


def counted(action) -> tuple[float, float]:
    """Seconds, and processor seconds of the whole machine."""
    begin, busy = time.monotonic(), busy_s()
    action()
    return time.monotonic() - begin, busy_s() - busy


class Costs:
    def __init__(self, testbed: Testbed):
        self.testbed = testbed
        self.pfs, self.memory = testbed.mounts / "pfs" / "costs", testbed.mounts / "tmpfs" / "costs"
        for place in (self.pfs, self.memory):
            testbed.node("mkdir", "-p", str(place))
        _, idle = counted(lambda: time.sleep(5))
        self.idle = idle / 5

    def per_gib(self, script: str) -> tuple[float, float]:
        """Seconds and processor seconds a GiB, of a shell script that moves all files."""
        seconds, busy = counted(lambda: self.testbed.node("sh", "-ec", script))
        gib = FILES * FILE_MIB * MIB / 2**30
        return seconds / gib, max(0.0, busy - self.idle * seconds) / gib

    def copy(self, source: str, target: str, *words: str, at_once: int = 1) -> str:
        command = f"dd if={source} of={target} bs=1M status=none {' '.join(words)}"
        return f"seq {FILES} | xargs -P{at_once} -I@ {command}"

    def measure(self) -> dict[str, float]:
        memory, pfs = f"{self.memory}/@", f"{self.pfs}/@"
        count = f"count={FILE_MIB}"
        self.testbed.node("sh", "-ec", self.copy("/dev/zero", memory, count))
        self.testbed.node("sh", "-ec", self.copy("/dev/zero", memory, count))
        again = self.per_gib(self.copy(memory, "/dev/null"))
        written = self.per_gib(self.copy(memory, pfs))
        self.testbed.cold()
        read = self.per_gib(self.copy(pfs, "/dev/null"))
        self.testbed.node("sh", "-ec", f"rm -f {self.pfs}/*")
        os.sync()
        durable = self.per_gib(self.copy(memory, pfs, "conv=fsync"))
        self.testbed.node("sh", "-ec", f"rm -f {self.pfs}/*")
        return {
            "write": max(0.0, written[1] - again[1]),
            "read": read[1],
            "write_mib_s": 1024 / written[0],
            "durable_mib_s": 1024 / durable[0],
            "sync_mib_s": 1024 / max(1e-3, durable[0] - written[0]),
            "sync_processor": max(0.0, durable[1] - written[1]),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--testbed", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="put the numbers into testbed.json")
    args = parser.parse_args()
    directory = pathlib.Path(tempfile.mkdtemp(prefix="terrace-costs-", dir="/var/tmp"))
    testbed = Testbed(args.testbed, directory)
    testbed.up(6144)
    try:
        costs = Costs(testbed)
        rounds = [costs.measure() for _ in range(args.rounds)]
    finally:
        testbed.control("down", check=False)
    found = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    for name in found:
        print(f"{name:16} {found[name]:8.2f}   {', '.join(f'{each[name]:.2f}' for each in rounds)}")
    if args.write:
        path = HERE / "testbed.json"
        known = json.loads(path.read_text(encoding="utf-8"))
        for what in ("read", "write"):
            of_client = known["client_processor_s_per_gib"][what]
            # The client's own threads are known; the rest is the servers' and the kernel's.
            known["server_processor_s_per_gib"][what] = round(max(0.0, found[what] - of_client), 2)
        known["server_sync_mib_s"] = round(found["sync_mib_s"])
        known["sources"]["server_processor_s_per_gib, server_sync_mib_s"] = (
            f"costs.py, median of {args.rounds}: processor time of the whole machine while one stream is written or read, less the client's; "
            "time of an fsync after 64 MiB"
        )
        path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
