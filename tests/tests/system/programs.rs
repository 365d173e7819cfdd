//! Real programs give the same results natively and under `terrace run`, while the mover works and the fast tier is too small
//! for the data. docs/reference/programs.md lists them.

use terrace_tests::{Comparison, Wish, Workplace, checkout, fetched, skipped};

/// Files of many sizes, 12 MiB in all (the fast tier has 4), with links, modes, times, odd names; made natively.
const TREE: &str = r#"
    mkdir -p in/a/b/c in/empty 'in/with space' out
    for i in 1 2 3 4 5 6; do head -c $((i * 500000)) /dev/zero | openssl enc -aes-128-ctr -K 0000000000000000000000000000000$i -iv 0000000000000000000000000000000$i > in/a/big$i; done
    for i in $(seq 200); do echo "line $i" > in/a/b/small$i.txt; done
    printf 'x' > "$(printf 'in/with space/new\nline')"; printf 'y' > 'in/with space/ü*?[x]'; : > in/a/nothing
    ln -s a/big1 in/link; ln -s ../nowhere in/dangling; ln -s . in/a/self; ln in/a/big2 in/a/b/hard; mkfifo in/fifo
    chmod 640 in/a/big1; chmod 444 in/a/big3; chmod 4755 in/a/nothing; chmod 711 in/a/b
    truncate -s 3M in/a/sparse; printf end >> in/a/sparse
    find in -exec touch -h -d '2020-02-03 04:05:06.123456789' {} +
"#;

fn with_tree() -> Comparison {
    Comparison::new().prepare(TREE)
}

// What programs see: everything about a tree except inodes and the clock.
const LOOK: &str = r#"
    look() { find "$1" -printf '%P %y %s %m %n %u %l %TY-%Tm-%Td\n' | sort; find "$1" -type f -print0 | sort -z | xargs -0 sha256sum; }
"#;

fn agree(comparison: Comparison, script: &str) {
    comparison.agrees_and_uses_the_tier(&format!("{LOOK}\n{script}"));
}

#[test]
fn cp_a_copies_a_tree_whole() {
    agree(with_tree(), "cp -a in out/copy; look out/copy; cp -a out/copy out/again; look out/again");
}

#[test]
fn cp_variants_copy_links_attributes_and_parents() {
    agree(
        with_tree(),
        "cp -rL in/a/b out/b; cp -l in/a/big1 out/hard; cp -s $PWD/in/a/big1 out/soft; cp --parents in/a/big4 out
         cp --sparse=always in/a/sparse out/sparse; cp -u in/a/big5 out/big5; cp -u in/a/big5 out/big5; cp -n in/a/big6 out/big5
         cp --backup=numbered in/a/big6 out/big5; cp -p in/a/big3 out/big3; cp --remove-destination in/a/big1 out/big3
         cp --reflink=auto in/a/big2 out/reflink; look out",
    );
}

#[test]
fn mv_renames_files_and_directories_over_each_other() {
    agree(
        with_tree(),
        "cp -r in/a out/a; mv out/a/big1 out/a/big2; mv out/a/b out/b2; mv out/a/big3 'out/a new name'; mv -f out/a/big4 out/b2/
         mkdir out/target; mv out/b2 out/target; mv -T out/target out/final; mv -n out/a/big5 out/a/big6 || true
         mv $SCRATCH/../scratch/nothing out 2>/dev/null || echo none; look out",
    );
}

#[test]
fn mv_takes_files_into_and_out_of_the_root() {
    agree(
        with_tree(),
        "cp -r in/a out/a; mv out/a/big1 $SCRATCH/big1; mv out/a/b $SCRATCH/b; look $SCRATCH; mv $SCRATCH/b out/b; mv $SCRATCH/big1 out/a/big2; look out",
    );
}

#[test]
fn rm_r_removes_everything_and_nothing_comes_back() {
    agree(
        with_tree(),
        "cp -r in/a out/a; cp -r in/a out/b; rm -r out/a; ls -A out; rm -rf out/b/b out/b/big1; sleep 0.3; look out; rm out/b/big2; [ ! -e out/b/big2 ]",
    );
}

