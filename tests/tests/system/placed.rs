//! Directories that lie in a tier as a whole (`directories = "scratch"`): programs find what they would find in the root, by each door;
//! nothing of it stays; and what is not scratch after all is made durable.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use terrace_tests::{Comparison, Outcome, Wish, Workplace, is_root, skipped, wait_until};

const POLICY: &str = "flush = [\"**\", \"!work/**\", \"!tmp-*/**\"]\nevict = [\"work/**\", \"tmp-*/**\"]";
const DOORS: [&str; 3] = ["preload", "both", "supervise"];

fn wish(door: &str) -> Wish {
    wish_by(door, POLICY)
}

fn wish_by(door: &str, policy: &str) -> Wish {
    Wish::default().top(&format!("door = {door:?}")).policy(policy).tier("ram", "64MiB").settle("1h")
}

/// The same results as natively, by each door.
#[track_caller]
fn agrees(script: &str) {
    for door in DOORS {
        eprintln!("by {door}:");
        Comparison::with(wish(door)).agrees_on(script).ok();
    }
}

/// Where in a tier a name of the root lies as a directory.
pub fn placed_at(place: &Workplace, name: &str) -> Option<PathBuf> {
    std::fs::read_link(place.root().join(name))
        .ok()
        .filter(|target| target.starts_with(place.tier("ram")) && target.is_dir())
}

/// Waits until the run has written this file outside of the root.
pub fn await_file(path: &Path) {
    assert!(wait_until(60, || path.exists()), "{} did not come", path.display());
}

#[test]
fn a_scratch_directory_lies_in_the_tier_as_a_whole_and_is_empty_in_the_root_afterwards() {
    for door in DOORS {
        let place = wish(door).build();
        let run = place.start(
            "mkdir -m 750 work; mkdir -p work/a/b; echo one > work/f; echo two > work/a/b/g; echo kept > out; touch $SCRATCH/made; \
             until [ -e $SCRATCH/seen ]; do sleep 0.05; done; cat work/a/b/g",
        );
        await_file(&place.scratch().join("made"));
        // From outside, on this node: all is where it was made.
        let tier = placed_at(&place, "work").unwrap_or_else(|| panic!("{door}: not placed"));
        assert_eq!(std::fs::read_to_string(place.root().join("work/a/b/g")).unwrap(), "two\n");
        assert!(!tier.join("f").is_symlink() && tier.join("a/b").is_dir(), "what lies below has no links");
        std::fs::write(place.scratch().join("seen"), "").unwrap();
        let outcome = Outcome::of_child(100, run).ok();
        assert_eq!(outcome.stdout, "two\n", "{outcome:?}");
        place.wait_for_the_agents_end();
        let tree = place.settled_tree();
        assert_eq!(tree.leftovers(), Vec::<String>::new());
        let work = std::fs::symlink_metadata(place.root().join("work")).unwrap();
        assert!(work.is_dir() && work.mode() & 0o7777 == 0o750, "{work:?}");
        assert_eq!(std::fs::read_dir(place.root().join("work")).unwrap().count(), 0);
        assert_eq!(tree.bytes("out"), b"kept\n");
        assert!(std::fs::symlink_metadata(&tier).is_err(), "{} is still there", tier.display());
    }
}

/// What the names are in the root, as seen from outside, while a run is there that has made them.
fn kinds(place: &Workplace, flags: &[&str], script: &str, names: &[&str]) -> Vec<&'static str> {
    for file in ["made", "seen"] {
        let _ = std::fs::remove_file(place.scratch().join(file));
    }
    let script = format!("{script}; touch $SCRATCH/made; until [ -e $SCRATCH/seen ]; do sleep 0.05; done");
    let run = place.start_with(flags, &["bash", "-euo", "pipefail", "-c", &script]);
    await_file(&place.scratch().join("made"));
    let kind = |name: &&str| match std::fs::symlink_metadata(place.root().join(name)) {
        Ok(found) if found.is_dir() => "directory",
        Ok(_) if placed_at(place, name).is_some() => "placed",
        Ok(_) => "other",
        Err(_) => "nothing",
    };
    let kinds = names.iter().map(kind).collect();
    std::fs::write(place.scratch().join("seen"), "").unwrap();
    Outcome::of_child(100, run).ok();
    kinds
}

