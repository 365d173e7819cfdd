"""One node's hands: reads a command a line (JSON) on stdin, does it in the working directory, answers with a line of JSON."""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import time

PIECE = 1 << 20
NEXT = bytes((value + 1) % 256 for value in range(256))


def write(name: str, size: int) -> None:
    with open(name, "wb", buffering=0) as file:
        for start in range(0, size, PIECE):
            file.write(b"\7" * min(PIECE, size - start))


def read(name: str, buffer: bytearray) -> int:
    done = 0
    with open(name, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            done += count
    return done


def wrong_cells(name: str) -> int:
    """Bytes of a file that are not those that `write` wrote."""
    with open(name, "rb") as file:
        return sum(len(piece) - piece.count(7) for piece in iter(lambda: file.read(PIECE), b""))


def act(command: dict) -> dict:
    what, begin = command["do"], time.monotonic()
    if what == "write":
        for name in command["names"]:
            write(name, command["size"])
    elif what == "read":
        buffer, times = bytearray(min(PIECE, command["size"] + 1)), []
        for name in command["names"]:
            start = time.monotonic()
            got = read(name, buffer)
            times.append(time.monotonic() - start)
            if got != command["size"]:
                return {"error": f"{name} has {got} bytes, not {command['size']}"}
        # Not among what is timed.
        wrong = [name for name in command["names"] if wrong_cells(name)]
        return {"error": f"other bytes in {wrong}"} if wrong else {"times": times}
    elif what == "stat":
        count = sum(entry.stat(follow_symlinks=False).st_size == command["size"] for entry in os.scandir(command["directory"]))
        return {"seconds": time.monotonic() - begin, "count": count}
    elif what == "create":
        for number in range(command["count"]):
            with open(f"{command['directory']}/{command['prefix']}{number}", "wb", buffering=0) as file:
                file.write(b"x" * 100)
    elif what == "increment":
        with open(command["from"], "rb", buffering=0) as source, open(command["to"], "wb", buffering=0) as target:
            while piece := source.read(PIECE):
                target.write(piece.translate(NEXT))
    elif what == "compute":
        block = bytes(PIECE)
        for _ in range(command["size"] // PIECE):
            block = block.translate(NEXT)
    elif what == "check":
        with open(command["name"], "rb") as file:
            return {"value": file.read(1)[0], "size": os.fstat(file.fileno()).st_size}
    elif what == "packets":
        with open("/proc/self/net/dev", encoding="ascii") as interfaces:
            rows = [line.split(":") for line in interfaces if ":" in line and not line.strip().startswith("lo:")]
        return {"packets": sum(int(row[1].split()[1]) + int(row[1].split()[9]) for row in rows)}
    elif what == "serve":
        # A stream of the same bytes, from memory: the link and the kernel, and no file.
        listener = socket.create_server((command["host"], command["port"]))
        print(json.dumps({"listening": True}), flush=True)
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        piece = b"\7" * PIECE
        while request := connection.recv(8):
            left = int.from_bytes(request, "little")
            while left:
                connection.sendall(memoryview(piece)[: min(left, PIECE)])
                left -= min(left, PIECE)
        return {}
    elif what == "receive":
        connection = socket.create_connection((command["host"], command["port"]))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer, times = bytearray(PIECE), []
        for _ in range(command["count"]):
            start, left = time.monotonic(), command["size"]
            connection.sendall(left.to_bytes(8, "little"))
            while left:
                got = connection.recv_into(buffer, min(left, PIECE))
                if not got:
                    return {"error": "the stream's other end has gone"}
                left -= got
            times.append(time.monotonic() - start)
        return {"times": times}
    return {"seconds": time.monotonic() - begin}


for line in sys.stdin:
    try:
        answer = act(json.loads(line))
    except OSError as error:
        answer = {"error": f"{errno.errorcode.get(error.errno or 0, error)}: {error.filename}"}
    print(json.dumps(answer), flush=True)
