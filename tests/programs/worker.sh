# The behaviour of README.md for any POSIX shell, with the commands on PATH, or with those of the busybox that $BUSYBOX names.
set -eu
echo=${1:-/bin/echo}

if [ -n "${BUSYBOX:-}" ]; then
    for name in awk cat chmod cmp cp find ln ls mkdir mv printf readlink rm rmdir sort stat tr truncate wc; do
        eval "$name() { \"\$BUSYBOX\" $name \"\$@\"; }"
    done
fi

kind() {
    case $(stat -c %F "$1") in
        regular*) echo file ;;
        symbolic*) echo link ;;
        *) stat -c %F "$1" ;;
    esac
}

mkdir work
mkdir work/dir
awk 'BEGIN { for (i = 1; i <= 3000; i++) print "line " i }' > work/data
echo "the end" >> work/data
equal=$(awk 'BEGIN { for (i = 1; i <= 3000; i++) print "line " i; print "the end" }' | cmp - work/data || echo ", others")
echo "read back: $(wc -c < work/data | tr -d ' ') bytes, $(wc -l < work/data | tr -d ' ') lines$equal"

if (set -C; : > work/data) 2> /dev/null; then echo "exclusive: made"; else echo "exclusive: exists"; fi

chmod 640 work/data
echo "lstat data: $(kind work/data) $(stat -c '%s %a' work/data)"

inode=$(stat -c %i work/data)
mv work/data work/renamed
[ "$inode" = "$(stat -c %i work/renamed)" ] && same=same || same=other
if stat work/data > /dev/null 2>&1; then is=there; else is=gone; fi
echo "renamed: $same inode, data is $is"

echo old > work/kept
echo other > work/other
mv work/other work/kept
echo "replaced: $(cat work/kept)"

ln -s renamed work/link
echo "lstat link: $(kind work/link) to $(readlink work/link)"
if readlink work/renamed > /dev/null; then echo "readlink renamed: a link"; else echo "readlink renamed: not a link"; fi

cp "$echo" work/echo
printf '#!/bin/sh\necho script $1\n' > work/run
chmod 755 work/echo work/run
work/echo ran well
work/run well

# By the types that the listing gives.
list=$( (
    find work -mindepth 1 -maxdepth 1 -type f | while read -r path; do echo "${path#work/} file"; done
    find work -mindepth 1 -maxdepth 1 -type d | while read -r path; do echo "${path#work/} directory"; done
    find work -mindepth 1 -maxdepth 1 -type l | while read -r path; do echo "${path#work/} link"; done
) | LC_ALL=C sort | tr '\n' ',')
echo "list: ${list%,}" | awk '{ gsub(/,/, ", "); print }'

truncate -s 6 work/renamed
echo "truncated: $(cat work/renamed)"

rm work/renamed
if stat work/renamed > /dev/null 2>&1; then echo "removed: there"; else echo "removed: gone"; fi
if rmdir work 2> /dev/null; then echo "rmdir work: removed"; else echo "rmdir work: not empty"; fi

cd work/dir
echo deep > deep
echo "below: ../kept is $(cat ../kept)"
cd ../..

awk 'BEGIN { for (i = 0; i < 300; i++) { for (j = 0; j < 1000; j++) printf "k" } }' > work/big
echo "big: $(stat -c %s work/big)"