#[test]
fn it_is_on_where_policy_drops_directories_until_it_is_switched_off() {
    let place = Wish::default().policy(POLICY).build();
    assert_eq!(kinds(&place, &[], "mkdir work other", &["work", "other"]), ["placed", "directory"]);
    assert_eq!(kinds(&place, &["--directories", "off"], "mkdir tmp-1", &["tmp-1"]), ["directory"]);
    let wrong = place.run_with(&["--directories", "some"], &["true"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("`some` is none of off, scratch, all"), "{wrong:?}");
}

#[test]
fn only_directories_in_which_policy_drops_every_file_are_placed() {
    let place = Wish::default()
        .top("directories = \"scratch\"")
        .policy("flush = [\"**\", \"!work/**\", \"work/keep/**\", \"!other/**\"]\nevict = [\"work/**\"]")
        .build();
    let names = ["work", "work/keep", "work/x", "other", "out"];
    let found = kinds(&place, &[], &format!("mkdir {}", names.join(" ")), &names);
    assert_eq!(found, ["directory", "directory", "placed", "directory", "directory"]);
}

#[test]
fn a_second_run_places_the_directory_that_the_first_one_left() {
    let place = wish("both").build();
    place.sh("mkdir work; echo one > work/f; echo kept > out").ok();
    let found = kinds(&place, &[], "test -d work; mkdir -p work/d; echo two > work/d/g; cat out", &["work"]);
    assert_eq!(found, ["placed"]);
    assert_eq!(std::fs::read_dir(place.root().join("work")).unwrap().count(), 0);
    // Not one that has something in it, or that somebody is in.
    std::fs::write(place.root().join("work/mine"), "mine").unwrap();
    assert_eq!(kinds(&place, &[], "cat work/mine", &["work"]), ["directory"]);
    std::fs::remove_file(place.root().join("work/mine")).unwrap();
    let mut inside = Command::new("sleep").arg("100").current_dir(place.root().join("work")).spawn().unwrap();
    assert_eq!(kinds(&place, &[], "ls work", &["work"]), ["directory"]);
    inside.kill().and_then(|()| inside.wait()).unwrap();
    assert_eq!(place.settled_tree().leftovers(), Vec::<String>::new());
}

#[test]
fn shells_know_where_they_are() {
    agrees(
        "mkdir work; cd work; mkdir x; cd x; pwd; pwd -P; bash -c 'pwd -P; cd ..; pwd -P; cd -P ..; pwd -P'; \
         dash -c 'pwd -P; cd ..; pwd -P; ls'; cd -P ..; pwd; ls; cd -P ..; pwd; ls -F; cat work/../work/x/../../nothing || true; \
         echo up > work/x/../../up; cat work/x/../../up; readlink -f work/x/../x; realpath work/x work/x/..; rm up; rm -r work",
    );
}

#[test]
fn python_knows_where_it_is_and_walks_removes_and_moves_trees() {
    agrees(
        "mkdir work; cat > $SCRATCH/p.py <<'END'
import os, pathlib, shutil
top = os.getcwd()
os.mkdir('work/x'); os.makedirs('work/x/deep/er'); open('work/x/f', 'w').write('f'); open('work/x/deep/er/g', 'w').write('g')
os.chdir('work/x'); print(os.getcwd()); print(pathlib.Path('deep/../f').resolve(), pathlib.Path('..').resolve())
print(os.path.realpath('../x/./f'), os.readlink('/proc/self/cwd'))
fd = os.open('deep', os.O_RDONLY); print(os.readlink(f'/proc/self/fd/{fd}'))
up = os.open('..', os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd); print(sorted(os.listdir(up)), os.stat('f', dir_fd=up).st_size)
above = os.open('../..', os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd); print(sorted(os.listdir(above)))
os.chdir('..'); print(os.getcwd()); os.chdir('..'); print(os.getcwd() == top, sorted(os.listdir('.')))
for d, s, f in os.walk('work'): s.sort(); print(d, s, sorted(f))
for d in ('work', 'work/x', 'work/x/deep'):
    s = os.lstat(d); print(d, s.st_dev == os.stat(top).st_dev, os.path.ismount(d), os.path.islink(d), oct(s.st_mode))
    assert (s.st_dev, s.st_ino) == (os.stat(d).st_dev, os.stat(d).st_ino)
entries = {e.name: (e.is_dir(follow_symlinks=False), e.is_symlink(), e.inode() == e.stat().st_ino) for e in os.scandir('work/x')}; print(sorted(entries.items()))
seen = {}
for d, s, f in os.walk(top):
    for n in s + f:
        p = os.path.join(d, n); k = os.lstat(p); key = (k.st_dev, k.st_ino); assert key not in seen, (p, seen[key]); seen[key] = p
print([n for n in ('work/x',) if os.path.samefile(n, n + '/deep/..')])
shutil.move('work/x', 'work/y'); print(sorted(os.listdir('work')), open('work/y/deep/er/g').read())
shutil.copytree('work/y', 'copy'); print(sorted(os.listdir('copy')))
shutil.move('work/y/deep', 'moved'); print(sorted(os.listdir('moved/er')), sorted(os.listdir('work/y')))
shutil.move('copy', 'work/back'); print(sorted(os.listdir('work/back')))
shutil.rmtree('work/y'); shutil.rmtree('work'); print(sorted(os.listdir(top)))
END
python3 $SCRATCH/p.py",
    );
}

#[test]
fn walkers_find_a_placed_directory_where_it_is_and_stay_on_its_device() {
    agrees(
        "mkdir -p work/x/y work/z; echo 1 > work/x/f; echo 2 > work/x/y/g; ln -s f work/x/l; mkfifo work/x/p; \
         find . -printf '%p %y\\n' | sort; find . -xdev -type f | sort; find work/x -maxdepth 1 | sort; find . -name g -execdir pwd \\; ; \
         du -x -a --apparent-size work | wc -l; ls -RF work; ls -ld work | cut -c1; stat -c '%F %A' work work/x; \
         rm -r --one-file-system work/x/y; tar -cf - --one-file-system work | tar -tf - | sort; cp -a work copy; find copy -printf '%P %y %m\\n' | sort; \
         rsync -a --one-file-system work/ copy2/; diff -r --no-dereference work copy2 | grep -v 'fifo\\|Only' || true; rsync -a copy/ work/z/; ls work/z; \
         cp -a copy work/in; find work/in | sort | wc -l; mv work/in in; find in -type f | sort; rm -r in work copy copy2; ls",
    );
}

/// It is remembered which directories are placed ones; what is told of a file is of where its name leads now.
#[test]
fn what_is_told_of_a_file_follows_where_its_name_leads() {
    let script = r#"
import ctypes, os, shutil, subprocess, tempfile
root = os.getcwd()
statx = ctypes.CDLL(None, use_errno=True).statx
def by_statx(path, flags=0):
    out = ctypes.create_string_buffer(256)
    assert statx(-100, os.fsencode(path), flags, 0x7ff, out) == 0, path
    words = lambda at, size: int.from_bytes(out.raw[at:at + size], "little")
    return os.makedev(words(136, 4), words(140, 4)), words(32, 8)
# Whether it is on the root's device, and all ways to look agree.
def told(path, **how):
    looks = []
    for _ in range(2):
        found = os.stat(path, **how)
        looks.append((found.st_dev, found.st_ino))
        if not how:
            looks.append(by_statx(path))
    fd = os.open(path, os.O_RDONLY, **how)
    found = os.fstat(fd)
    os.close(fd)
    looks.append((found.st_dev, found.st_ino))
    return looks[0][0] == os.stat(root).st_dev, len(set(looks))
away = tempfile.mkdtemp(dir="/dev/shm")
open(away + "/f", "w").close()
os.mkdir("work"); os.mkdir("work/d")
for name in ("work/f", "work/d/f"):
    open(name, "w").close()
    print(name, told(name), told(root + "/" + name), os.lstat(name).st_ino == os.stat(name).st_ino)
os.symlink(away + "/f", "work/l"); os.symlink("d/f", "work/m"); os.symlink(away, "work/a")
print("links", told("work/l"), told("work/m"), told("work/a/f"), os.readlink("work/m"), os.lstat("work/m").st_size)
print("of the link", os.lstat("work/l").st_dev == os.stat(root).st_dev, by_statx("work/l", 0x100)[0] == by_statx("work/f")[0])
os.rename("work", "tmp-moved"); os.symlink(away, "work")
print("away", told("work/f"), told("tmp-moved/f"))
open("work/new", "w").close()
print("made", os.path.exists(away + "/new"))
os.unlink("work/new")
print("removed", os.path.exists(away + "/new"))
os.unlink("work"); os.mkdir("work"); open("work/f", "w").close()
print("again", told("work/f"))
subprocess.run(["sh", "-c", "mv work tmp-second && ln -s " + away + " work"], check=True)
print("by a child", told("work/f"))
wrong = 0
for turn in range(200):
    target = [away, root + "/tmp-moved"][turn % 2]
    os.symlink(target, "next"); os.replace("next", "work")
    wrong += told("work/f")[0] != (turn % 2 == 1)
print("in turn", wrong)
for directory in (away, "tmp-moved", "tmp-moved/d", away):
    os.chdir(directory); here = told("f"); os.chdir(root)
    fd = os.open(directory, os.O_RDONLY)
    print("from there", here, told("f", dir_fd=fd), told("f", dir_fd=fd))
    os.close(fd)
# By a walk that changes the working directory out of our sight.
walked = []
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_int))
def met(path, status, kind, position):
    if kind == 0:
        walked.append((path, told(path[position[0]:] if flags & 4 else path)))
    else:
        walked.append((path, kind, position[1]))
    return 0
