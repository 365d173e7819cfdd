"""Small files: made, read, looked at and removed, natively on a durable tier and on tmpfs, and by Terrace in four ways, by turns.

The durable tier is a slow file system (tools/slowfs, 0.5 ms a metadata request) or a local disk. On the slow one its server's metadata
requests are counted, of a whole run with its end.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from provenance import RESULTS, provenance, provenance_line  # noqa: E402

SCRATCH = ["--flush", "**", "--flush", "!work/**", "--evict", "work/**"]
WAYS: dict[str, list[str] | None] = {
    "native, durable tier": None,
    "Terrace, everything flushed": [],
    "Terrace, everything flushed, by directories": ["--directories", "all"],
    "Terrace, scratch by files": [*SCRATCH, "--directories", "off"],
    "Terrace, scratch by directories": SCRATCH,
    "native, tmpfs": None,
}
STEPS = ("create", "read", "lstat", "unlink")


class Slow:
    """A slow file system over a directory of a disk."""

    def __init__(self, base: pathlib.Path, program: str) -> None:
        self.base, self.mount = base, base / "mount"
        for name in ("source", "mount"):
            (base / name).mkdir()
        command = [program, "--source", base / "source", "--mount", self.mount, "--write-mib", "121", "--read-mib", "1381",
                   "--latency-us", "500", "--cache-ttl-ms", "1000", "--write-back", "--report", base / "report"]  # fmt: skip
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)

    def requests(self) -> int:
        """Unmounts it."""
        for _ in range(100):
            if subprocess.run(["umount", str(self.mount)], capture_output=True, check=False).returncode == 0:
                break
            time.sleep(0.1)
        for _ in range(100):
            report = self.base / "report"
            if report.exists() and report.stat().st_size:
                return json.loads(report.read_text())["metadata_requests"]
            time.sleep(0.1)
        sys.exit("small-files: the slow file system has left no report")


def measure(way: str, tier: str, arguments: argparse.Namespace, worker: pathlib.Path) -> dict[str, float]:
    base = pathlib.Path(tempfile.mkdtemp(prefix="terrace-small-", dir=arguments.disk))
    fast = pathlib.Path(tempfile.mkdtemp(prefix="terrace-small-", dir="/dev/shm"))
    slow = None
    if way == "native, tmpfs":
        root = fast / "root"
        root.mkdir()
    elif tier == "slow":
        slow = Slow(base, arguments.slowfs)
        root = slow.mount
    else:
        root = base / "root"
        root.mkdir()
    command = [str(worker), str(arguments.count)]
    settings = WAYS[way]
    if settings is not None:
        command = [
            arguments.terrace, "run", "--quiet", "--door", arguments.door, "--root", str(root), "--tier", f"ram={fast}:4GiB", *settings,
            "--state", str(base / "state"), "--runtime", str(fast / "run"), "--", *command,
        ]  # fmt: skip
    begin = time.monotonic()
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    whole = time.monotonic() - begin
    if done.returncode:
        sys.exit(f"small-files: {way}: exit code {done.returncode}\n{done.stderr}")
    found = {step: int(line) / 1000 for step, line in zip(STEPS, done.stdout.split(), strict=True)}
    found["whole"] = whole
    if slow:
        found["requests"] = slow.requests() / arguments.count
    shutil.rmtree(base)
    shutil.rmtree(fast)
    return found


def table(tier: str, results: dict[str, dict[str, float]]) -> str:
    head = "| way | create µs | read µs | lstat µs | unlink µs | whole s | requests a file |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    rows = ""
    for way, found in results.items():
        requests = f"{found['requests']:.2f}" if "requests" in found else "-"
        steps = " | ".join(f"{found[step]:,.1f}" for step in STEPS)
        rows += f"| {way} | {steps} | {found['whole']:.2f} | {requests} |\n"
    return f"## {'A slow durable tier (0.5 ms a metadata request)' if tier == 'slow' else 'A local disk'}\n\n{head}{rows}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--terrace", default="terrace")
    parser.add_argument("--slowfs", default="terrace-slowfs")
    parser.add_argument("--count", type=int, default=5000, help="files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--door", default="both")
    parser.add_argument("--disk", default="/var/tmp", help="a directory of a local disk")
    parser.add_argument("--tiers", nargs="+", choices=("slow", "disk"), default=["slow", "disk"])
    parser.add_argument("--dry", action="store_true", help="print, and write no results")
    arguments = parser.parse_args()
    facts = provenance("benchmarks/small-files/run.sh " + " ".join(sys.argv[1:]))
    worker = pathlib.Path(tempfile.mkdtemp(prefix="terrace-small-")) / "worker"
    source = pathlib.Path(__file__).with_name("worker.c")
    subprocess.run(["cc", "-O2", "-o", str(worker), str(source)], check=True)
    text, everything = "", {}
    for tier in arguments.tiers:
        rounds: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
        for _ in range(arguments.rounds):
            for way in WAYS:
                rounds[way].append(measure(way, tier, arguments, worker))
        everything[tier] = rounds
        results = {way: {key: statistics.median(one[key] for one in found) for key in found[0]} for way, found in rounds.items()}
        text += table(tier, results)
        print(table(tier, results), flush=True)
    shutil.rmtree(worker.parent)
    if arguments.dry:
        return
    page = f"# Small files\n\n{arguments.count:,} files of 4 KiB in one directory. Medians of {arguments.rounds}; *whole* is with the run's start and end. {provenance_line(facts)}\n\n{text}"
    (RESULTS / "small-files.md").write_text(page.rstrip() + "\n")
    (RESULTS / "small-files.json").write_text(json.dumps({"provenance": facts, "rounds": everything}, indent=1) + "\n")


if __name__ == "__main__":
    main()