#[test]
fn ln_makes_hard_and_symbolic_links_to_new_files() {
    agree(
        with_tree(),
        "cp in/a/big1 out/f; ln out/f out/g; ln -s f out/s; ln -s $PWD/out/f out/abs; echo more >> out/g; cmp out/f out/s; cmp out/f out/abs
         [ out/f -ef out/g ]; stat -c '%h %s %F' out/f out/g out/s; ln -f out/g out/h; rm out/f; stat -c %h out/h; readlink out/s; readlink -f out/s; ls -l out | awk '{print $1,$2,$5,$9,$10,$11}'",
    );
}

#[test]
fn du_and_df_count_what_is_there() {
    agree(
        with_tree(),
        "cp -r in/a out/a; du -s --apparent-size out/a/b out/a/big1; du -a --apparent-size out | sort; du -l --apparent-size -b out/a/big*; df --output=target out | tail -1",
    );
}

#[test]
fn ls_shows_regular_files_with_their_sizes() {
    agree(
        with_tree(),
        "cp -a in out/copy; ls -lR --time-style=full-iso out/copy | grep -v '^total'; ls -F out/copy out/copy/a; ls -s out/copy/a/big1 | wc -l
         ls --color=always -d out/copy/a/big1; ls -lS out/copy/a | awk '{print $9}'",
    );
}

#[test]
fn touch_creates_files_and_sets_times() {
    agree(
        with_tree(),
        "touch out/new; touch -d '2001-02-03 04:05:06.7' out/old; touch -r in/a/big1 out/ref; touch -a -d 2002-01-01 out/old; touch -c out/none
         stat -c '%n %y %s' out/old out/ref; stat -c %x out/old; cp in/a/big2 out/f; touch -d 1999-09-09 out/f; sleep 0.3; stat -c %y out/f; ls out",
    );
}

#[test]
fn truncate_shrinks_and_grows_files() {
    agree(
        with_tree(),
        "cp in/a/big4 out/f; truncate -s 1000 out/f; sha256sum out/f; truncate -s +5000 out/f; sha256sum out/f; truncate -s 0 out/f; stat -c %s out/f
         truncate -s 20M out/sparse; stat -c %s out/sparse; truncate -s -1M out/sparse; truncate -r in/a/big1 out/sparse; sleep 0.2; truncate -s 777 in/a/big6; sha256sum in/a/big6; look out",
    );
}

#[test]
fn install_copies_with_mode_and_directories() {
    agree(
        with_tree(),
        "install -m 751 in/a/big1 out/prog; install -d -m 700 out/x/y; install -D -p -m 600 in/a/big3 out/x/y/z/f; install -C in/a/big1 out/prog; install -b in/a/big2 out/prog; look out",
    );
}

#[test]
fn text_tools_read_and_write_in_place() {
    agree(
        with_tree(),
        "cat in/a/b/*.txt > out/all; sort -R --random-source=in/a/big1 out/all > out/mixed; sort out/mixed -o out/mixed; sed -i 's/line/LINE/' out/mixed
         split -l 50 out/all out/part-; head -c 3M in/a/big6 | tee out/t1 out/t2 | wc -c; tac out/all > out/tac; shuf --random-source=in/a/big1 out/all | head -3; csplit -s -f out/c- out/all 20 40
         grep -rc 'line 1' out | sort; awk '{print > \"out/awk-\" NR % 7}' out/all; paste out/awk-* | tail -2; xargs -a out/all -n 10 echo > out/x; comm -12 out/all out/tac 2>/dev/null | head -2 || true; look out",
    );
}

#[test]
fn dd_writes_blocks_at_offsets() {
    agree(
        with_tree(),
        "dd if=in/a/big6 of=out/d bs=64k 2>/dev/null; dd if=in/a/big1 of=out/d bs=1000 seek=77 conv=notrunc 2>/dev/null; dd if=out/d of=out/e bs=4k skip=3 count=9 oflag=append conv=notrunc 2>/dev/null
         dd if=/dev/zero of=out/hole bs=1 count=1 seek=5M 2>/dev/null; dd if=in/a/big5 of=out/s bs=256k conv=sparse,fsync 2>/dev/null; dd if=in/a/big5 of=out/direct bs=4k count=100 oflag=sync 2>/dev/null; look out",
    );
}

