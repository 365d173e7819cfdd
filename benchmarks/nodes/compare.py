"""Files of other nodes: the durable tier alone and Terrace by turns, beside a plain TCP stream (benchmarks/README.md, nodes)."""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from provenance import RESULTS, provenance  # noqa: E402

WORKER = pathlib.Path(__file__).resolve().parent / "worker.py"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
BLOCKS, STEPS = 4, 6
SIZES = [("4 KiB", 4 * KIB, 200), ("1 MiB", MIB, 20), ("1 GiB", GIB, 1)]


class Node:
    """A worker on a node of the testbed, natively or under `terrace run`."""

    def __init__(self, testbed: "Testbed", number: int, terrace: str | None, capacity: str, arguments: tuple[str, ...] = ()):
        command = [sys.executable, str(WORKER)]
        if terrace:
            command = [terrace, "run", "-q", "--settle", "1h", "--tier", f"ram=/dev/shm:{capacity}", *arguments, "--", *command]
        script = 'cd "$PFS_DIR"/nodes && exec "$@"'
        self.process = subprocess.Popen(
            testbed.exec(number, "sh", "-c", script, "sh", *command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def tell(self, **command) -> None:
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict:
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": "the worker has ended"}

    def ask(self, **command) -> dict:
        self.tell(**command)
        return self.answer()

    def do(self, **command) -> dict:
        """What has to be done for the measurement to mean anything."""
        answer = self.ask(**command)
        if "error" in answer:
            sys.exit(f"nodes: {command} failed: {answer['error']}")
        return answer

    def end(self) -> None:
        self.process.stdin.close()
        if code := self.process.wait(timeout=600):
            sys.exit(f"nodes: a worker, or its run, ended with {code}")


class Testbed:
    def __init__(self, program: str, directory: str):
        self.program, self.directory = program, directory

    def run(self, *words: str) -> None:
        subprocess.run([self.program, *words, "--dir", self.directory], check=True, stdout=subprocess.DEVNULL)

    def exec(self, node: int, *command: str) -> list[str]:
        return [self.program, "exec", "--dir", self.directory, str(node), "--", *command]

    def clear(self) -> None:
        subprocess.run(self.exec(0, "sh", "-c", 'rm -rf "$PFS_DIR"/nodes; mkdir "$PFS_DIR"/nodes'), check=True)
        self.run("cold")


def median_or_error(answer: dict) -> float | str:
    return statistics.median(answer["times"]) if "times" in answer else answer.get("error", "no answer")


def measure(testbed: Testbed, terrace: str | None, options: argparse.Namespace) -> dict:
    testbed.clear()
    nodes = [Node(testbed, number, terrace, options.capacity) for number in range(3)]
    one, two, three = nodes
    result: dict = {}
    for label, size, count in SIZES:
        if size > options.largest:
            continue
        # Suffixes as programs have them, by which Terrace learns what is small.
        names = [f"{size}-{number}.{'txt' if size < MIB else 'dat'}" for number in range(count)]
        wrote = one.do(do="write", names=names, size=size)
        if size >= MIB:
            result[f"write {label}"] = wrote["seconds"] / count
        result[f"read {label}"] = median_or_error(two.ask(do="read", names=names, size=size))
    for directory in ("many", "shared"):
        subprocess.run(testbed.exec(0, "sh", "-c", f'mkdir "$PFS_DIR"/nodes/{directory}'), check=True)
    one.do(do="create", directory="many", prefix="f", count=options.files)
    looked = two.ask(do="stat", directory="many", size=100)
    is_right = looked.get("count") == options.files
    result["stat per second"] = options.files / looked["seconds"] if is_right else looked.get("error", f"{looked.get('count')} right")
    for node, prefix in [(one, "a"), (two, "b")]:
        node.tell(do="create", directory="shared", prefix=prefix, count=options.files // 5)
    answers = [one.answer(), two.answer()]
    seconds = [answer.get("seconds") for answer in answers]
    result["create per second, two nodes"] = 2 * (options.files // 5) / max(seconds) if all(seconds) else answers
    one.do(do="write", names=[f"block{block}-0.dat" for block in range(BLOCKS)], size=options.block)
    total, error = 0.0, None
    for step in range(STEPS):
        for block in range(BLOCKS):
            node = nodes[(step + block + 1) % 3]
            answer = node.ask(do="increment", **{"from": f"block{block}-{step}.dat", "to": f"block{block}-{step + 1}.dat"})
            error = error or answer.get("error")
            total += answer.get("seconds", 0)
    last = three.ask(do="check", name=f"block0-{STEPS}.dat")
    is_right = last.get("value") == 7 + STEPS and last.get("size") == options.block
    result["pipeline seconds"] = total if is_right and not error else (error or f"wrong bytes: {last}")
    result["compute seconds"] = one.do(do="compute", size=options.block)["seconds"]
    # What the pipeline has begun, the file system's own part of it above all, has ended by then.
    threading.Event().wait(5)
    before = one.ask(do="packets")["packets"]
    threading.Event().wait(options.idle)
    result["packets per second, idle"] = (one.ask(do="packets")["packets"] - before) / options.idle
    for node in nodes:
        node.end()
    return result


def stream(testbed: Testbed, options: argparse.Namespace) -> dict:
    result = {}
    for port, (label, size, count) in enumerate(SIZES, 7800):
        if size > options.largest:
            continue
        server, client = (Node(testbed, number, None, "") for number in (0, 1))
        server.ask(do="serve", host="0.0.0.0", port=port)
        result[f"read {label}"] = median_or_error(client.ask(do="receive", host=options.address, port=port, size=size, count=count))
        client.end()
        server.answer()
        server.end()
    return result


def predicted(medians: dict[str, dict], options: argparse.Namespace) -> dict[str, float]:
    """The pipeline's seconds by `terrace predict --simulate`, from the reads and writes of one large file and the computing that were measured here."""

    def rate(what: str, way: str) -> float:
        return GIB / medians[f"{what} 1 GiB"][way]

    platform = {
        "nodes": 3,
        "tiers": [{"name": "ram", "in_memory": True, "capacity_bytes": 4 * GIB, "read_bytes_s": 10 * GIB, "write_bytes_s": rate("write", "terrace")}],
        "durable": {
            "read_bytes_s": rate("read", "durable"),
            "write_bytes_s": rate("write", "durable"),
            "latency_s": medians["read 4 KiB"]["durable"] / 4,
        },
        "mover": {"settle_s": 3600},
        "peers": {"stream_bytes_s": rate("read", "terrace")},
    }
    # The pipeline does one step at a time: one file that goes through all of them.
    steps = BLOCKS * STEPS
    job = {
        "input": options.block,
        "intermediate": options.block * (steps - 1),
        "output": options.block,
        "file_size": options.block,
        "iterations": steps,
        "compute": medians["compute seconds"]["durable"] * steps,
        "next_step": "other-node",
    }
    with tempfile.TemporaryDirectory() as directory:
        files = {"--platform": platform, "--workload": job}
        arguments = [options.terrace, "predict", "--simulate", "--json"]
        for number, (flag, value) in enumerate(files.items()):
            path = pathlib.Path(directory) / f"{number}.json"
            path.write_text(json.dumps(value), encoding="utf-8")
            arguments += [flag, str(path)]
        found = subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True, cwd=directory)
    simulation = json.loads(found.stdout)["simulation"]
    return {way: simulation[name]["median_run"]["program_s"] for way, name in (("durable", "durable_alone"), ("terrace", "terrace"))}


def text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value).replace("|", "/")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--testbed", required=True)
    parser.add_argument("--terrace", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=10_000, help="files of the stat; a fifth of them is made by each of two nodes")
    parser.add_argument("--largest", type=int, default=GIB, help="leave out larger files")
    parser.add_argument("--block", type=int, default=128 * MIB, help="bytes of each of the pipeline's four blocks")
    parser.add_argument("--capacity", default="4GiB", help="of each node's memory tier")
    parser.add_argument("--idle", type=float, default=10.0, help="seconds in which packets are counted")
    parser.add_argument("--address", default="10.77.1.10", help="of the testbed's node 0")
    options = parser.parse_args()
    base = provenance("benchmarks/nodes/run.sh " + " ".join(sys.argv[5:]))
    rounds: dict[str, list[dict]] = {"durable": [], "terrace": [], "stream": []}
    with tempfile.TemporaryDirectory(prefix="terrace-nodes-", dir="/tmp") as directory:
        testbed = Testbed(options.testbed, directory)
        testbed.run("up", "--nodes", "3", "--tmpfs", "6144", "--warm", "8000")
        try:
            for _ in range(options.rounds):
                testbed.clear()
                rounds["stream"].append(stream(testbed, options))
                rounds["durable"].append(measure(testbed, None, options))
                rounds["terrace"].append(measure(testbed, options.terrace, options))
        finally:
            testbed.run("down")
    medians: dict[str, dict] = {}
    for what in rounds["durable"][0]:
        row = {}
        for way, results in rounds.items():
            values = [result[what] for result in results if what in result]
            numbers = [value for value in values if isinstance(value, float)]
            failures = [value for value in values if not isinstance(value, float)]
            row[way] = failures[0] if failures else statistics.median(numbers) if numbers else ""
        medians[what] = row
    # A small file's rate says nothing of large ones.
    if options.largest >= GIB and all(isinstance(value, float) for row in medians.values() for value in row.values() if value != ""):
        medians["pipeline seconds, predicted"] = {**predicted(medians, options), "stream": ""}
    table = ["| what | durable tier alone | Terrace | plain stream |", "| --- | --- | --- | --- |"]
    for what, row in medians.items():
        table.append(f"| {what} | " + " | ".join(text(row[way]) for way in ("durable", "terrace", "stream")) + " |")
    print("\n".join(table))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "nodes.json").write_text(json.dumps({**base, "medians": medians, "rounds": rounds}, indent=1) + "\n", encoding="utf-8")
    heading = f"# Files of other nodes\n\n{base['date']}, commit {base['commit']}, {base['processor']}. Reads in seconds, medians.\n\n"
    (RESULTS / "nodes.md").write_text(heading + "\n".join(table) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
