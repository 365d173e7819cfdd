"""Montage's mosaic workflow in several ways, taking turns; medians per step.

tmpfs        natively, everything in memory: the least that there can be
durable      natively on the throttled durable tier (tools/slowfs)
files        under `terrace run`: the root is on the durable tier, a tier in memory, everything is flushed
driver       the same with the CFITSIO driver
*-preload    the same two without the supervisor
*-all        the same two with `--directories all`: the directories that Montage's steps make lie in the tier as a whole
dedicated*   the driver alone, and the agent in another network namespace: everything travels; plain says that neither small
             writes are gathered nor reads fetched ahead, -gather and -fetch that only this one is done

Every mosaic must be the native one. A step's time is what Montage's commands take; the flush that goes on beside them and
after them is told apart.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from provenance import REPOSITORY, RESULTS, provenance, provenance_line  # noqa: E402

KIT = REPOSITORY.parent / "shared" / "montage-kit"
WAYS = {
    "tmpfs": None,
    "durable": None,
    "files": [],
    "driver": ["--cfitsio"],
    "files-preload": ["--preload-only"],
    "driver-preload": ["--cfitsio", "--preload-only"],
    "files-all": ["--directories", "all"],
    "driver-all": ["--cfitsio", "--directories", "all"],
    "dedicated": None,
    "dedicated-gather": None,
    "dedicated-fetch": None,
    "dedicated-plain": None,
}
# What is switched off.
DEDICATED = {
    "dedicated": {},
    "dedicated-gather": {"TERRACE_PREFETCH": "0"},
    "dedicated-fetch": {"TERRACE_AGGREGATE": "0"},
    "dedicated-plain": {"TERRACE_PREFETCH": "0", "TERRACE_AGGREGATE": "0"},
}
NEAR, FAR = "10.177.4.1", "10.177.4.2"


@contextlib.contextmanager
def durable_tier(arguments: argparse.Namespace, source: pathlib.Path, mount: pathlib.Path) -> Iterator[pathlib.Path]:
    """A new mount of the slow tier: nothing of it is in the kernel's cache."""
    mount.mkdir(exist_ok=True)
    program = arguments.terrace.with_name("terrace-slowfs")
    limits = ["--write-mib", arguments.write_mib, "--read-mib", arguments.read_mib, "--latency-us", arguments.latency_us]
    command = [program, "--source", source, "--mount", mount, "--write-back", *limits]
    subprocess.run([str(word) for word in command], check=True)
    try:
        yield mount
    finally:
        for _ in range(50):
            if subprocess.run(["umount", str(mount)], capture_output=True, check=False).returncode == 0:
                break
            time.sleep(0.2)


@contextlib.contextmanager
def other_node() -> Iterator[str]:
    """A network namespace with a link to this one."""
    name = f"terrace{os.getpid()}"
    near = f"tt{os.getpid()}"
    commands = [
        f"ip netns add {name}",
        f"ip link add {near} type veth peer name far netns {name}",
        f"ip addr add {NEAR}/30 dev {near}",
        f"ip link set {near} up",
        f"ip -n {name} addr add {FAR}/30 dev far",
        f"ip -n {name} link set far up",
        f"ip -n {name} link set lo up",
    ]
    try:
        for command in commands:
            subprocess.run(command.split(), check=True)
        yield name
    finally:
        # The name of a namespace goes at once, its links when the last socket there has ended.
        subprocess.run(["ip", "link", "del", near], check=False)
        subprocess.run(["ip", "netns", "del", name], check=False)


@contextlib.contextmanager
def dedicated_agent(arguments: argparse.Namespace, flags: list[str], scratch: pathlib.Path) -> Iterator[dict[str, str]]:
    """An agent on the other node, until it has made everything durable; the environment of its programs."""
    token = scratch / "token"
    port = 7788
    with other_node() as node:
        command = ["ip", "netns", "exec", node, str(arguments.terrace), "serve", "--quiet", *flags,
                   "--listen", f"{FAR}:{port}", "--token-file", str(token), *([] if arguments.tls else ["--plain"])]
        agent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if not agent.stdout.readline().startswith("export "):
            sys.exit("montage: the dedicated agent did not start")
        scheme = "tls" if arguments.tls else "plain"
        library = arguments.terrace.with_name("libterrace_cfitsio.so")
        yield {"TERRACE_AGENT": f"{scheme}://{FAR}:{port}", "TERRACE_TOKEN_FILE": str(token), "LD_PRELOAD": str(library)}
        agent.terminate()
        if agent.wait() != 0:
            sys.exit("montage: the dedicated agent could not make everything durable")