#[test]
fn find_walks_and_acts_on_every_file() {
    agree(
        with_tree(),
        "cp -a in out/in; find out -type f | sort; find out -type l | sort; find out -links +1 | sort; find out -size +1M | sort; find out -newer in/a/big1 -type d | sort; find out -samefile out/in/a/big2 | sort
         find out -name 'small1*' -delete; find out -perm 640; find out -type f -name '*.txt' -exec wc -c {} + | tail -1; find -L out -maxdepth 2 -type f | sort; find out -depth -empty | sort; find out -execdir true {} +",
    );
}

#[test]
fn tar_packs_and_unpacks_a_tree() {
    agree(
        with_tree(),
        "tar -cf out/t.tar in; mkdir out/x; tar -xpf out/t.tar -C out/x; look out/x; tar -czf out/t.tgz -C out/x .; tar -tzf out/t.tgz | sort; rm out/t.tgz; tar -df out/t.tar -C out/x; tar -rf out/t.tar -C in/a big1; tar -tvf out/t.tar | awk '{print $1,$3,$6}' | sort | tail -3
         mkdir out/y; (cd in && tar -cSf - .) | (cd out/y && tar -xf -); look out/y",
    );
}

#[test]
fn rsync_mirrors_a_tree_and_finds_nothing_to_do_again() {
    agree(
        with_tree(),
        "rsync -aH in/ out/m/; look out/m; rsync -aHi in/ out/m/; echo changed > out/m/a/big1; rm out/m/a/big2; touch out/m/extra; rsync -aHic --delete in/ out/m/ | sort; rsync -a --inplace --no-whole-file in/a/big6 out/m/a/big5; rsync -a --append in/a/big6 out/m/a/big4 || true; look out/m",
    );
}

#[test]
fn git_clones_commits_and_collects_garbage() {
    let comparison = Comparison::new().prepare(
        "git init -q -b main up; cd up; for i in $(seq 150); do mkdir -p d$((i % 9)); seq $i 500 > d$((i % 9))/f$i; done; head -c 3000000 /dev/zero | openssl enc -aes-128-ctr -K 00000000000000000000000000000001 -iv 00000000000000000000000000000001 > bin
         git add .; git commit -qm one; git mv d1/f1 d1/g1; git rm -q d2/f2; git commit -qam two",
    );
    agree(
        comparison,
        "git clone -q up work; cd work; git status --short; git log --format='%H %s'; echo x >> d3/f3; echo new > n; git status --short; git add -A; git commit -qm three; git log -1 --format=%H
         git status; git gc -q; git fsck --full --strict; git checkout -q -b side HEAD~1; echo s > s; git add s; git commit -qm side; git checkout -q main; git merge -q -m merged side; git log --oneline --graph
         git stash -q || true; git tag v1; git archive v1 | sha256sum; git diff --stat HEAD~2; git reset -q --hard HEAD~1; git clean -fdq; git status --short; git count-objects | cut -d' ' -f1; git worktree add -q ../wt v1; git -C ../wt status --short
         cd ..; git clone -q --bare work bare.git; git -C bare.git gc -q --aggressive --prune=now; git -C bare.git fsck; git -C work push -q ../bare.git main:pushed; git -C bare.git rev-parse pushed; find work -name '*.lock'; rm -rf work/.git/index.bak wt/.git/x
         find . -path '*/.git/index' -delete; find . -path '*/index' -delete; find . -path '*/logs' -prune -exec rm -r {} +; rm -r bare.git/config work/.git/config work/.git/worktrees wt/.git",
    );
}

const C_PROJECT: &str = r#"
    mkdir -p src/sub
    printf 'all: prog\nprog: main.o sub/lib.a\n\tgcc -o $@ main.o sub/lib.a -lm\n%%.o: %%.c h.h\n\tgcc -O1 -c -o $@ $<\nsub/lib.a: sub/x.o sub/y.o\n\tar rcsD $@ $^\nsub/%%.o: sub/%%.c h.h\n\tgcc -I. -O1 -fPIC -c -o $@ $<\nplug.so: sub/x.o\n\tgcc -shared -o $@ $<\nclean:\n\trm -f prog *.o sub/*.o sub/*.a plug.so\n' > src/Makefile
    printf 'int x(int); int y(int);\n' > src/h.h
    printf '#include <stdio.h>\n#include <dlfcn.h>\n#include "h.h"\nint main(int c,char**v){ if(c>1){void*p=dlopen(v[1],RTLD_NOW); if(!p){puts(dlerror());return 1;} int(*f)(int)=(int(*)(int))dlsym(p,"x"); printf("plug %%d\\n",f(2));} printf("%%d %%d\\n",x(3),y(4)); return 0; }\n' > src/main.c
    printf '#include "h.h"\nint x(int a){return a*a;}\n' > src/sub/x.c; printf '#include "h.h"\nint y(int a){return a+1;}\n' > src/sub/../sub/y.c
    head -c 2000000 /dev/zero | tr '\0' 'z' > src/filler
