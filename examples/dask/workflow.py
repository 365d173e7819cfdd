"""48 samples are simulated and reduced, and one table is made of all: 97 tasks of Dask.

    terrace run --config terrace.toml -- python workflow.py                   # workers on this node
    python workflow.py --workers-by local                                     # each worker is a job: dask-jobqueue
    python workflow.py --workers-by slurm

Workers that are jobs have runs of their own, which share one agent on each node; `TERRACE` holds that command's words. A task whose file is
there is not done again: Dask itself remembers nothing after its end. How it works with Terrace: docs/guide/workflows.md.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys

SAMPLES = range(48)
HERE = pathlib.Path.cwd()


def made(path: str, command: str) -> str:
    """Makes a file by a shell command, if it isn't there: under another name first, so that a file with its name is whole."""
    target = HERE / path
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        part = target.with_name(f".{target.name}.{os.getpid()}")
        subprocess.run(["bash", "-euo", "pipefail", "-c", f"{command} >{part}"], check=True, cwd=HERE)
        part.replace(target)
    return path


def simulate(sample: int) -> str | None:
    if (HERE / f"results/sample{sample}.txt").exists():
        return None  # nothing wants it any more
    return made(f"work/sample{sample}.txt", f"seq {sample} 1200000")


def reduce(sample: int, series: str | None) -> str:
    path = made(f"results/sample{sample}.txt", f"echo {sample} $(cksum <{series})")
    if series:
        (HERE / series).unlink(missing_ok=True)
    return path


def table(rows: list[str]) -> str:
    return made("results/table.txt", f"sort -n {' '.join(rows)}")


def cluster(kind: str, workers: int):
    """Workers as processes of this node, or as jobs. What they spill lies below the root, where policy drops it."""
    scratch = str(HERE / "work/dask")
    if kind == "here":
        from distributed import LocalCluster

        return LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, local_directory=scratch, dashboard_address=None)
    from dask_jobqueue import SLURMCluster
    from dask_jobqueue.local import LocalCluster as LocalJobs  # jobs that are processes here: no batch system

    terrace = os.environ.get("TERRACE", f"terrace run --quiet --config {HERE}/terrace.toml --root {HERE} --")
    found = {"local": LocalJobs, "slurm": SLURMCluster}[kind](
        cores=1, processes=1, memory="1GiB", local_directory=scratch,
        python=f"{terrace} {sys.executable}", scheduler_options={"dashboard_address": None},
    )  # fmt: skip
    found.scale(jobs=workers)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--workers-by", choices=["here", "local", "slurm"], default="here")
    arguments = parser.parse_args()
    from distributed import Client

    with cluster(arguments.workers_by, arguments.workers) as workers, Client(workers) as client:
        series = client.map(simulate, SAMPLES, pure=False)
        rows = client.map(reduce, SAMPLES, series, pure=False)
        print((HERE / client.submit(table, rows, pure=False).result()).read_text(), end="")


if __name__ == "__main__":
    main()