# From in it, from the top, and on one file system only.
for path, flags in ((b"tmp-moved", 5), (root.encode(), 5), (root.encode(), 1), (root.encode(), 3), (b"tmp-moved/", 0)):
    assert ctypes.CDLL(None).nftw(path, met, 8, flags) == 0
    walked = [(path.replace(root.encode(), b"").replace(away.encode(), b""), *rest) for path, *rest in walked]
    print("walked", flags, sorted(walked, key=str)); walked = []
open("f", "w").close()
print("after a walk", told("f"), len({os.stat("f").st_ino, os.stat("tmp-moved/f").st_ino}))
# A name that was one in a placed directory is one of a file of the root's: its last name takes it away.
os.mkdir("kept"); open("kept/g", "w").write("g"); open("kept/h", "w").write("h")
for turn in range(3):
    os.symlink(root + "/tmp-moved", "next"); os.replace("next", "work")
    print(told("work/f"))
    os.symlink(root + "/kept", "next"); os.replace("next", "work")
    if turn < 2:
        os.unlink("work/" + "gh"[turn])
    open("work/i%d" % turn, "w").write("i")
    print(sorted(os.listdir("kept")), told("work/i%d" % turn))
os.unlink("work")
shutil.rmtree("tmp-moved"); shutil.rmtree("tmp-second"); shutil.rmtree(away)
"#;
    agrees(&format!("cat > $SCRATCH/told.py <<'EOF'{script}EOF\npython3 $SCRATCH/told.py"));
}

#[test]
fn git_works_in_a_placed_directory() {
    agrees(
        "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_AUTHOR_DATE='1700000000 +0000' \
         GIT_COMMITTER_DATE='1700000000 +0000' GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1; \
         mkdir work; cd work; mkdir repo; cd repo; git init -q -b main; git rev-parse --show-toplevel; mkdir d; echo a > d/a; echo b > b; \
         git add -A; git commit -qm one; git status --short; cd d; git rev-parse --show-prefix --show-cdup; cd ..; git clone -q . ../clone; \
         git -C ../clone log --oneline | wc -l; git worktree add -q ../tree; git worktree list | cut -d' ' -f1; cat ../tree/d/a; git fsck; \
         cd ../..; rm -rf work; ls",
    );
}

#[test]
fn make_goes_up_and_down() {
    agrees(
        "mkdir work; mkdir work/src work/build work/include; printf '#define N 3\\n' > work/include/n.h; \
         printf '#include \"../include/n.h\"\\n#include <stdio.h>\\nint main(){printf(\"%%d\\\\n\", N);}\\n' > work/src/m.c; \
         printf 'm: ../src/m.c ../include/n.h\\n\\t@cc -o $@ ../src/m.c && echo made in $(CURDIR)\\n' > work/build/Makefile; \
         make -s -C work/build; work/build/m; cd work/build; ./../build/m; make -s; ../../work/build/m; cd ../..; rm -r work",
    );
}