"#;

#[test]
fn gcc_and_make_build_a_project_that_runs() {
    agree(
        Comparison::new().prepare(C_PROJECT),
        "cd src; make -s; ./prog; make -s plug.so; ./prog ./plug.so; make -q prog && echo up to date; sleep 0.05; touch h.h; make -s -j2; ./prog; cp prog prog2; ./prog2; PATH=$PWD:$PATH prog; sleep 0.3; ./prog $PWD/plug.so
         make -s clean; ls; make -s; strip prog; ./prog; gcc -I. -O2 -flto -save-temps -o lto main.c sub/x.c sub/y.c 2>/dev/null; ./lto; rm -f *.i *.s *.res *.o; find . -name '*.wpa*' -delete; find . -name '*lto*' ! -name lto -delete",
    );
}

fn python(comparison: Comparison, code: &str) {
    let interpreter = fetched("tests-venv/bin/python");
    let script = format!("cat > $SCRATCH/t.py <<'PY'\n{code}\nPY\n{} $SCRATCH/t.py", interpreter.display());
    agree(comparison, &script);
}

#[test]
fn python_os_calls_agree() {
    python(
        with_tree(),
        r#"
import os, stat
os.chdir("out")
fd = os.open("f", os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o640); os.write(fd, b"a" * 100000); os.pwrite(fd, b"zz", 7); os.lseek(fd, 5, 0); print(os.read(fd, 5))
st = os.fstat(fd); s2 = os.lstat("f"); print(st.st_ino == s2.st_ino, st.st_dev == s2.st_dev, stat.filemode(s2.st_mode), s2.st_size, s2.st_nlink)
os.ftruncate(fd, 500); os.fchmod(fd, 0o600); os.utime("f", ns=(10**18, 2 * 10**18)); os.close(fd)
print(os.stat("f").st_mtime_ns, os.path.islink("f"), os.path.isfile("f"), os.path.realpath("f") == os.getcwd() + "/f")
try: os.readlink("f")
except OSError as e: print(e.errno)
try: os.open("f", os.O_CREAT | os.O_EXCL)
except OSError as e: print(e.errno)
fd = os.open("f", os.O_RDONLY | os.O_NOFOLLOW); print(len(os.read(fd, 1000)), os.path.realpath(f"/proc/self/fd/{fd}") == os.path.realpath("f")); os.close(fd)
os.setxattr("f", "user.k", b"v"); print(os.listxattr("f"), os.getxattr("f", "user.k"))
d = os.open(".", os.O_RDONLY); os.mkdir("d", dir_fd=d); f = os.open("d/g", os.O_CREAT | os.O_WRONLY, dir_fd=d); os.write(f, b"g"); os.close(f); os.rename("d/g", "d/h", src_dir_fd=d, dst_dir_fd=d)
for e in sorted(os.scandir("d"), key=lambda e: e.name): print(e.name, e.is_file(follow_symlinks=False), e.is_symlink(), e.stat(follow_symlinks=False).st_size, e.inode() == os.lstat(e.path).st_ino)
print(sorted(os.listdir(d)), [(r, sorted(x), sorted(y)) for r, x, y in os.walk(".")], [len(t[2]) for t in os.fwalk(".")])
os.link("f", "hard"); os.replace("hard", "f2"); os.symlink("f2", "sym"); print(os.readlink("sym"), os.stat("f2").st_nlink, os.access("f2", os.W_OK)); os.remove("f2"); print(os.path.exists("sym"), os.path.lexists("sym"))
os.sendfile; src = os.open("../in/a/big2", os.O_RDONLY); dst = os.open("sent", os.O_CREAT | os.O_WRONLY); n = os.sendfile(dst, src, 0, 300000); m = os.copy_file_range(src, dst, 200000); os.posix_fallocate(dst, 0, 900000); print(n, m, os.stat("sent").st_size)
os.truncate("sent", 400000); os.chmod("sent", 0o604); os.statvfs("sent"); print(os.pathconf("sent", "PC_NAME_MAX"))
"#,
    );
}

