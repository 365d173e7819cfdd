"""Staging side by side; run by run.sh, which says what it measures."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from provenance import RESULTS, provenance, provenance_line  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
MIB, GIB = 1 << 20, 1 << 30


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Agent:
    """`terrace serve` with one tier, in memory or on disk."""

    def __init__(self, binaries: pathlib.Path, base: pathlib.Path, name: str, tier: pathlib.Path, capacity: int, flags: list[str] = []):
        self.place = base / name
        self.address = f"127.0.0.1:{free_port()}"
        for directory in ("root", "state", "run"):
            (self.place / directory).mkdir(parents=True)
        tier.mkdir(parents=True, exist_ok=True)
        self.token = base / "token"
        self.token.write_text("0123456789abcdef-benchmark\n")
        config = self.place / "terrace.toml"
        config.write_text(
            f'root = "{self.place}/root"\nstate = "{self.place}/state"\nruntime = "{self.place}/run"\n'
            f'[[tier]]\nname = "tier"\npath = "{tier}"\ncapacity = {capacity}\n[policy]\nflush = []\n'
        )
        command = [binaries / "terrace", "serve", "--quiet", "--config", config, "--listen", self.address]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TERRACE_")}
        self.process = subprocess.Popen(
            [*command, "--token-file", self.token, *flags], stdout=subprocess.PIPE, text=True, env=environment
        )
        self.index = self.process.stdout.readline().strip().removeprefix("export TERRACE_INDEX=")

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Ssh:
    """A throwaway ssh server on loopback."""

    def __init__(self, base: pathlib.Path):
        self.base, self.port = base, free_port()
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", base / key], check=True)
        config = base / "sshd"
        config.write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {base}/host\nAuthorizedKeysFile {base}/user.pub\n"
            "PermitRootLogin yes\nStrictModes no\nUsePAM no\nPidFile none\nSubsystem sftp internal-sftp\n"
        )
        os.makedirs("/run/sshd", exist_ok=True)
        self.server = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", config], stderr=subprocess.DEVNULL)
        self.options = ["-i", base / "user"]
        for option in ("IdentitiesOnly=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"):
            self.options += ["-o", option]
        self.tunnels: list[subprocess.Popen] = []
        for _ in range(100):
            if subprocess.run(["ssh", "-p", str(self.port), *self.options, "127.0.0.1", "true"]).returncode == 0:
                return
            time.sleep(0.1)
        raise RuntimeError("the ssh server does not answer")

    def scp(self, source: pathlib.Path, target: pathlib.Path) -> float:
        begun = time.perf_counter()
        subprocess.run(["scp", "-q", "-P", str(self.port), *self.options, source, f"127.0.0.1:{target}"], check=True)
        return time.perf_counter() - begun

    def tunnel(self, address: str) -> str:
        near = f"127.0.0.1:{free_port()}"
        command = ["ssh", "-N", "-L", f"{near}:{address}", "-p", str(self.port), *self.options, "127.0.0.1"]
        self.tunnels.append(subprocess.Popen(command))
        for _ in range(100):
            try:
                socket.create_connection(tuple(near.split(":"))).close()
                return near
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("the tunnel is not there")

    def end(self) -> None:
        for process in [*self.tunnels, self.server]:
            process.terminate()
            process.wait()


def skipped(what: str) -> None:
    print(f"SKIPPED: {what}", file=sys.stderr)


def main() -> None:
    numbers = lambda kind: lambda text: [kind(word) for word in text.split(",")]  # noqa: E731
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--binaries", type=pathlib.Path, required=True)
    options.add_argument("--blocks", type=numbers(int), default=[1, 4, 16, 64, 256], help="MiB")
    options.add_argument("--sizes", type=numbers(float), default=[0.25, 1, 4], help="GiB")
    options.add_argument("--threads", type=numbers(int), default=[1, 4])
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--steps", type=int, default=40, help="of the simulation")
    options.add_argument("--no-write", action="store_true")
    options = options.parse_args()
    facts = provenance("benchmarks/staging/run.sh " + " ".join(sys.argv[3:]))

    memory = pathlib.Path(tempfile.mkdtemp(prefix="staging-", dir="/dev/shm"))
    disk = pathlib.Path(tempfile.mkdtemp(prefix="staging-", dir="/var/tmp"))
    # All is put three times, and only the third time is measured: what was put before is not there to be evicted.
    room = int(max(options.sizes) * GIB * 2.2) + GIB
    program = options.binaries / "staging"
    ends: list[object] = []
    results: list[dict] = []

    def run(way: str, *words: object, token: bool = False) -> dict | None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TERRACE_")}
        if token:
            environment["TERRACE_TOKEN"] = "0123456789abcdef-benchmark"
        done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            skipped(f"{way}: {done.stderr.strip().splitlines()[-1:]}")
            return None
        return json.loads(done.stdout) | {"way": way}

    def measure_sst(block: int, size: int) -> dict | None:
        steps = max(1, size // block)
        words = [str(disk / "sst"), str(block), str(steps)]
        reader = subprocess.Popen([sys.executable, HERE / "sst.py", "read", *words], stderr=subprocess.PIPE, text=True)
        writer = subprocess.run([sys.executable, HERE / "sst.py", "write", *words], capture_output=True, text=True, timeout=600)
        reader.wait(120)
        if writer.returncode != 0 or reader.returncode != 0:
            skipped(f"ADIOS2 SST: {(writer.stderr or reader.stderr.read()).strip().splitlines()[-1:]}")
            return None
        seconds = float(writer.stdout)
        return {"way": "ADIOS2 SST", "block": block, "bytes": steps * block, "threads": 1, "seconds": seconds}

    try:
        sink = f"127.0.0.1:{free_port()}"
        ends.append(subprocess.Popen([program, "sink", sink]))
        relay = f"127.0.0.1:{free_port()}"
        ends.append(subprocess.Popen([program, "relay", relay, sink]))
        staged = Agent(options.binaries, memory, "memory", memory / "tier", room)
        on_disk = Agent(options.binaries, disk, "disk", disk / "tier", room)
        rule = f"staging*=tcp://{staged.address} token_file={memory}/token keep=none"
        sending = Agent(options.binaries, memory, "sending", memory / "tier2", room, ["--forward", rule])
        agents = [staged, on_disk, sending]
        ends += agents
        ssh = near = None
        if os.path.exists("/usr/sbin/sshd") and shutil.which("ssh-keygen"):
            ssh = Ssh(disk)
            ends.append(ssh)
            near = ssh.tunnel(staged.address)
        else:
            skipped("scp and the tunnel: no ssh server")
        has_adios = subprocess.run([sys.executable, "-c", "import adios2"], capture_output=True).returncode == 0
        if not has_adios:
            skipped("ADIOS2 SST: no package adios2")

        for size in (int(size * GIB) for size in options.sizes):
            source = memory / "source"
            for block in (block * MIB for block in options.blocks):
                for threads in options.threads:
                    if block * threads > size:
                        continue
                    for number in range(options.rounds):
                        words = (block, size, threads)
                        found = [
                            run("memcpy", "memcpy", *words),
                            run("plain stream", "stream", *words, sink),
                            run("plain stream, relayed", "stream", *words, relay),
                            run("Terrace, memory, same node", "terrace", *words, staged.index),
                            run("Terrace, memory, by TCP", "terrace", *words, f"tcp://{staged.address}", token=True),
                            run("Terrace, disk, same node", "terrace", *words, on_disk.index),
                            run("Terrace, forwarded to memory", "forwarded", *words, sending.index),
                        ]
                        if near:
                            found.append(run("Terrace, memory, by SSH tunnel", "terrace", *words, f"tcp://{near}", token=True))
                        if has_adios and threads == 1:
                            found.append(measure_sst(block, size))
                        # Files have no blocks: once for each size.
                        if ssh and threads == 1 and block == options.blocks[0] * MIB:
                            source.write_bytes(b"\7" * MIB * (size // MIB))
                            seconds = ssh.scp(source, memory / "copy")
                            found.append({"way": "scp", "block": 0, "bytes": size, "threads": 1, "seconds": seconds})
                            source.unlink()
                            (memory / "copy").unlink()
                        results += [one | {"round": number, "size": size} for one in found if one]
                    print(f"{size / GIB:g} GiB, blocks of {block // MIB} MiB, {threads} threads", file=sys.stderr)

        computing = []
        for block in (block * MIB for block in options.blocks if block <= 64):
            # A step computes for longer than its transfer takes.
            seconds = max(0.02, block / 250e6)
            for number in range(options.rounds):
                for way, words in (("without", []), ("staged and forwarded", [sending.index])):
                    found = run(way, "compute", block, options.steps, seconds, *words)
                    computing += [found | {"round": number}] if found else []
    finally:
        for one in reversed(ends):
            one.end() if hasattr(one, "end") else (one.kill(), one.wait())
        shutil.rmtree(memory, ignore_errors=True)
        shutil.rmtree(disk, ignore_errors=True)

    text = tables(results, computing)
    print(text)
    if not options.no_write:
        page = f"# Staging\n\n{provenance_line(facts)}\nMedians of {options.rounds} rounds, in which all ways take turns. Terrace\ndoes all of it three times, and the third time is measured: the memory has been touched, as memcpy's has.\nForwarding is to be held against the relayed stream: all bytes pass two programs. Ratios are to the plain stream of as many threads.\n\n{text}"
        (RESULTS / "staging.md").write_text(page)
        (RESULTS / "staging.json").write_text(json.dumps(facts | {"results": results, "computing": computing}, indent=1) + "\n")


def tables(results: list[dict], computing: list[dict]) -> str:
    rates: dict[tuple, list[float]] = {}
    for one in results:
        rates.setdefault((one["way"], one["size"], one["block"], one["threads"]), []).append(one["bytes"] / one["seconds"] / 1e6)
    median = {key: statistics.median(found) for key, found in rates.items()}
    scp = {size: rate for (way, size, _, _), rate in median.items() if way == "scp"}
    lines = ["| GiB | block, MiB | threads | way | MB/s | of the plain stream | times scp |", "| ---: | ---: | ---: | --- | ---: | ---: | ---: |"]
    for (way, size, block, threads), rate in sorted(median.items(), key=lambda item: (*item[0][1:], -item[1])):
        stream = median.get(("plain stream", size, block, threads))
        part = f"{rate / stream:.2f}" if stream else "-"
        times = f"{rate / scp[size]:.1f}" if size in scp else "-"
        shown = block // MIB if block else "-"
        lines.append(f"| {size / GIB:g} | {shown} | {threads} | {way} | {rate:.0f} | {part} | {times} |")
    lines += ["", "A simulation's own time, staged and forwarded to the time without:", "", "| block, MiB | time | waited for room, s |", "| ---: | ---: | ---: |"]
    for block in sorted({one["block"] for one in computing}):
        of = lambda way: [one["per_turn_us"] for one in computing if one["block"] == block and one["way"] == way]  # noqa: B023, E731
        without, staged = of("without"), of("staged and forwarded")
        if without and staged:
            blocked = max(one["blocked_s"] for one in computing if one["block"] == block)
            lines.append(f"| {block // MIB} | {statistics.median(staged) / statistics.median(without):.3f} | {blocked:.3f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
