"""What a result needs besides its numbers: machine, date, commit, command. Shared by the benchmarks."""

from __future__ import annotations

import datetime
import os
import pathlib
import platform
import subprocess

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "benchmarks" / "results"


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False).stdout.strip()


def provenance(command: str) -> dict[str, object]:
    """Machine, date, commit (`+` when the working tree differs from it in the sources) and command of a run that starts now."""
    changed = _output("git", "status", "--porcelain", "--untracked-files=no", "--", "crates")
    with open("/proc/meminfo", encoding="ascii") as meminfo:
        memory_kib = int(next(meminfo).split()[1])
    with open("/proc/cpuinfo", encoding="ascii") as cpuinfo:
        processor = next((line.split(":", 1)[1].strip() for line in cpuinfo if line.startswith("model name")), "unknown")
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _output("git", "rev-parse", "--short", "HEAD") + ("+" if changed else ""),
        "command": command,
        "processor": processor,
        "cpus": os.cpu_count(),
        "memory_gib": round(memory_kib / 2**20, 1),
        "kernel": platform.release(),
    }


def provenance_line(facts: dict[str, object]) -> str:
    """The same as a sentence for a results page."""
    return (
        f"Measured {facts['date']} at commit `{facts['commit']}` with `{facts['command']}` on {facts['cpus']} CPUs "
        f"({facts['processor']}), {facts['memory_gib']} GiB of memory, Linux {facts['kernel']}."
    )