#[test]
fn python_pathlib_and_shutil_agree() {
    python(
        with_tree(),
        r#"
import pathlib, shutil, filecmp, os
p = pathlib.Path("out"); (p / "t").mkdir(); (p / "t/x.txt").write_text("hé"); (p / "t/b").write_bytes(bytes(range(256)) * 9000)
print((p / "t/x.txt").read_text(), (p / "t/b").stat().st_size, (p / "t/x.txt").is_symlink(), (p / "t/b").resolve().relative_to(p.resolve()))
shutil.copytree("in/a", p / "a", symlinks=True); shutil.copy2("in/a/big1", p / "big1"); shutil.move(p / "t", p / "u"); shutil.move(str(p / "u/b"), str(p / "moved"))
print(filecmp.cmp("in/a/big1", p / "big1", shallow=False), sorted(str(q) for q in p.rglob("*.txt"))[:3], sorted(q.name for q in p.glob("*")), shutil.disk_usage(p).total > 0)
shutil.make_archive(str(p / "z"), "zip", "in/a/b"); shutil.unpack_archive(p / "z.zip", p / "unz"); os.remove(p / "z.zip"); shutil.rmtree(p / "a/b"); print(len(list((p / "unz").iterdir())))
(p / "moved").rename(p / "r"); (p / "r").chmod(0o600); (p / "r").touch(); (p / "s").symlink_to("r"); (p / "h").hardlink_to(p / "r"); print((p / "s").samefile(p / "h"), (p / "r").owner()); (p / "s").unlink(); (p / "none").unlink(missing_ok=True)
"#,
    );
}

#[test]
fn python_tempfile_agrees() {
    python(
        with_tree(),
        r#"
import tempfile, os
tempfile.tempdir = os.path.abspath("out")
with tempfile.TemporaryFile() as f: f.write(b"x" * 6000000); f.seek(100); print(len(f.read()), os.listdir("out"))
with tempfile.NamedTemporaryFile() as f: f.write(b"y" * 10); f.flush(); print(os.path.getsize(f.name), oct(os.stat(f.name).st_mode), os.path.dirname(f.name) == tempfile.tempdir)
with tempfile.NamedTemporaryFile(delete=False, suffix=".keep") as f: f.write(b"kept" * 100000)
os.rename(f.name, "out/kept")
with tempfile.TemporaryDirectory() as d:
    open(d + "/f", "w").write("1"); print(os.listdir(d))
with tempfile.SpooledTemporaryFile(max_size=10) as f: f.write(b"z" * 100); f.seek(0); print(len(f.read()))
fd, n = tempfile.mkstemp(); os.write(fd, b"m"); os.close(fd); os.replace(n, "out/m"); print(sorted(os.listdir("out")))
"#,
    );
}

#[test]
fn numpy_memmap_writes_and_reads_back() {
    python(
        with_tree(),
        r#"
import numpy as np, os, hashlib
m = np.memmap("out/m", dtype="f4", mode="w+", shape=(700, 1000)); m[:] = np.arange(700000).reshape(700, 1000); m[3] += 1; m.flush(); del m
r = np.memmap("out/m", dtype="f4", mode="r+", shape=(700, 1000)); r[5, 5] = -1; print(float(r.sum(dtype="f8"))); del r
np.save("out/a.npy", np.arange(100000)); a = np.load("out/a.npy", mmap_mode="r+"); a[7] = 0; a.flush(); print(int(a.sum())); del a
np.savez("out/z.npz", x=np.ones(1000), y=np.zeros(3)); print(sorted(np.load("out/z.npz").files)); os.remove("out/z.npz")
np.arange(300000, dtype="u2").tofile("out/raw"); print(int(np.fromfile("out/raw", dtype="u2").sum()))
c = np.memmap("in/a/big4", dtype="u1", mode="c"); c[:] = 0; print(int(c.sum())); w = np.memmap("in/a/big5", dtype="u1", mode="r+"); w[1000:2000] = 7; w.flush()
print(hashlib.sha256(open("in/a/big5", "rb").read()).hexdigest(), hashlib.sha256(open("out/m", "rb").read()).hexdigest())
"#,
    );
}

