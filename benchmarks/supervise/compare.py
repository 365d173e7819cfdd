"""Programs natively and under `terrace run`, by turns: a static one under the supervisor and by a private mount, a dynamic one and
real tools by default."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from provenance import REPOSITORY, RESULTS, provenance, provenance_line  # noqa: E402

BUILD = REPOSITORY / "build"


class Place:
    """A root and a plain directory on one file system, a tier in memory."""

    def __init__(self, base: str, terrace: str) -> None:
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="terrace-supervise-", dir=base))
        self.fast = pathlib.Path(tempfile.mkdtemp(prefix="terrace-supervise-", dir="/dev/shm"))
        self.terrace = terrace
        for name in ("root", "plain", "state"):
            (self.base / name).mkdir()
        for name in ("root", "plain"):
            (self.base / name / "durable").write_bytes(b"data")

    def run(self, *flags: str) -> list[str]:
        """The command before a program that runs under Terrace. Files stay where they are made: flushes are another benchmark's."""
        return [
            self.terrace, "run", "--quiet", *flags, "--root", str(self.base / "root"), "--tier", f"ram={self.fast}:1GiB",
            "--settle", "1h", "--evict", "**", "--state", str(self.base / "state"), "--runtime", str(self.fast / "run"), "--",
        ]  # fmt: skip

    def remove(self) -> None:
        for directory in (self.base, self.fast):
            shutil.rmtree(directory, ignore_errors=True)


def worker(prefix: list[str], program: pathlib.Path, directory: pathlib.Path, turns: int, cpus: str) -> dict[str, float]:
    command = ["taskset", "-c", cpus, *prefix, str(program), str(directory), str(turns)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name: float(value) for name, value in (line.split("\t") for line in said.splitlines())}


