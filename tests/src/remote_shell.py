"""A remote shell between nodes of one machine: what ssh and srun do between real ones.

    python3 remote_shell.py serve SOCKET                      on the machine itself; nodes' names and processes come by `DIR/NAME`
    python3 remote_shell.py SOCKET NAME COMMAND ARGUMENT...   on a node
    python3 remote_shell.py ssh SOCKET [FLAG]... NAME WORD... as ssh: the words are a shell's, and no environment is passed on

The client gives the server its standard input and output, its environment and its directory; the server starts the command in the
node's namespaces and gives back how it ended. A node's first process is the text of the file NAME beside the socket.
"""
import json
import os
import socket
import subprocess
import sys
import threading


def serve(path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection, os.path.dirname(path)), daemon=True).start()


def answer(connection, place):
    first, fds, _, _ = socket.recv_fds(connection, 65536, 3)
    rest = connection.makefile("rb")
    asked = json.loads(first + rest.readline() if not first.endswith(b"\n") else first)
    try:
        with open(os.path.join(place, asked["node"])) as file:
            process = file.read().strip()
    except OSError:
        os.write(fds[2], b"remote shell: no such node\n")
        for fd in fds:
            os.close(fd)
        connection.sendall(b"255\n")
        return
    enter = ["nsenter", "-t", process, "-m", "-n", "-p", "-u", "--wdns=" + asked["directory"], "--"]
    child = subprocess.Popen(enter + asked["command"], stdin=fds[0], stdout=fds[1], stderr=fds[2], env=asked["environment"],
                             start_new_session=True)
    for fd in fds:
        os.close(fd)
    connection.sendall(b"%d\n" % child.wait())


def ask(path, node, command, environment, directory):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    asked = {"node": node, "command": command, "environment": environment, "directory": directory}
    socket.send_fds(connection, [json.dumps(asked).encode() + b"\n"], [0, 1, 2])
    for fd in range(3):
        os.close(fd)
    code = int(connection.makefile("rb").readline() or b"255")
    os._exit(128 - code if code < 0 else code)


def ask_as_ssh(path, words):
    while words[0].startswith("-"):
        words = words[2:] if words[0] in ("-o", "-l", "-p") else words[1:]
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    ask(path, words[0], ["sh", "-c", " ".join(words[1:])], environment, "/")


if sys.argv[1] == "serve":
    serve(sys.argv[2])
elif sys.argv[1] == "ssh":
    ask_as_ssh(sys.argv[2], sys.argv[3:])
else:
    ask(sys.argv[1], sys.argv[2], sys.argv[3:], dict(os.environ), os.getcwd())