#[test]
fn python_multiprocessing_writes_from_many_processes() {
    python(
        with_tree(),
        r#"
import multiprocessing as mp, os, hashlib
def work(i):
    data = bytes([i]) * (300000 + i)
    with open(f"out/w{i}.tmp", "wb") as f: f.write(data)
    os.rename(f"out/w{i}.tmp", f"out/w{i}")
    with open("out/log", "ab", 0) as f: f.write(b"%04d\n" % i)
    return hashlib.sha256(open(f"out/w{i}", "rb").read()).hexdigest()
if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        with mp.get_context(method).Pool(3) as pool: print(method, hashlib.sha256("".join(pool.map(work, range(24))).encode()).hexdigest())
    lines = open("out/log").read().split(); print(len(lines)); open("out/log", "w").write("\n".join(sorted(lines)))
"#,
    );
}

#[test]
fn nibabel_reads_and_writes_images() {
    python(
        Comparison::new(),
        r#"
import nibabel as nib, numpy as np, hashlib, os
data = (np.arange(64 * 64 * 40 * 6) % 977).astype("i2").reshape(64, 64, 40, 6)
nib.save(nib.Nifti1Image(data, np.eye(4)), "a.nii")
for i in range(5):
    img = nib.load("a.nii" if i == 0 else f"it{i-1}.nii"); out = np.asanyarray(img.dataobj) + 1
    nib.save(nib.Nifti1Image(out.astype("i2"), img.affine, img.header), f"it{i}.nii")
nib.save(nib.load("it4.nii"), "m.mgz"); print(nib.load("m.mgz").shape); os.remove("m.mgz")
nib.save(nib.Nifti1Pair(data[..., 0], np.eye(4)), "p.img"); print(sorted(os.listdir(".")))
part = nib.load("it4.nii").slicer[..., 2:4]; print(part.shape, int(np.asanyarray(part.dataobj).sum())); print(hashlib.sha256(open("it4.nii", "rb").read()).hexdigest())
"#,
    );
}

#[test]
fn sqlite_in_wal_mode_keeps_its_database() {
    agree(
        Comparison::new(),
        r#"sqlite3 t.db 'PRAGMA journal_mode=WAL; CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);'
           for i in 1 2 3 4; do sqlite3 t.db "PRAGMA busy_timeout=20000; WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<5000) INSERT INTO t(b) SELECT hex(x*$i)||'$i' FROM c;" > /dev/null & done; wait
           sqlite3 t.db "SELECT count(*), sum(a), sum(length(b)) FROM t; DELETE FROM t WHERE b LIKE '%71'; PRAGMA wal_checkpoint(TRUNCATE); VACUUM; PRAGMA integrity_check;"
           ls; sqlite3 t.db 'PRAGMA journal_mode=DELETE; UPDATE t SET b = b || 1; SELECT count(*) FROM t; PRAGMA integrity_check'; ls; sqlite3 t.db 'SELECT b FROM t ORDER BY b' > dump; sqlite3 t.db '.backup b.db'; sqlite3 b.db 'PRAGMA integrity_check'; rm t.db b.db"#,
    );
}