def bare(cpus: str, turns: int) -> float:
    """Microseconds of a stat under a supervisor that only lets it go on: the kernel's part."""
    command = ["taskset", "-c", cpus, str(BUILD / "supervise-bare"), "/usr/bin/env", str(turns)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def by_turns(rounds: int, ways: dict[str, object]) -> dict[str, list]:
    """What each way gives, one round after the other."""
    results: dict[str, list] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            results[name].append(way())  # type: ignore[operator]
    return results


def calls(place: Place, program: str, flags: list[str], cpus: str, rounds: int, turns: int) -> list[dict[str, object]]:
    binary = BUILD / program
    results = by_turns(rounds, {
        "native": lambda: worker([], binary, place.base / "plain", turns, cpus),
        "terrace": lambda: worker(place.run(*flags), binary, place.base / "root", turns, cpus),
    })  # fmt: skip
    rows = []
    for name in results["native"][0]:
        native = [result[name] for result in results["native"]]
        terrace = [result[name] for result in results["terrace"]]
        ratio = statistics.median(ours / theirs for ours, theirs in zip(terrace, native))
        rows.append({
            "call": name, "native_us": statistics.median(native), "terrace_us": statistics.median(terrace), "ratio": ratio,
        })  # fmt: skip
    return rows


# Tells what the program itself took: the start of a run and its flush are not its own.
TIMER = """
import subprocess, sys, time
begun = time.monotonic()
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(time.monotonic() - begun)
"""


def tool(place: Place, name: str, command: list[str], change, rounds: int) -> dict[str, object]:
    def once(directory: pathlib.Path, prefix: list[str]) -> float:
        change(directory)
        inner = [*prefix, "python3", "-S", "-c", TIMER, *command]
        said = subprocess.run(inner, cwd=directory, capture_output=True, text=True, check=True)
        return float(said.stdout.strip().splitlines()[-1])

    results = by_turns(rounds, {
        "native": lambda: once(place.base / "plain", []),
        "terrace": lambda: once(place.base / "root", place.run()),
    })  # fmt: skip
    ratio = statistics.median(ours / theirs for ours, theirs in zip(results["terrace"], results["native"]))
    return {
        "tool": name, "native_s": statistics.median(results["native"]), "terrace_s": statistics.median(results["terrace"]),
        "ratio": ratio,
    }  # fmt: skip


GO = """package main

import (
	"encoding/json"
	"fmt"
	"os"
)

func main() { fmt.Println(len(os.Args)); json.NewEncoder(os.Stdout).Encode(%d) }
"""


def tools(place: Place, rounds: int) -> list[dict[str, object]]:
    rows = []
    for directory in (place.base / "plain", place.base / "root"):
        for number in range(2000):
            part = directory / f"part{number % 40}"
            part.mkdir(exist_ok=True)
            (part / f"file{number}").write_text(str(number))
        for command in (["init", "-q"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x"]):
            subprocess.run(["git", *command], cwd=directory, check=True)
    rows.append(tool(place, "git status, 2,000 files", ["git", "status", "--porcelain"], lambda _: None, rounds))
    if shutil.which("go"):
        os.environ.update(CGO_ENABLED="0", GOFLAGS="-mod=mod -buildvcs=false", GOTOOLCHAIN="local")

        def change(directory: pathlib.Path) -> None:
            (directory / "module").mkdir(exist_ok=True)
            (directory / "module/go.mod").write_text("module example.com/m\n\ngo 1.20\n")
            (directory / "module/main.go").write_text(GO % time.monotonic_ns())

        build = ["go", "build", "-C", "module", "-o", "program", "."]
        rows.append(tool(place, "go build, one package changed", build, change, rounds))
    else:
        print("supervise: go is not installed: `go build` is left out", file=sys.stderr)
    return rows


def table(rows: list[dict[str, object]], first: str, unit: str) -> str:
    lines = [f"| {first} | native {unit} | Terrace {unit} | ratio |", "| --- | ---: | ---: | ---: |"]
    digits = 2 if unit == "µs" else 3
    for row in rows:
        name, native, terrace, ratio = row.values()
        lines.append(f"| {name} | {native:.{digits}f} | {terrace:.{digits}f} | {ratio:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--terrace", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--turns", type=int, default=3000)
    parser.add_argument("--base", default="/var/tmp", help="where the root lies")
    parser.add_argument("--no-write", action="store_true", help="print the results and leave those that are published")
    args = parser.parse_args()
    facts = provenance("benchmarks/supervise/run.sh")
    place = Place(args.base, args.terrace)
    try:
        sections, least = {}, {}
        for cpus, where in (("0", "on one core"), ("0,1", "on two cores")):
            rows = calls(place, "supervise-static", ["--supervise-only"], cpus, args.rounds, args.turns)
            sections[f"A static program under the supervisor, {where}"] = (rows, "call", "µs")
            least[where] = statistics.median(bare(cpus, args.turns) for _ in range(args.rounds))
        rows = calls(place, "supervise-static", ["--mount"], "0,1", args.rounds, args.turns)
        sections["A static program by a private mount (`--mount`), on two cores"] = (rows, "call", "µs")
        # Its calls are short: many of them, so that what the agent does meanwhile doesn't count.
        rows = calls(place, "supervise-dynamic", [], "0", args.rounds, 10 * args.turns)
        sections["A dynamic program under the library and the supervisor (default)"] = (rows, "call", "µs")
        sections["Tools, default"] = (tools(place, args.rounds), "tool", "s")
    finally:
        place.remove()
    text = "# Programs under the supervisor, and by a private mount\n\n" + provenance_line(facts)
    text += f"\nMedians of {args.rounds} rounds by turns. The recipe is [`benchmarks/supervise`](../supervise/).\n"
    text += "\nThe kernel's part, a stat under a supervisor that only lets it go on: "
    text += ", ".join(f"{value:.2f} µs {where}" for where, value in least.items()) + ".\n"
    for title, (rows, first, unit) in sections.items():
        text += f"\n## {title}\n\n{table(rows, first, unit)}\n"
    if not args.no_write:
        (RESULTS / "supervise.md").write_text(text)
        measured = {title: rows for title, (rows, _, _) in sections.items()}
        (RESULTS / "supervise.json").write_text(json.dumps({**facts, "least_us": least, "measured": measured}, indent=1) + "\n")
    print(text)


if __name__ == "__main__":
    main()
