#!/usr/bin/env python3
"""The demo: two workflows on a slow durable tier, natively and under Terrace, with their times and a check of every byte.

Each run starts from the same inputs on a fresh mount, so nothing is cached. Its time ends when the last byte that is
wanted has reached the durable tier. Afterwards the durable tier's files are compared with the native run's by SHA-256.
"""

import argparse
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import inputs
import report
from slow_tier import Limits, SlowTier, unmount

REPOSITORY = Path(__file__).resolve().parent.parent
DEMO = REPOSITORY / "demo"
BUILD = REPOSITORY / "build" / "demo"
TERRACE = REPOSITORY / "target/release/terrace"
SLOWFS = REPOSITORY / "target/release/terrace-slowfs"
TEMPLATE = REPOSITORY / "build/data/mni_icbm152_t1_tal_nlin_sym_09a_converted.nii.gz"
PLATES = sorted(Path("/usr/lib/eso-midas").glob("*/test/prim/dss_test[12].fits"))
RUN_S_MAX = 150
ITERATIONS = 10
BLOCKS = 8


@dataclass
class Workflow:
    """A command in a directory of the durable tier, and which of its files are wanted."""

    name: str
    title: str
    prepare: Callable[[Path], None]
    command: Callable[[Path], list[str | Path]]
    is_wanted: Callable[[str], bool]


@dataclass
class Variant:
    """One way to run a workflow: natively (`policy` is None) or under Terrace with a policy."""

    name: str
    title: str
    policy: Path | None = None
    keeps_all: bool = False


@dataclass
class Run:
    workflow: str
    variant: str
    title: str
    seconds: float
    speedup: float
    traffic: dict[str, int]
    checked_files: int
    differences: list[str] = field(default_factory=list)


INCREMENTATION = Workflow(
    name="incrementation",
    title=f"Incrementation: {BLOCKS} brain blocks, {ITERATIONS} iterations",
    prepare=lambda directory: inputs.cut_brain(TEMPLATE, directory / "blocks", BLOCKS, magnification=3),
    command=lambda root: [
        sys.executable, DEMO / "incrementation.py", root / "blocks", root / "output",
        "--iterations", str(ITERATIONS), "--processes", "2",
    ],
    is_wanted=lambda name: not name.startswith("output/") or name.endswith(f"_iteration-{ITERATIONS:02d}.nii"),
)
MOSAIC = Workflow(
    name="mosaic",
    title="Mosaic: two sky plates, Montage",
    prepare=lambda directory: inputs.copy_plates(PLATES, directory / "plates"),
    command=lambda root: [DEMO / "mosaic.sh", root],
    is_wanted=lambda name: not name.startswith("work/"),
)
NATIVE = Variant("native", "durable tier alone")
PLAN = [
    (INCREMENTATION, NATIVE),
    (INCREMENTATION, Variant("terrace", "Terrace, last iteration kept", DEMO / "incrementation.toml")),
    (INCREMENTATION, Variant("flush-all", "Terrace, everything kept", DEMO / "flush-everything.toml", keeps_all=True)),
    (MOSAIC, NATIVE),
    (MOSAIC, Variant("terrace", "Terrace, mosaic kept", DEMO / "mosaic.toml")),
]


def checksums(directory: Path) -> dict[str, str]:
    """SHA-256 of each file below `directory`, by relative name; anything but files and directories is named as such."""
    sums = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_symlink():
            sums[name] = f"a link to {os.readlink(path)}"
        elif path.is_file():
            with path.open("rb") as file:
                sums[name] = hashlib.file_digest(file, "sha256").hexdigest()
        elif name.split("/")[0] == ".terrace":
            sums[name] = "a directory of Terrace's own"
    return sums


def differences(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    """What is missing, too much, or not the same, in words."""
    missing = [f"{name} is missing" for name in expected.keys() - found.keys()]
    extra = [f"{name} should not be there ({found[name]})" for name in found.keys() - expected.keys()]
    other = [f"{name} differs" for name in expected.keys() & found.keys() if expected[name] != found[name]]
    return sorted(missing + extra + other)


def execute(command: list[str | Path], log: Path) -> None:
    """Runs a command with its output in `log`, and ends the demo if it fails or takes too long."""
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(word) for word in command], stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=RUN_S_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise SystemExit(f"demo: not done after {RUN_S_MAX} s; its output is in {log}") from None
    if code:
        print(log.read_text(errors="replace")[-4000:], file=sys.stderr)
        raise SystemExit(f"demo: the command failed with exit code {code}; its output is in {log}")