def workflow(root: pathlib.Path, steps: pathlib.Path, prefix: list[str], workers: int, more: dict[str, str]) -> float:
    """Runs the kit's script in `root`; seconds of the whole command."""
    environment = os.environ | more | {
        "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
        "STEPLOG": str(steps),
        "NPROC": str(workers),
    }
    begun = time.monotonic()
    done = subprocess.run(
        [*prefix, str(KIT / "run_montage.sh"), str(root)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )
    if done.returncode != 0:
        sys.exit(f"montage: the workflow failed\n{done.stdout}")
    return time.monotonic() - begun


def run(way: str, arguments: argparse.Namespace, tiles: pathlib.Path) -> dict[str, object]:
    """One run: seconds of each step, of the whole, and the mosaic's checksum."""
    with contextlib.ExitStack() as stack:
        memory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="montage-", dir="/dev/shm")))
        disk = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="montage-", dir=arguments.base)))
        source = disk / "source"
        root = memory / "root"
        if way == "tmpfs":
            shutil.copytree(tiles, root / "raw")
        else:
            shutil.copytree(tiles, source / "root" / "raw")
            os.sync()
            root = stack.enter_context(durable_tier(arguments, source, disk / "mount")) / "root"
        prefix: list[str] = []
        flags = ["--root", str(root), "--tier", f"ram={memory}/tier:8GiB", "--state", str(disk / "state"),
                 "--runtime", str(memory / "run")]
        if WAYS[way] is not None or way in DEDICATED:
            (memory / "tier").mkdir()
        if WAYS[way] is not None:
            prefix = [str(arguments.terrace), "run", "--quiet", *flags, *WAYS[way], "--"]
        steps = disk / "steps.tsv"
        if way in DEDICATED:
            begun = time.monotonic()
            with dedicated_agent(arguments, flags, disk) as environment:
                workflow(root, steps, prefix, arguments.workers, environment | DEDICATED[way])
            whole = time.monotonic() - begun
        else:
            whole = workflow(root, steps, prefix, arguments.workers, {})
        found = dict(line.split("\t") for line in steps.read_text().splitlines())
        times = {step: float(seconds) for step, seconds in found.items()}
        mosaic = hashlib.sha256((root / "out/mosaic.fits").read_bytes()).hexdigest()
        return {"steps": times, "whole": whole, "mosaic": mosaic}


def table(results: dict[str, list[dict[str, object]]]) -> str:
    """Medians in seconds; in brackets against tmpfs."""
    ways = list(results)
    median = {way: {step: statistics.median(run["steps"][step] for run in runs) for step in runs[0]["steps"]} for way, runs in results.items()}
    lines = ["| step | " + " | ".join(ways) + " |", "| --- |" + " ---: |" * len(ways)]
    for step in median[ways[0]]:
        cells = []
        for way in ways:
            base = median[ways[0]][step]
            against = f" ({median[way][step] / base:.2f})" if way != ways[0] and base >= 0.05 else ""
            cells.append(f"{median[way][step]:.2f}{against}")
        lines.append(f"| {step} | " + " | ".join(cells) + " |")
    whole = [f"{statistics.median(run['whole'] for run in results[way]):.2f}" for way in ways]
    lines.append("| whole command, with the flush | " + " | ".join(whole) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="medium", choices=["tiny", "small", "medium", "paper"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1, help="independent workers (NPROC of the kit)")
    parser.add_argument("--tls", action="store_true", help="dedicated agents are reached by TLS")
    ways_here = [way for way in WAYS if way not in DEDICATED or os.geteuid() == 0]
    parser.add_argument("--ways", default=",".join(ways_here), help="some of: " + ", ".join(WAYS))
    parser.add_argument("--terrace", type=pathlib.Path, required=True)
    parser.add_argument("--base", default="/var/tmp", help="where the durable tier's files lie")
    parser.add_argument("--write-mib", type=int, default=100)
    parser.add_argument("--read-mib", type=int, default=200)
    parser.add_argument("--latency-us", type=int, default=500)
    parser.add_argument("--no-write", action="store_true", help="leave benchmarks/results as it is")
    arguments = parser.parse_args()
    arguments.terrace = arguments.terrace.resolve()
    ways = arguments.ways.split(",")
    if unknown := [way for way in ways if way not in WAYS]:
        sys.exit(f"montage: no such way: {', '.join(unknown)}; there are {', '.join(WAYS)}")

    facts = provenance("benchmarks/montage/run.sh " + " ".join(sys.argv[3:]))
    results: dict[str, list[dict[str, object]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory(prefix="montage-", dir=arguments.base) as made:
        subprocess.run([sys.executable, str(KIT / "gen_tiles.py"), made, "--preset", arguments.preset], check=True)
        for turn in range(arguments.rounds):
            # Another order each time, so that none always follows the same one.
            for way in ways[turn % len(ways):] + ways[: turn % len(ways)]:
                results[way].append(run(way, arguments, pathlib.Path(made) / "raw"))
                print(f"round {turn + 1}: {way}: {results[way][-1]['steps']['TOTAL']:.2f} s", flush=True)
    mosaics = {run["mosaic"] for runs in results.values() for run in runs}
    if len(mosaics) != 1:
        sys.exit(f"montage: the mosaics differ: {json.dumps({way: [run['mosaic'] for run in runs] for way, runs in results.items()})}")

    text = table(results)
    print(text)
    if arguments.no_write:
        return
    limits = f"{arguments.write_mib} MiB/s written, {arguments.read_mib} MiB/s read, {arguments.latency_us} µs a metadata request"
    page = (
        f"# Montage, preset `{arguments.preset}`\n\n{provenance_line(facts)}\n\n"
        f"Seconds, medians of {arguments.rounds} rounds in turn; in brackets against `{ways[0]}`. The durable tier: {limits}. "
        f"All mosaics were identical. What the ways are: [compare.py](../montage/compare.py).\n\n{text}\n"
    )
    name = f"montage-{arguments.preset}" + (f"-{arguments.workers}" if arguments.workers > 1 else "")
    (RESULTS / f"{name}.md").write_text(page)
    record = {"provenance": facts, "preset": arguments.preset, "workers": arguments.workers, "durable_tier": limits, "runs": results}
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
