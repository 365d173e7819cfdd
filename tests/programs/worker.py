"""The behaviour of README.md in Python."""
import os
import shutil
import stat
import subprocess
import sys


def put(path: str, text: str, mode: str = "w") -> None:
    with open(path, mode) as file:
        file.write(text)


def get(path: str) -> str:
    with open(path) as file:
        return file.read()


def kind(entry) -> str:
    if entry.is_symlink():
        return "link"
    return "file" if entry.is_file() else "directory" if entry.is_dir() else "other"


def fails_with(error: type[OSError], act, *arguments) -> bool:
    try:
        act(*arguments)
    except error:
        return True
    return False


def say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    echo = sys.argv[1] if len(sys.argv) > 1 else "/bin/echo"
    os.mkdir("work")
    os.mkdir("work/dir")
    lines = "".join(f"line {i}\n" for i in range(1, 3001))
    put("work/data", lines)
    put("work/data", "the end\n", "a")
    data = get("work/data")
    say(f"read back: {len(data)} bytes, {data.count(chr(10))} lines{'' if data == lines + 'the end' + chr(10) else ', others'}")

    say(f"exclusive: {'exists' if fails_with(FileExistsError, open, 'work/data', 'x') else 'made'}")

    os.chmod("work/data", 0o640)
    before = os.lstat("work/data")
    say(f"lstat data: {'file' if stat.S_ISREG(before.st_mode) else 'other'} {before.st_size} {before.st_mode & 0o7777:o}")

    os.rename("work/data", "work/renamed")
    same = os.lstat("work/renamed").st_ino == before.st_ino
    gone = fails_with(FileNotFoundError, os.lstat, "work/data")
    say(f"renamed: {'same' if same else 'other'} inode, data is {'gone' if gone else 'there'}")

    put("work/kept", "old\n")
    put("work/other", "other\n")
    os.replace("work/other", "work/kept")
    say(f"replaced: {get('work/kept').rstrip()}")

    os.symlink("renamed", "work/link")
    is_link = stat.S_ISLNK(os.lstat("work/link").st_mode)
    say(f"lstat link: {'link' if is_link else 'other'} to {os.readlink('work/link')}")
    say(f"readlink renamed: {'not a link' if fails_with(OSError, os.readlink, 'work/renamed') else 'a link'}")

    shutil.copyfile(echo, "work/echo")
    put("work/run", "#!/bin/sh\necho script $1\n")
    os.chmod("work/echo", 0o755)
    os.chmod("work/run", 0o755)
    subprocess.run(["work/echo", "ran", "well"], check=True)
    subprocess.run(["work/run", "well"], check=True)

    say("list: " + ", ".join(sorted(f"{entry.name} {kind(entry)}" for entry in os.scandir("work"))))

    os.truncate("work/renamed", 6)
    say(f"truncated: {get('work/renamed')}")

    os.remove("work/renamed")
    say(f"removed: {'gone' if fails_with(FileNotFoundError, os.lstat, 'work/renamed') else 'there'}")
    say(f"rmdir work: {'not empty' if fails_with(OSError, os.rmdir, 'work') else 'removed'}")

    os.chdir("work/dir")
    put("deep", "deep\n")
    say(f"below: ../kept is {get('../kept').rstrip()}")
    os.chdir("../..")

    with open("work/big", "wb", buffering=0) as big:
        for _ in range(300):
            big.write(b"k" * 1000)
    say(f"big: {os.lstat('work/big').st_size}")


main()