#[test]
fn bash_globs_and_redirections_agree() {
    agree(
        with_tree(),
        r#"shopt -s globstar nullglob dotglob; cd out; for i in 1 2 3; do echo $i > "f $i"; done; echo f*; cat < 'f 1' > g; cat f* >> g 2>> err; { echo a; echo b >&2; (echo c); } > both 2>&1; cat both
           exec 5<> rw; echo hello >&5; echo world >&5; exec 5>&-; cat rw; set -C; echo no > rw 2> /dev/null || echo refused; echo yes >| rw; set +C; : > g; [ -s g ] || echo empty; [ -f rw -a ! -L rw ] && echo file; [ -x rw ] || echo not executable
           printf '#!/bin/sh\necho "script $0 $1"\n' > s; chmod +x s; ./s arg; PATH=.:$PATH s two; printf 'echo dash\n' | dash; source <(echo 'echo sourced'); diff <(sort both) <(sort -r both) || true
           cat <<< here > h; mkdir -p x/y; for f in **/*; do echo "$f"; done; cd x/y; echo up > ../../up; cd ..; pwd -P | sed 's:.*/out:out:'; echo $OLDPWD | sed 's:.*/out:out:'; cat ../up ./../rw .//..//rw; while read -r l; do echo "<$l>"; done < ../both; mapfile -t m < ../both; echo ${#m[@]}
           (cd ..; umask 077; echo m > private; stat -c %a private); head -c 5M /dev/zero > ../large & wait; stat -c %s ../large; exec 6> ../appended; (echo 1 >&6; echo 2 >&6); echo 3 >&6; exec 6>&-; cat ../appended"#,
    );
}

#[test]
fn archives_and_compressors_replace_files() {
    agree(
        with_tree(),
        "cp -a in/a out/a; gzip -n out/a/big1; gunzip -k out/a/big1.gz; xz -T1 out/a/big5; bzip2 -k out/a/big4; md5sum out/a/big* | sort; zcat out/a/big1.gz | cmp - in/a/big1; chmod 644 out/a/big3; gzip -f out/a/big3 -n; look out",
    );
}

#[test]
fn attributes_and_access_lists_travel() {
    agree(
        with_tree(),
        "cp in/a/big1 out/f; setfattr -n user.k -v v1 out/f; setfacl -m u:daemon:r out/f; chmod g-w out/f; getfattr -d out/f; getfacl -n out/f; sleep 0.4; getfattr -d out/f; getfacl -n out/f; cp -a out/f out/g; getfacl -n out/g; setfattr -x user.k out/g; chown daemon:daemon out/g; stat -c '%U %G %a' out/g; mkdir out/d; setfacl -d -m u:daemon:rw out/d; echo x > out/d/inherits; getfacl -n out/d/inherits; mkdir -m 2775 out/sg; chgrp daemon out/sg; echo y > out/sg/f; stat -c %G out/sg/f",
    );
}

#[test]
fn the_whole_montage_workflow_gives_its_known_mosaic() {
    let kit = std::env::var_os("TERRACE_MONTAGE_KIT")
        .map_or_else(|| checkout().parent().unwrap().join("shared/montage-kit"), std::path::PathBuf::from);
    if !kit.join("run_montage.sh").exists() {
        skipped(&format!("no montage kit at {}; set TERRACE_MONTAGE_KIT to its directory", kit.display()));
        return;
    }
    let place: Workplace = Wish::default().tier("ram", "6MiB").tier("ssd", "24MiB").build();
    let kit = kit.display();
    // The known tiles were computed without AVX-512, whose results differ in the last bit.
    let made = format!(
        "NPY_DISABLE_CPU_FEATURES='AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL' /usr/bin/python3 {kit}/gen_tiles.py . --preset medium > $SCRATCH/gen.log; sha256sum -c --quiet {kit}/expected/medium.sha256
         NPROC=2 bash {kit}/run_montage.sh . > $SCRATCH/steps; head -1 {kit}/expected/medium.mosaic.sha256 | sha256sum -c; /usr/bin/python3 {kit}/check_mosaic.py . > $SCRATCH/check; [ -s out/mosaic.png ]; ls proj diff corr | sha256sum"
    );
    let outcome = place.sh(&made).ok();
    assert!(outcome.stdout.contains("out/mosaic.fits: OK"), "{}", outcome.stdout);
    let tree = place.settled_tree();
    let native = place.native_sh(&format!(
        "sha256sum -c --quiet {kit}/expected/medium.sha256; head -1 {kit}/expected/medium.mosaic.sha256 | sha256sum -c"
    ));
    assert!(native.ok().stdout.contains("out/mosaic.fits: OK"));
    assert_eq!(
        tree.0.keys().filter(|name| name.starts_with("corr")).count(),
        33,
        "16 images, their area maps, and their directory"
    );
    let report = outcome.report.expect("--report writes JSON");
    assert!(report["counters"]["creates_tier"].as_u64() > Some(100), "the images were placed in the tiers: {report:#}");
}
