#!/bin/sh
# Removes build/, but first what a demo that was killed may have left mounted there.
set -eu
cd "$(dirname "$0")/.."
mount=build/demo/mount
if mountpoint -q "$mount" 2>/dev/null; then
    umount "$mount" 2>/dev/null || fusermount3 -u "$mount"
fi
[ ! -e build ] || rm -rf --one-file-system build