#[test]
fn names_in_and_around_a_placed_directory_are_as_the_kernel_makes_them() {
    agrees(
        "cat > $SCRATCH/p.py <<'END'
import os, errno
def does(what, *args, **kw):
    try: print(what.__name__, args, what(*args, **kw) and 'ok')
    except OSError as e: print(what.__name__, args, errno.errorcode[e.errno])
os.mkdir('work'); os.mkdir('work/a'); os.mkdir('work/b'); os.mkdir('real'); open('file', 'w').write('f'); open('work/a/f', 'w').write('a')
does(os.mkdir, 'work'); does(os.mkdir, 'work/a/'); does(os.rmdir, 'work'); does(os.rmdir, 'work/a'); does(os.unlink, 'work'); does(os.unlink, 'work/a')
does(os.rmdir, 'file'); does(os.rmdir, 'nothing'); does(os.readlink, 'work'); does(os.rename, 'work', 'work/a/in'); does(os.rename, 'file', 'work')
does(os.rename, 'work', 'file'); does(os.rename, 'work', 'work'); does(os.link, 'work', 'other'); does(os.symlink, 'x', 'work')
does(open, 'work'); does(open, 'work', 'w'); does(os.listdir, 'work/a/f'); does(os.truncate, 'work', 0)
does(os.open, 'work', os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY) ; does(os.open, 'work', os.O_CREAT | os.O_EXCL | os.O_WRONLY)
os.chmod('work', 0o711); os.chmod('work/a', 0o700, follow_symlinks=True); os.utime('work', (1, 2), follow_symlinks=False)
print(oct(os.stat('work').st_mode), os.lstat('work').st_mtime, oct(os.stat('work/a').st_mode)); os.chown('work', -1, -1, follow_symlinks=False)
does(os.rename, 'work/b', 'work/c'); does(os.rename, 'work/c', 'work/a'); does(os.rename, 'work/a/f', 'work/f'); does(os.rename, 'work/c', 'work/a')
os.mkdir('tmp-1'); os.mkdir('tmp-2'); open('tmp-2/x', 'w').write('x'); does(os.rename, 'tmp-1', 'tmp-2'); does(os.rename, 'tmp-2', 'tmp-1')
print(sorted(os.listdir('.')), os.listdir('tmp-1'), open('tmp-1/x').read()); does(os.rename, 'tmp-1', 'tmp-4'); does(os.rename, 'real', 'tmp-3')
os.unlink('tmp-4/x'); does(os.rename, 'tmp-3', 'tmp-4'); os.mkdir('tmp-5'); does(os.rename, 'tmp-5', 'tmp-4')
os.rmdir('tmp-4')
fd = os.open('work', os.O_RDONLY); os.mkdir('byfd', dir_fd=fd); os.mkdir('../made', dir_fd=fd); os.symlink('t', '../link', dir_fd=fd); os.rename('byfd', '../byfd', src_dir_fd=fd, dst_dir_fd=fd) if 0 else os.rmdir('byfd', dir_fd=fd)
does(os.listxattr, 'work/../file', follow_symlinks=False); does(os.getxattr, 'work/../file', 'user.no', follow_symlinks=False)
print(sorted(os.listdir('.')), os.access('work/../file', os.R_OK), os.access('work/../none', os.R_OK)); os.rmdir('work/../made'); os.unlink('work/../link'); os.mkfifo('work/../fifo'); os.unlink('fifo')
os.unlink('work/f'); os.rmdir('work/a'); os.rmdir('work'); print(sorted(os.listdir('.'))); os.unlink('file')
END
python3 $SCRATCH/p.py",
    );
}

