// The behaviour of README.md in Go, which makes its own system calls.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func put(path string, flags int, text string) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|flags, 0o666)
	must(err)
	_, err = file.WriteString(text)
	must(err)
	must(file.Close())
}

func get(path string) string {
	content, err := os.ReadFile(path)
	must(err)
	return string(content)
}

func lstat(path string) fs.FileInfo {
	info, err := os.Lstat(path)
	must(err)
	return info
}

func kind(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "file"
	case mode.IsDir():
		return "directory"
	case mode&fs.ModeSymlink != 0:
		return "link"
	}
	return "other"
}

func run(path string, arguments ...string) {
	command := exec.Command(path, arguments...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	must(command.Run())
}

func choose(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

func main() {
	echo := "/bin/echo"
	if len(os.Args) > 1 {
		echo = os.Args[1]
	}
	must(os.Mkdir("work", 0o777))
	must(os.Mkdir("work/dir", 0o777))
	var lines strings.Builder
	for i := 1; i <= 3000; i++ {
		fmt.Fprintf(&lines, "line %d\n", i)
	}
	put("work/data", os.O_TRUNC, lines.String())
	put("work/data", os.O_APPEND, "the end\n")
	data := get("work/data")
	fmt.Printf("read back: %d bytes, %d lines%s\n", len(data), strings.Count(data, "\n"), choose(data == lines.String()+"the end\n", "", ", others"))

	_, err := os.OpenFile("work/data", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	fmt.Println("exclusive:", choose(errors.Is(err, fs.ErrExist), "exists", "made"))

	must(os.Chmod("work/data", 0o640))
	before := lstat("work/data")
	fmt.Printf("lstat data: %s %d %o\n", kind(before.Mode()), before.Size(), before.Mode().Perm())

	must(os.Rename("work/data", "work/renamed"))
	inode := func(info fs.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }
	_, err = os.Lstat("work/data")
	fmt.Printf("renamed: %s inode, data is %s\n", choose(inode(before) == inode(lstat("work/renamed")), "same", "other"), choose(errors.Is(err, fs.ErrNotExist), "gone", "there"))

	put("work/kept", os.O_TRUNC, "old\n")
	put("work/other", os.O_TRUNC, "other\n")
	must(os.Rename("work/other", "work/kept"))
	fmt.Print("replaced: ", get("work/kept"))

	must(os.Symlink("renamed", "work/link"))
	text, err := os.Readlink("work/link")
	must(err)
	fmt.Printf("lstat link: %s to %s\n", kind(lstat("work/link").Mode()), text)
	_, err = os.Readlink("work/renamed")
	fmt.Println("readlink renamed:", choose(errors.Is(err, syscall.EINVAL), "not a link", "a link"))

	put("work/echo", os.O_TRUNC, get(echo))
	put("work/run", os.O_TRUNC, "#!/bin/sh\necho script $1\n")
	must(os.Chmod("work/echo", 0o755))
	must(os.Chmod("work/run", 0o755))
	run("work/echo", "ran", "well")
	run("work/run", "well")

	entries, err := os.ReadDir("work")
	must(err)
	var listed []string
	for _, entry := range entries {
		listed = append(listed, entry.Name()+" "+kind(entry.Type()))
	}
	fmt.Println("list:", strings.Join(listed, ", "))

	must(os.Truncate("work/renamed", 6))
	fmt.Println("truncated:", get("work/renamed"))

	must(os.Remove("work/renamed"))
	_, err = os.Lstat("work/renamed")
	fmt.Println("removed:", choose(errors.Is(err, fs.ErrNotExist), "gone", "there"))
	fmt.Println("rmdir work:", choose(errors.Is(syscall.Rmdir("work"), syscall.ENOTEMPTY), "not empty", "removed"))

	must(os.Chdir("work/dir"))
	put("deep", os.O_TRUNC, "deep\n")
	fmt.Print("below: ../kept is ", get("../kept"))
	must(os.Chdir("../.."))

	big, err := os.Create("work/big")
	must(err)
	for i := 0; i < 300; i++ {
		_, err = big.Write(bytes.Repeat([]byte{'k'}, 1000))
		must(err)
	}
	must(big.Close())
	fmt.Println("big:", lstat("work/big").Size())
}