def run(workflow: Workflow, variant: Variant, limits: Limits) -> tuple[float, dict[str, int], dict[str, str]]:
    """One run: its seconds, what reached the durable tier, and the checksums of what is there afterwards."""
    source, mount = BUILD / "source", BUILD / "mount"
    name = f"{workflow.name}-{variant.name}"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(BUILD / "inputs" / workflow.name, source / workflow.name)
    with SlowTier(SLOWFS, source, mount, limits) as tier:
        root = mount / workflow.name
        command = workflow.command(root)
        if variant.policy:
            terrace = [TERRACE, "run", "--root", root, "--config", variant.policy]
            command = [*terrace, "--report", BUILD / f"{name}.report.json", "--", *command]
        start = time.monotonic()
        execute(command, BUILD / f"{name}.log")
        tier.settle()
        seconds = time.monotonic() - start
    found = checksums(source / workflow.name)
    if workflow is MOSAIC:
        shutil.copyfile(source / "mosaic/mosaic/mosaic.png", BUILD / "mosaic.png")
    shutil.rmtree(source)
    return seconds, tier.traffic, found


def demo(limits: Limits) -> list[Run]:
    runs: list[Run] = []
    native: dict[str, tuple[float, dict[str, str]]] = {}
    for workflow, variant in PLAN:
        print(f"  {workflow.title} · {variant.title} … ", end="", flush=True)
        seconds, traffic, found = run(workflow, variant, limits)
        if variant is NATIVE:
            native[workflow.name] = seconds, found
        native_seconds, native_found = native[workflow.name]
        expected = {name: s for name, s in native_found.items() if variant.keeps_all or workflow.is_wanted(name)}
        kept = {name: s for name, s in found.items() if variant is not NATIVE or workflow.is_wanted(name)}
        wrong = differences(expected, kept)
        runs.append(
            Run(
                workflow.name, variant.name, variant.title, seconds, native_seconds / seconds, traffic,
                checked_files=len(expected), differences=wrong,
            )
        )
        print(f"{seconds:.1f} s" + (f", {len(wrong)} DIFFERENCES" if wrong else ""))
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--publish", action="store_true", help="also keep picture and numbers in docs/images")
    arguments = parser.parse_args()
    for needed in [TERRACE, SLOWFS, TEMPLATE, *PLATES]:
        if not needed.exists():
            raise SystemExit(f"demo: {needed} is missing\nhint: `make demo` builds and fetches everything")
    unmount(BUILD / "mount")
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)

    limits = Limits()
    print(
        f"Durable tier: {limits.write_mib_s:.0f} MiB/s write, {limits.read_mib_s:.0f} MiB/s read, shared;"
        f" {limits.latency_us / 1000:.1f} ms a metadata request. Fast tier: memory.\n"
    )
    for workflow in (INCREMENTATION, MOSAIC):
        workflow.prepare(BUILD / "inputs" / workflow.name)
    runs = demo(limits)
    shutil.rmtree(BUILD / "inputs")

    titles = {workflow.name: workflow.title for workflow in (INCREMENTATION, MOSAIC)}
    results = {
        "limits": asdict(limits),
        "machine": {"cores": os.cpu_count(), "kernel": platform.release()},
        "date": time.strftime("%Y-%m-%d"),
        "titles": titles,
        "runs": [asdict(run) for run in runs],
    }
    (BUILD / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    print("\n" + report.table(results))
    picture = BUILD / "demo.png"
    report.draw(results, BUILD / "mosaic.png", picture)
    print(f"\nPicture: {picture.relative_to(REPOSITORY)}, numbers: build/demo/results.json")
    if arguments.publish:
        shutil.copyfile(picture, REPOSITORY / "docs/images/demo.png")
        shutil.copyfile(BUILD / "results.json", REPOSITORY / "docs/images/demo.json")
        print("Kept: docs/images/demo.png, docs/images/demo.json")

    wrong = [f"{run.workflow}, {run.title}: {line}" for run in runs for line in run.differences]
    if wrong:
        raise SystemExit("\ndemo: FAILED: outputs are not the native run's\n  " + "\n  ".join(wrong))
    print("All outputs on the durable tier are byte-identical to the native runs'.")


if __name__ == "__main__":
    main()
