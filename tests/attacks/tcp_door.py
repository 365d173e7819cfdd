#!/usr/bin/env python3
"""Attacks the TCP door of an agent for as long as it is told, with and without TLS, before and after the token is shown, and looks
whether an honest client is answered all the while and whether the agent's memory, threads and descriptors stay flat.

    tests/attacks/tcp_door.py --minutes 15

Attacks: noise; frames that are mutated, cut off, longer or shorter than they claim; tokens that are nearly right; greetings a byte at a
time; connections that are half closed, reset, or say nothing; bursts of them; TLS spoken to the plain door and the other way round;
TLS conversations replayed; requests that are asked and not waited for. From one seed, which is printed.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import os
import pathlib
import random
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable

MAGIC = b"TER\x08"
PATIENCE = 30.0
HOLDINGS_ROOM = {"descriptors": 24, "threads": 8, "rss_mib": 24}


# The language, as far as it is needed: crates/core/src/objects/wire.rs.


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def text(words: str) -> bytes:
    raw = words.encode()
    return varint(len(raw)) + raw


def numbers(values: list[int]) -> bytes:
    return varint(len(values)) + b"".join(map(varint, values))


def region(offset: list[int], count: list[int]) -> bytes:
    return numbers(offset) + numbers(count) + numbers([1] * len(offset))


def frame(message: bytes, payload: bytes = b"", message_bytes: int | None = None, payload_bytes: int | None = None) -> bytes:
    lengths = (len(message) if message_bytes is None else message_bytes, len(payload) if payload_bytes is None else payload_bytes)
    return MAGIC + struct.pack("<IQ", *lengths) + message + payload


def hello(token: str) -> bytes:
    return frame(varint(0) + text(token))


ROOT = frame(varint(12))
ARRAY, FILE = text("c/array"), text("c/file")
REQUESTS = [
    ROOT,
    *(frame(varint(number) + ARRAY) for number in (1, 2, 3, 4, 9, 10, 13, 14, 15)),
    frame(varint(13) + text("../../etc/passwd")),
    frame(varint(14) + text("/")),
    frame(varint(5) + varint(1 << 20)),
    frame(varint(6) + ARRAY + numbers([0, 1])),
    frame(varint(16) + text("c/nothing") + b"\1"),
    frame(varint(18) + ARRAY + region([0, 0], [4, 4]) + varint(0), bytes(range(16))),
    frame(varint(18) + ARRAY + region([0, 0], [4, 4]) + varint(0), b"short"),
    frame(varint(19) + ARRAY + region([0, 0], [4, 4])),
    frame(varint(19) + ARRAY + region([1 << 40, 0], [1 << 20, 1 << 20])),
    frame(varint(20) + ARRAY + numbers([30, 30])),
]
REQUESTS += [frame(varint(number) + bytes(range(24))) for number in range(21, 46)]


class Door:
    """An agent of its own, plain or with TLS."""

    def __init__(self, terrace: str, place: pathlib.Path, is_tls: bool) -> None:
        for name in ("root", "tier"):
            (place / name).mkdir(parents=True)
        token_file = place / "token"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [terrace, "serve", "--quiet", "--root", place / "root", "--tier", f"ram={place}/tier:64MiB"]
        command += ["--listen", f"127.0.0.1:{self.port}"]
        command += ["--token-file", token_file, "--state", place / "state", "--runtime", place / "run", *(["--tls"] if is_tls else [])]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TERRACE_")}
        self.is_tls = is_tls
        self.log = (place / "log").open("w")
        self.process = subprocess.Popen(
            [str(word) for word in command], stdout=subprocess.PIPE, stderr=self.log, text=True, env=environment
        )
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, f"the agent did not start: {(place / 'log').read_text()}"
        while True:
            try:
                self.plain().close()
                break
            except ConnectionRefusedError:
                assert self.process.poll() is None, (place / "log").read_text()
                time.sleep(0.05)
        self.token = token_file.read_text().strip()
        fingerprint = place / "token.fingerprint"
        self.fingerprint = fingerprint.read_text().strip().lower().replace(":", "") if is_tls else ""
        # The process that was started looks after the agent's.
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        self.pid = int(children[0]) if children else self.process.pid

    def is_alive(self) -> bool:
        return self.process.poll() is None and pathlib.Path(f"/proc/{self.pid}/fd").exists()

    def plain(self, patience: float = PATIENCE) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=patience)

    def open(self, patience: float = PATIENCE) -> socket.socket:
        raw = self.plain(patience)
        if not self.is_tls:
            return raw
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            wrapped = context.wrap_socket(raw)
        except BaseException:
            raw.close()
            raise
        return wrapped

    def holdings(self) -> dict[str, int]:
        base = pathlib.Path(f"/proc/{self.pid}")
        rss = next(line for line in (base / "status").read_text().splitlines() if line.startswith("VmRSS"))
        return {
            "descriptors": len(list((base / "fd").iterdir())),
            "threads": len(list((base / "task").iterdir())),
            "rss_mib": int(rss.split()[1]) >> 10,
        }

    def ask(self, request: bytes) -> bytes:
        """As an honest client: the answer's message."""
        with self.open() as connection:
            if self.is_tls:
                certificate = connection.getpeercert(binary_form=True)  # type: ignore[attr-defined]
                assert self.fingerprint in ("", hashlib.sha256(certificate).hexdigest()), "another certificate"
            connection.sendall(hello(self.token) + request)
            answer(connection)
            return answer(connection)