#[test]
fn a_file_goes_from_a_placed_directory_into_the_root_and_back_in_one_step() {
    for door in DOORS {
        let place = wish(door).build();
        let outcome = place
            .sh("mkdir work; cat > $SCRATCH/p.py <<'END'
import os
f = open('work/f', 'w'); f.write('before'); f.flush()
os.rename('work/f', 'out')
f.write(' after'); f.close(); print(open('out').read(), os.listdir('work'), os.path.islink('out'))
os.rename('out', 'work/back'); print(open('work/back').read(), sorted(os.listdir('.')), os.path.islink('work/back'))
os.rename('work/back', 'again'); print(os.listdir('work'), open('again').read())
END
python3 $SCRATCH/p.py")
            .ok();
        assert_eq!(
            outcome.stdout, "before after [] False\nbefore after ['work'] False\n[] before after\n",
            "{door}: {outcome:?}"
        );
        let tree = place.settled_tree();
        assert_eq!((tree.bytes("again"), tree.leftovers()), (&b"before after"[..], vec![]), "{door}");
    }
}

#[test]
fn links_that_climb_out_of_a_placed_directory_lead_where_they_did() {
    agrees(
        "mkdir -p in/deep up/work/x; echo data > in/deep/f; cd up/work/x; ln -s ../../../in a; ln -s ../../.. b; ln -s ../../../in/deep/f c; \
         ln -s ../y d; ln -s ../../../up/work/x/c e; cat a/deep/f b/in/deep/f c e; ls b; for l in a b c d e; do readlink $l; stat -c '%s %F' $l; done; \
         realpath a b c; python3 -c 'import os; print([os.readlink(l) for l in \"abcde\"], os.lstat(\"c\").st_size, os.path.realpath(\"c\"))'; \
         ls -l | awk '{print $9, $10, $11}'; echo more >> c; cat ../../../in/deep/f; tar c . | tar tv | awk '{print $6, $7, $8}' | sort; \
         cd ../../..; cp -a up/work/x copied; mkdir -p a/b/c; cp -a up/work/x a/b/c/x; for d in copied a/b/c/x; do readlink $d/a $d/c; done; \
         ln -s in/deep/f root; mv root up/work/x/root; readlink up/work/x/root; mv up/work/x/c up/c; readlink up/c; rm -r up a copied",
    );
    for door in DOORS {
        let place = wish_by(door, "flush = [\"**\", \"!*/work/**\"]\nevict = [\"*/work/**\"]").build();
        let script = "mkdir in; echo data > in/f; mkdir -p up/work/x; ln -s ../../../in/f up/work/x/l; ln -s x/l up/work/m; \
            python3 -c 'import os; os.rename(\"up/work\", \"up/kept\"); os.mkdir(\"out\"); os.mkdir(\"up/work\"); os.symlink(\"../../in/f\", \"up/work/n\"); \
            os.rename(\"up/work/n\", \"up/n\"); os.symlink(\"in/f\", \"o\"); os.rename(\"o\", \"up/work/o\"); print(os.readlink(\"up/n\"), os.readlink(\"up/work/o\"))'";
        assert_eq!(place.sh(script).ok().stdout, "../../in/f in/f\n", "{door}");
        let tree = place.settled_tree();
        assert_eq!(tree.leftovers(), Vec::<String>::new(), "{door}");
        let text = std::fs::read_link(place.root().join("up/kept/x/l")).unwrap();
        assert_eq!(
            (text.to_str(), std::fs::read(place.root().join("up/kept/m")).unwrap()),
            (Some("../../../in/f"), b"data\n".to_vec()),
            "{door}"
        );
    }
}

#[test]
fn a_directory_leaves_a_placed_one_by_a_rename_and_is_durable_at_the_end() {
    for door in DOORS {
        let place = wish(door).build();
        let outcome = place
            .sh("mkdir work; mkdir -p work/d/e; echo data > work/d/e/f; mkdir work2; cat > $SCRATCH/p.py <<'END'
import os
f = open('work/d/e/g', 'w'); f.write('before'); f.flush()
os.rename('work/d', 'result')
f.write(' after'); f.close(); print(sorted(os.listdir('.')), os.listdir('work'), os.path.islink('result'), open('result/e/f').read())
os.rename('work', 'kept'); open('kept/h', 'w').write('new')
print(sorted(os.listdir('.')))
END
python3 $SCRATCH/p.py")
            .ok();
        let said = "['result', 'work', 'work2'] [] False data\n\n['kept', 'result', 'work2']\n";
        assert_eq!(outcome.stdout, said, "{door}: {outcome:?}");
        let tree = place.settled_tree();
        let bytes =
            ["result/e/f", "result/e/g", "kept/h"].map(|name| String::from_utf8_lossy(tree.bytes(name)).into_owned());
        assert_eq!((bytes, tree.leftovers()), (["data\n", "before after", "new"].map(str::to_owned), vec![]), "{door}");
    }
}

#[test]
fn renames_over_the_edge_replace_and_refuse_what_they_do_natively() {
    agrees(
        "cat >names.py <<'END'
import errno, os
def tried(what, *names):
    try: what(*names); print(*names, 'done')
    except OSError as error: print(*names, errno.errorcode[error.errno])
os.makedirs('work/a/b'); os.makedirs('work/c'); os.makedirs('work/d'); os.makedirs('full/x'); os.mkdir('empty'); os.chmod('empty', 0o700)
for name in 'work/f', 'work/a/f', 'plain', 'full/f': open(name, 'w').write(name)
tried(os.rename, 'work/a', 'full')
tried(os.rename, 'work/a', 'plain')
tried(os.rename, 'work/f', 'full')
tried(os.rename, 'work/f/', 'out'); tried(os.rename, 'work/f', 'out/'); tried(os.rename, 'plain/', 'work/in'); tried(os.rename, 'plain', 'work/in/')
tried(os.unlink, 'work/'); tried(os.unlink, 'work/c/'); tried(os.unlink, 'work/f/'); tried(os.rmdir, 'work/f/'); tried(os.unlink, 'nothing/')
tried(os.rename, 'work/a/', 'empty'); tried(os.rename, 'work/c/', 'full/x/'); tried(os.rename, 'work/d', 'new/')
for at, names, files in sorted((at, sorted(names), sorted(files)) for at, names, files in os.walk('.') if '.terrace' not in at):
    print(at, [name for name in names if name != '.terrace'], files)
print(open('empty/f').read(), open('plain').read())
END
python3 names.py; rm -r names.py work",
    );
}

#[test]
fn a_result_that_is_replaced_from_a_placed_directory_again_and_again_is_always_whole() {
    for door in DOORS {
        let place = wish(door).build();
        let outcome = place
            .sh("cat > $SCRATCH/p.py <<'END'
import os, threading, time
os.mkdir('work'); ended = False; reads = 0
def write(i):
    with open('work/new', 'w') as f: f.write(f'{i} ' * 5000)
    os.replace('work/new', 'result')
def read():
    global reads
    while not ended:
        words = open('result').read().split()
        assert len(words) == 5000 and len(set(words)) == 1, len(words)
        reads += 1
write(0)
reader = threading.Thread(target=read); reader.start()
# At once, when the one before is being made durable, and when it is.
for i in range(1, 40): write(i); time.sleep((0, 0.05, 0.3, 0.6)[i % 4] if i < 12 else 0)
old = open('result'); write(40); ended = True; reader.join()
assert reads > 0 and old.read().split() == ['39'] * 5000 and os.listdir('work') == [] and os.stat('result').st_nlink == 1
os.symlink('result', 'work/link'); os.symlink('nothing', 'link'); os.rename('work/link', 'link'); open('work/f', 'w').write('over'); os.rename('work/f', 'link')
print(open('link').read(), sorted(os.listdir('.')))
END
python3 $SCRATCH/p.py")
            .ok();
        assert_eq!(outcome.stdout, "over ['link', 'result', 'work']\n", "{door}: {outcome:?}");
        let tree = place.settled_tree();
        assert_eq!(tree.bytes("result"), "40 ".repeat(5000).as_bytes(), "{door}");
        assert_eq!((tree.bytes("link"), tree.leftovers()), (&b"over"[..], vec![]), "{door}");
    }
}

#[test]
fn a_sticky_directory_keeps_others_from_moving_what_is_not_theirs_over_its_edge() {
    if !is_root() {
        return skipped("only root can make files of another user");
    }
    agrees(
        "cat >move.py <<'END'
import os
os.umask(0)
for name, mode in ('work', 0o1777), ('top', 0o1777), ('all', 0o777):
    os.mkdir(name)
    os.chmod(name, mode)
for name in 'work/of_root', 'work/of_other', 'top/of_root', 'top/of_other':
    open(name, 'w').write(name)
    if name.endswith('other'): os.chown(name, 65534, 65534)
os.mkdir('work/directory')
os.mkdir('tmp-of_root')
os.chmod('.', 0o1777)
os.setegid(65534)
os.seteuid(65534)

moves = ('work/of_root', 'all/a'), ('work/of_other', 'all/b'), ('work/directory', 'all/c'), ('top/of_root', 'work/d'), ('top/of_other', 'work/e')
for one, other in moves:
    try:
        os.rename(one, other)
        print(one, 'moved')
    except OSError as error:
        print(one, error.errno)
try:
    os.rmdir('tmp-of_root')
except OSError as error:
    print('rmdir', error.errno)
os.seteuid(0)
os.chmod('.', 0o755)
open('tmp-of_root/still', 'w').close()
END
        python3 move.py; find work top all | sort; rm -r work top all tmp-*",
    );
}

#[test]
fn a_file_goes_out_of_a_placed_directory_over_a_real_file_in_one_step() {
    for door in DOORS {
        let place = wish(door).build();
        std::fs::write(place.root().join("out"), "of before the run").unwrap();
        let outcome = place
            .sh("mkdir work; cat > $SCRATCH/p.py <<'END'
import os
old = open('out'); f = open('work/f', 'w'); f.write('new'); f.flush()
os.rename('work/f', 'out')
f.write('er'); f.close(); print(open('out').read(), '|', old.read(), '|', os.listdir('work'), sorted(os.listdir('.')))
END
python3 $SCRATCH/p.py")
            .ok();
        assert_eq!(outcome.stdout, "newer | of before the run | [] ['out', 'work']\n", "{door}: {outcome:?}");
        let tree = place.settled_tree();
        assert_eq!((tree.bytes("out"), tree.leftovers()), (&b"newer"[..], vec![]), "{door}");
    }
}

#[test]
fn a_static_program_goes_up_and_knows_where_it_is() {
    let source = r#"
        #include <fcntl.h>
        #include <stdio.h>
        #include <string.h>
        #include <sys/stat.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            char here[4096], text[64] = "";
            struct stat a, b;
            if (mkdir("work", 0755) || mkdir("work/x", 0755) || chdir("work/x")) return 1;
            printf("%s\n", getcwd(here, sizeof here));
            int fd = open("f", O_CREAT | O_RDWR, 0644);
            if (fd < 0 || write(fd, "inside", 6) != 6 || close(fd)) return 2;
            fd = open("../../up", O_CREAT | O_RDWR, 0644);
            if (fd < 0 || write(fd, "above", 5) != 5 || close(fd)) return 3;
            if (access("../../up", R_OK) || !access("../../f", R_OK) || mkdir("../y", 0755) || symlink("t", "../../link")) return 4;
            fd = open("../../up", O_RDONLY);
            if (fd < 0 || read(fd, text, sizeof text) != 5) return 5;
            if (lstat("../../work", &a) || lstat("..", &b) || a.st_ino != b.st_ino || a.st_dev != b.st_dev) return 6;
            fd = open("../..", O_RDONLY | O_DIRECTORY);
            if (fd < 0 || fstat(fd, &a) || fstatat(fd, "up", &b, 0) || a.st_dev != b.st_dev) return 7;
            int nofollow = open("../../work", O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
            if (nofollow < 0) return 8;
            printf("%s %d\n", text, (int)readlink("../../link", here, sizeof here));
            if (unlink("f") || rmdir("../y") || chdir(argv[1]) || rmdir("work/x") || rmdir("work") || unlink("link") || unlink("up")) return 9;
            return 0;
        }"#;
    for door in ["both", "supervise"] {
        let comparison = Comparison::with(wish(door))
            .prepare(&format!("cat > $SCRATCH/s.c <<'END'\n{source}\nEND\ncc -O1 -static -o $SCRATCH/s $SCRATCH/s.c"));
        eprintln!("by {door}:");
        comparison.agrees_on("$SCRATCH/s $PWD; ls").ok();
    }
}

#[test]
fn what_policy_needs_after_all_is_made_durable_whole() {
    // The directory above is renamed, and what was scratch is not any more.
    for door in ["preload", "both"] {
        let place = wish(door).policy("").build();
        let outcome = place.sh(
            "mkdir up; mkdir tmp-1; mkdir tmp-1/d; echo data > tmp-1/d/f; chmod 640 tmp-1/d/f; ln tmp-1/d/f tmp-1/d/g; ln -s d/f tmp-1/l; \
             touch -d @1000 tmp-1/d/f; mv tmp-1 up/kept; stat -c '%a %Y %h' up/kept/d/f; cat up/kept/l",
        );
        assert_eq!(outcome.ok().stdout, "640 1000 2\ndata\n", "{door}");
        let tree = place.settled_tree();
        assert_eq!(tree.leftovers(), Vec::<String>::new());
        assert_eq!((tree.bytes("up/kept/d/f"), tree.bytes("up/kept/d/g")), (&b"data\n"[..], &b"data\n"[..]), "{door}");
    }
    let place = Wish::default()
        .top("directories = \"scratch\"\ndoor = \"preload\"")
        .policy("flush = [\"**\", \"!a/work/**\"]\nevict = [\"a/work/**\"]")
        .build();
    place.sh("mkdir a; mkdir a/work; mkdir a/work/d; echo data > a/work/d/f; mv a b; cat b/work/d/f; ls b").ok();
    let tree = place.settled_tree();
    assert_eq!((tree.bytes("b/work/d/f"), tree.leftovers()), (&b"data\n"[..], vec![]));
    assert!(std::fs::symlink_metadata(place.root().join("b/work")).unwrap().is_dir());
}

#[test]
fn what_lies_in_placed_directories_is_counted_and_told() {
    let place = wish("preload").build();
    let run = place.start(
        "mkdir work; mkdir work/d; head -c 3000000 /dev/zero > work/d/f; touch work/g $SCRATCH/made; until [ -e $SCRATCH/seen ]; do sleep 0.05; done",
    );
    await_file(&place.scratch().join("made"));
    let used = || place.status().map_or(0, |status| status.tiers[0].used_bytes);
    assert!(wait_until(30, || used() >= 3_000_000), "{} bytes", used());
    let status = place.status().unwrap();
    assert_eq!(status.tiers[0].files, 2, "{status:?}");
    assert_eq!(status.unflushed_files, 0);
    let listed = Outcome::within(20, &mut place.terrace("ls")).ok().stdout;
    assert!(
        listed.lines().any(|line| line.contains("directory") && line.contains("remove") && line.ends_with("work")),
        "{listed}"
    );
    let mut explain = place.terrace("explain");
    let explained = Outcome::within(20, explain.arg(place.root().join("work"))).ok().stdout;
    assert!(explained.contains("a placed directory"), "{explained}");
    std::fs::write(place.scratch().join("seen"), "").unwrap();
    Outcome::of_child(100, run).ok();
}

#[test]
fn a_killed_agent_leaves_a_directory_that_the_next_one_takes_over() {
    let place = wish("preload").build();
    let run = place.start(
        "mkdir work; mkdir work/d; echo data > work/d/f; touch $SCRATCH/made; until [ -e $SCRATCH/killed ]; do sleep 0.05; done; \
         cat work/d/f; cd work/d; pwd -P; cd -P ../..; ls -F; mkdir tmp-2; touch tmp-2/x; rm -r work; ls -F",
    );
    await_file(&place.scratch().join("made"));
    let pid = place.status().unwrap().agent_pid;
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
    std::fs::write(place.scratch().join("killed"), "").unwrap();
    let outcome = Outcome::of_child(100, run).ok();
    assert_eq!(outcome.stdout, format!("data\n{}/work/d\nwork/\ntmp-2/\n", place.root().display()), "{outcome:?}");
    assert_eq!(place.settled_tree().leftovers(), Vec::<String>::new());
    assert!(std::fs::symlink_metadata(place.root().join("tmp-2")).unwrap().is_dir());
}

/// Kills a run, its agent, and its programs, which go on without them.
pub fn kill_all(place: &Workplace, mut run: std::process::Child) {
    let pid = place.status().unwrap().agent_pid;
    let both = [&pid.to_string(), &run.id().to_string()];
    // Neither sees the other's end: an agent whose run has ended gives everything back, and a run starts its agent again.
    for signal in ["-STOP", "-KILL"] {
        Command::new("kill").arg(signal).args(both).status().unwrap();
    }
    let programs = format!(
        "for p in /proc/[0-9]*; do if cat $p/environ 2>/dev/null | tr '\\0' '\\n' | grep -qx 'SCRATCH={}'; then kill -9 ${{p#/proc/}}; fi; done; true",
        place.scratch().display()
    );
    Command::new("sh").args(["-c", &programs]).status().unwrap();
    run.wait().unwrap();
}

#[test]
fn recover_clears_up_behind_a_run_that_was_killed_with_all_it_had() {
    let place = wish("preload").build();
    let run =
        place.start("mkdir work; mkdir work/d; echo data > work/d/f; echo out > out; touch $SCRATCH/made; sleep 60");
    await_file(&place.scratch().join("made"));
    let tier = placed_at(&place, "work").unwrap();
    kill_all(&place, run);
    Outcome::within(100, &mut place.terrace("recover")).ok();
    let tree = place.settled_tree();
    assert_eq!((tree.bytes("out"), tree.leftovers()), (&b"out\n"[..], vec![]));
    assert!(std::fs::symlink_metadata(place.root().join("work")).unwrap().is_dir());
    assert!(std::fs::symlink_metadata(tier).is_err());
}

/// What lies in this placed directory goes with its tier.
pub fn lose(placed: &Path) {
    let container = placed.parent().unwrap();
    Command::new("chmod").args(["700", container.to_str().unwrap()]).status().unwrap();
    std::fs::remove_dir_all(container).unwrap();
}

#[test]
fn a_directory_whose_tier_was_emptied_is_an_empty_directory_again() {
    let place = wish("preload").build();
    std::os::unix::fs::symlink(place.tier("ram").join("nothing"), place.root().join("own")).unwrap();
    let run = place.start("mkdir work; echo data > work/f; touch $SCRATCH/made; sleep 60");
    await_file(&place.scratch().join("made"));
    let tier = placed_at(&place, "work").unwrap();
    kill_all(&place, run);
    lose(&tier);
    let _ = Outcome::within(100, &mut place.terrace("recover"));
    assert!(std::fs::symlink_metadata(place.root().join("work")).unwrap().is_dir());
    assert!(place.root().join("own").is_symlink(), "a program's own link stays");
}

#[test]
fn two_runs_share_a_placed_directory() {
    let place = wish("preload").build();
    let first = place
        .start("mkdir work; touch $SCRATCH/one; until [ -e $SCRATCH/two ]; do sleep 0.05; done; cat work/from/two");
    await_file(&place.scratch().join("one"));
    let second = place.sh("cd work; pwd -P; mkdir from; echo hello > from/two; touch $SCRATCH/two").ok();
    assert_eq!(second.stdout, format!("{}/work\n", place.root().display()));
    assert_eq!(Outcome::of_child(100, first).ok().stdout, "hello\n");
    assert_eq!(place.settled_tree().leftovers(), Vec::<String>::new());
}

#[test]
fn a_file_has_names_in_a_placed_directory_and_in_the_root() {
    agrees(
        "cat >names.py <<'END'
import errno, os, subprocess
def tried(what, *names):
    try: what(*names); print(*names, 'done')
    except OSError as error: print(*names, errno.errorcode[error.errno])
def show(*names):
    print([(name, os.lstat(name).st_nlink, open(name).read(), os.path.samefile(name, names[0]), os.path.islink(name)) for name in names])
    print([entry.name for at in {os.path.dirname(name) or '.' for name in names} for entry in os.scandir(at) if entry.inode() != os.lstat(entry.path).st_ino and entry.name != 'work'])
os.makedirs('work/d'); os.mkdir('kept')
with open('work/f', 'w') as f: f.write('inside')
os.link('work/f', 'out'); show('work/f', 'out')
with open('out', 'a') as f: f.write(' more')
with open('work/f', 'a') as f: f.write(' still'); f.flush(); print(os.fstat(f.fileno()).st_nlink, os.path.samestat(os.fstat(f.fileno()), os.stat('out')))
show('work/f', 'out')
os.link('work/f', 'kept/second'); show('out', 'work/f', 'kept/second')
os.link('work/f', 'work/d/third'); show('out', 'work/f', 'kept/second', 'work/d/third')
with open('in', 'w') as f: f.write('root')
os.link('in', 'work/g'); show('in', 'work/g')
os.chdir('work')
with open('g', 'a') as f: f.write('!')
os.chdir('d'); os.link('../../in', 'h'); os.link('h', '../../last'); os.chdir('../..')
show('in', 'work/g', 'work/d/h', 'last')
tried(os.link, 'work/f', 'out'); tried(os.link, 'in', 'work/f'); tried(os.link, 'work/none', 'x'); tried(os.link, 'work/d', 'x'); tried(os.link, 'kept', 'work/x')
tried(os.link, 'work/f', 'nothing/x'); tried(os.link, 'in', 'work/nothing/x'); tried(os.link, 'work/f/', 'x')
print(sorted(subprocess.run(['find', '.', '-samefile', 'out'], capture_output=True, text=True).stdout.split()))
os.rename('work/f', 'out'); os.rename('in', 'work/g'); os.rename('work/f', 'work/d/third'); show('out', 'work/f', 'work/d/third')
os.unlink('work/f'); os.unlink('in'); show('out', 'kept/second', 'work/d/third'); show('work/g', 'last')
os.rename('work/g', 'work/d/moved'); show('work/d/moved', 'last')
os.unlink('work/d/third'); os.unlink('work/d/moved'); os.unlink('work/d/h'); show('out', 'kept/second'); show('last')
END
python3 names.py; rm -r work names.py",
    );
}

#[test]
fn a_name_in_the_root_of_a_file_of_a_placed_directory_stays_when_its_run_was_killed_or_has_ended() {
    for kills in [false, true] {
        let place = wish("both").build();
        let run = place.start(
            "mkdir work; echo inside > work/f; ln work/f out; echo root > in; ln in work/g; echo more >> work/g; \
             touch $SCRATCH/made; sleep 3",
        );
        if kills {
            await_file(&place.scratch().join("made"));
            kill_all(&place, run);
            Outcome::within(100, &mut place.terrace("recover")).ok();
        } else {
            Outcome::of_child(100, run).ok();
        }
        let tree = place.settled_tree();
        assert_eq!((tree.bytes("out"), tree.bytes("in")), (&b"inside\n"[..], &b"root\nmore\n"[..]));
        assert_eq!(tree.leftovers(), Vec::<String>::new());
        let names = |name: &str| std::fs::symlink_metadata(place.root().join(name)).unwrap().nlink();
        assert_eq!((names("out"), names("in")), (1, 1));
    }
}

#[test]
fn a_directory_of_the_root_goes_into_a_placed_one_by_a_rename() {
    agrees(
        "cat >names.py <<'END'
import errno, os, subprocess
def tried(what, *names):
    try: what(*names); print(*names, 'done')
    except OSError as error: print(*names, errno.errorcode[error.errno])
os.makedirs('work/full/x'); os.makedirs('work/empty'); os.makedirs('in/d/x/y'); os.makedirs('in/e')
for name in 'in/d/f', 'in/d/x/g', 'in/data':
    with open(name, 'w') as f: f.write(name)
os.chmod('in/d/f', 0o640); os.link('in/d/f', 'in/d/x/y/second'); os.chmod('in/d/x/y', 0o700)
os.symlink('../../data', 'in/d/x/up'); os.symlink('g', 'in/d/x/beside'); os.symlink('../../../nowhere', 'in/d/x/out'); os.mkfifo('in/d/fifo')
subprocess.run('find in -depth -exec touch -h -d @1000000000 {} +', shell=True)
tried(os.rename, 'in/d', 'work/full'); tried(os.rename, 'in/d', 'in/d/x/z'); tried(os.rename, 'in/none', 'work/z'); tried(os.rename, 'in/d', 'work/none/z')
tried(os.rename, 'in/d', 'work/d'); tried(os.rename, 'in/e', 'work/empty')
tried(os.stat, 'in/d')
os.mkdir('in/d'); print(os.listdir('in/d'))
print(sorted(subprocess.run(['find', 'work/d', '-printf', '%P %y %#m %l %T@\\\\n'], capture_output=True, text=True).stdout.splitlines()))
print(open('work/d/f').read(), os.path.samefile('work/d/f', 'work/d/x/y/second'), os.lstat('work/d/f').st_nlink)
os.chdir('work/d/x'); print(open('beside').read(), os.path.exists('up'), os.path.exists('out'), os.getcwd()[-9:]); os.chdir('../../..')
os.unlink('work/d/x/out'); os.rename('work/d', 'back'); print(open('back/x/g').read(), sorted(os.listdir('back')), os.readlink('back/x/up'))
END
python3 names.py; rm -r work names.py",
    );
}

#[test]
fn a_directory_that_somebody_is_in_stays_in_the_root_and_is_copied_by_its_program() {
    for door in ["preload", "both"] {
        let place = wish(door).build();
        let script = "
import errno, os, subprocess, time
os.mkdir('work'); os.mkdir('d')
with open('d/f', 'w') as f: f.write('data')
beside = subprocess.Popen(['sleep', '100'], cwd='d')
try: os.rename('d', 'work/d')
except OSError as error: print(errno.errorcode[error.errno], os.listdir('d'), os.listdir('work'), open('d/f').read())
subprocess.run(['mv', 'd', 'work/d'], check=True); print(open('work/d/f').read(), os.path.exists('d')); beside.kill(); beside.wait()
";
        std::fs::write(place.scratch().join("p.py"), script).unwrap();
        let outcome = place.sh("python3 $SCRATCH/p.py").ok();
        assert_eq!(outcome.stdout, "EXDEV ['f'] [] data\ndata False\n", "{door}: {outcome:?}");
    }
}

#[test]
fn a_kill_at_any_step_of_a_directory_on_its_way_into_a_placed_one_loses_nothing() {
    for step in ["MoveCommitted", "MoveRenamed"] {
        let place = wish("preload").settle("1ms").build();
        let mut run = place.terrace("run");
        let script = "mkdir work d; echo data > d/f; echo more > d/g; sleep 2; \
                      python3 -c 'import os; os.rename(\"d\", \"work/d\")' 2>/dev/null || echo refused; cat work/d/f work/d/g; ls -A";
        run.args(["--", "bash", "-c", script]).env(terrace_tier::step::KILL_ENV, step);
        let outcome = Outcome::within(120, &mut run).ok();
        assert!(outcome.stderr.contains("was started again"), "{step} was never reached: {outcome:?}");
        assert!(outcome.stdout.contains("data\nmore\n"), "{step}: {outcome:?}");
        assert_eq!(place.settled_tree().leftovers(), Vec::<String>::new(), "{step}");
    }
}