def exactly(connection: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        part = connection.recv(count - len(got))
        if not part:
            raise ConnectionError("the agent has hung up")
        got += part
    return got


def answer(connection: socket.socket) -> bytes:
    head = exactly(connection, 16)
    assert head[:4] == MAGIC, f"no frame: {head!r}"
    message_bytes, payload_bytes = struct.unpack("<IQ", head[4:])
    message = exactly(connection, message_bytes)
    exactly(connection, payload_bytes)
    return message


def heard(connection: socket.socket, most: int = 1 << 20) -> bytes:
    """What comes until the agent hangs up."""
    got = b""
    while len(got) < most:
        part = connection.recv(65536)
        if not part:
            break
        got += part
    return got


def half_close(connection: socket.socket) -> None:
    """SSLSocket's own would go on in the clear."""
    socket.socket.shutdown(connection, socket.SHUT_WR)


def mutated(chance: random.Random, raw: bytes) -> bytes:
    out = bytearray(raw)
    for _ in range(chance.randint(1, 4)):
        match chance.randrange(5):
            case 0 if out:
                out[chance.randrange(len(out))] = chance.randrange(256)
            case 1:
                out.insert(chance.randrange(len(out) + 1), chance.randrange(256))
            case 2 if out:
                del out[chance.randrange(len(out)) :]
            case 3 if len(out) >= 16:
                out[4:8] = struct.pack("<I", chance.choice([0, 1, 1 << 24, (1 << 24) + 1, (1 << 32) - 1]))
            case 4 if len(out) >= 16:
                out[8:16] = struct.pack("<Q", chance.choice([0, 1, 1 << 20, 1 << 30, (1 << 30) + 1, (1 << 64) - 1]))
    return bytes(out)


def tokens(chance: random.Random, token: str) -> str:
    at = chance.randrange(len(token))
    return chance.choice(
        ["", token[:-1], token + "x", token + "\0", token.swapcase() + "-", token[:at] + "~" + token[at + 1 :], "x" * 4096, " " + token]
    )


class Attack:
    def __init__(self, door: Door, seed: int) -> None:
        self.door, self.chance = door, random.Random(seed)
        self.replayed: list[bytes] = []

    def stranger(self, said: bytes, is_wrapped: bool = True) -> None:
        """Nobody who did not show the token is told anything but a refusal."""
        with self.door.open() if is_wrapped else self.door.plain() as connection:
            connection.sendall(said)
            if self.chance.random() < 0.5:
                half_close(connection)
            told = heard(connection)
        assert not self.door.token.encode() in told, "the token was told"
        if told[:4] == MAGIC:
            # Response::Done is 0, Response::Failed 1.
            assert told[16:17] == b"\x01", f"a stranger was told {told[:200]!r}"

    def noise(self) -> None:
        self.stranger(self.chance.randbytes(self.chance.randint(1, 5000)), self.chance.random() < 0.5)

    def cut_greeting(self) -> None:
        raw = hello(self.door.token)
        said = raw[: self.chance.randrange(len(raw))]
        with self.door.open() as connection:
            connection.sendall(said)
            half_close(connection)
            told = heard(connection)
        assert told[16:17] != b"\x00", "a part of a greeting is no greeting"

    def wrong_token(self) -> None:
        self.stranger(hello(tokens(self.chance, self.door.token)) + ROOT)

    def no_greeting(self) -> None:
        self.stranger(self.chance.choice(REQUESTS))

    def huge_greeting(self) -> None:
        self.stranger(frame(b"\0" + self.chance.randbytes(6000), message_bytes=self.chance.choice([6000, 1 << 24, (1 << 32) - 1])))

    def byte_by_byte(self) -> None:
        """So slowly that the deadline comes first."""
        raw = hello(self.door.token)
        with self.door.plain() as connection:
            begun = time.monotonic()
            try:
                for at in range(len(raw)):
                    connection.sendall(raw[at : at + 1])
                    time.sleep(self.chance.uniform(0.2, 1.5))
            except (ConnectionError, TimeoutError):
                assert time.monotonic() - begun < 2 * PATIENCE, "somebody who dawdled was waited for"

    def silent(self) -> None:
        with self.door.plain() as connection:
            begun = time.monotonic()
            try:
                heard(connection)
            except ConnectionError:
                pass
            assert time.monotonic() - begun < PATIENCE, "somebody who said nothing was kept"

    def reset(self) -> None:
        connection = self.door.plain()
        if self.chance.random() < 0.5:
            connection.sendall(self.chance.randbytes(20))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    def burst(self) -> None:
        found = []
        try:
            for _ in range(self.chance.randint(50, 400)):
                found.append(self.door.plain())
            time.sleep(self.chance.uniform(0, 2))
        finally:
            for connection in found:
                connection.close()

    def wrong_language(self) -> None:
        """TLS where none is spoken, and none where it is."""
        with self.door.plain() as raw:
            if self.door.is_tls:
                raw.sendall(hello(self.door.token) + ROOT)
                told = heard(raw)
                assert told[16:17] != b"\x00", "greeted in the clear, where TLS is spoken"
                return
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            try:
                context.wrap_socket(raw).close()
            except (ssl.SSLError, OSError):
                return
            raise AssertionError("TLS with a door that speaks none")

    def replay(self) -> None:
        """What an honest client has sent by TLS, said again by another: with other keys it is noise."""
        if not self.door.is_tls:
            return
        if not self.replayed:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
            spoken = context.wrap_bio(into, out)
            with self.door.plain() as raw:
                while True:
                    try:
                        spoken.do_handshake()
                        break
                    except ssl.SSLWantReadError:
                        self.replayed.append(out.read())
                        raw.sendall(self.replayed[-1])
                        into.write(raw.recv(65536))
                spoken.write(hello(self.door.token) + ROOT)
                self.replayed.append(out.read())
                raw.sendall(self.replayed[-1])
                raw.recv(65536)
        with self.door.plain() as raw:
            raw.sendall(b"".join(self.replayed))
            half_close(raw)
            told = heard(raw)
        assert MAGIC not in told, "a replayed conversation was answered"

    def greeted(self) -> None:
        """By somebody who knows the token, and then says what makes no sense."""
        said = hello(self.door.token)
        for _ in range(self.chance.randint(1, 6)):
            said += mutated(self.chance, self.chance.choice(REQUESTS))
        with self.door.open() as connection:
            connection.sendall(said)
            match self.chance.randrange(4):
                case 0:
                    return  # asked, and not waited for
                case 1:
                    connection.settimeout(self.chance.uniform(0.05, 1))
                    try:
                        heard(connection)
                    except TimeoutError:
                        pass
                case _:
                    half_close(connection)
                    heard(connection)

    def greeted_twice(self) -> None:
        with self.door.open() as connection:
            connection.sendall(hello(self.door.token) * 2 + hello(tokens(self.chance, self.door.token)) + ROOT)
            half_close(connection)
            heard(connection)

    def claims_more(self) -> None:
        """A payload of a gibibyte that never comes: nothing is allocated by what is claimed."""
        put = varint(18) + ARRAY + region([0, 0], [1 << 15, 1 << 15]) + varint(0)
        with self.door.open() as connection:
            connection.sendall(hello(self.door.token) + frame(put, b"x" * 100, payload_bytes=1 << 30))
            time.sleep(self.chance.uniform(0, 1))

    def all(self) -> list[Callable[[], None]]:
        often = [self.noise, self.cut_greeting, self.wrong_token, self.no_greeting, self.huge_greeting, self.reset, self.greeted_twice]
        rare = [self.byte_by_byte, self.silent, self.burst, self.wrong_language, self.replay, self.claims_more]
        return often * 4 + [self.greeted] * 20 + rare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--attackers", type=int, default=12, help="for each of the two doors")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--terrace", default=str(pathlib.Path(__file__).resolve().parents[2] / "target/release/terrace"))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    found: list[str] = []
    done: collections.Counter[str] = collections.Counter()
    ends = time.monotonic() + arguments.minutes * 60

    def attack(door: Door, seed: int) -> None:
        mine = Attack(door, seed)
        while time.monotonic() < ends and not found:
            act = mine.chance.choice(mine.all())
            try:
                act()
            except (ConnectionError, ssl.SSLError, TimeoutError, BrokenPipeError):
                pass
            except OSError as error:
                if error.errno not in (99, 107):
                    found.append(f"{act.__name__}: {error!r}")
            except Exception as error:  # noqa: BLE001: it ends the attack, and says so
                found.append(f"{'tls' if door.is_tls else 'plain'} {act.__name__} (seed {seed}): {error!r}")
            done[act.__name__] += 1

    with tempfile.TemporaryDirectory(prefix="terrace-attack-", dir="/dev/shm") as place:
        doors = [Door(arguments.terrace, pathlib.Path(place) / name, name == "tls") for name in ("plain", "tls")]
        try:
            for door in doors:
                door.ask(frame(varint(15) + text("c")))
                spec = varint(6) + numbers([64, 64]) + numbers([0, 0])
                door.ask(frame(varint(17) + ARRAY + spec))
            threads = [
                threading.Thread(target=attack, args=(door, arguments.seed + number), daemon=True)
                for number, door in enumerate(doors * arguments.attackers)
            ]
            for thread in threads:
                thread.start()
            early: list[dict[str, int]] = []
            slowest, asked, begun = 0.0, 0, time.monotonic()
            while time.monotonic() < ends and not found:
                time.sleep(min(5, max(0.1, ends - time.monotonic())))
                for door in doors:
                    at = time.monotonic()
                    try:
                        said = door.ask(ROOT)
                        assert str(place).encode() in said, f"the root is not {said!r}"
                    except Exception as error:  # noqa: BLE001
                        found.append(f"an honest client: {error!r}; the agent is alive: {door.is_alive()}")
                    slowest, asked = max(slowest, time.monotonic() - at), asked + 1
                if not early and time.monotonic() - begun > arguments.minutes * 60 / 3:
                    early = [door.holdings() for door in doors]
                    print(f"after a third: {early}", flush=True)
                if asked % 24 == 0:
                    print(f"{time.monotonic() - begun:.0f} s: {[door.holdings() for door in doors]} {sum(done.values())} attacks", flush=True)
            for thread in threads:
                thread.join(90)
            time.sleep(15)
            late = [door.holdings() for door in doors if door.is_alive()]
            print(f"at rest: {late}; slowest honest answer {slowest:.1f} s of {asked}", flush=True)
            print(dict(done), flush=True)
            for name, room in HOLDINGS_ROOM.items():
                for before, after in zip(early, late, strict=False):
                    if after[name] > before[name] + room:
                        found.append(f"{name} stay behind: {before} after a third of the time, {after} at rest")
            found.extend("an agent has ended" for door in doors if not door.is_alive())
            if not asked or not early:
                found.append("nobody honest was asked: too short")
        finally:
            for door in doors:
                door.process.send_signal(signal.SIGTERM)
            for door in doors:
                door.process.wait(60)
                door.log.close()
            for door in doors:
                said = pathlib.Path(door.log.name).read_text()
                if "panicked" in said:
                    found.append(said)
    for line in found:
        print(f"FOUND: {line}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
