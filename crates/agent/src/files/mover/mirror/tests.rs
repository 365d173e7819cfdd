use super::*;
use std::os::unix::fs::symlink;

/// xorshift64: the same programs every time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

fn look<'a>(settle: Option<Duration>) -> Look<'a> {
    Look {
        settle,
        fsync: false,
        threads: 3,
        cap: None,
        spilled: &|_| None,
        written: &|link| std::fs::read_link(link),
        goes_on: &|| true,
    }
}

/// Names, kinds, contents, modes, times of files, and which names are one file.
fn seen(top: &Path) -> Vec<String> {
    let mut all = vec![];
    let mut pending = vec![top.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let status = std::fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(top).unwrap().display().to_string();
            all.push(match () {
                _ if status.is_dir() => format!("{name}/ {:o} {}", status.mode(), status.mtime_nsec()),
                _ if status.is_symlink() => format!("{name} -> {}", std::fs::read_link(&path).unwrap().display()),
                _ => {
                    let (mode, time, links) = (status.mode(), status.mtime_nsec(), status.nlink());
                    format!("{name} {mode:o} {time} {links} {:?}", std::fs::read(&path).unwrap())
                }
            });
            if status.is_dir() {
                pending.push(path);
            }
        }
    }
    all.sort();
    all
}

/// One of a program's changes; what it refuses is no change.
fn change(top: &Path, random: &mut Random) {
    let mut name = || {
        let above = ["", "a", "b", "a/c"][random.below(4) as usize];
        top.join(above).join(["a", "b", "c", "f", "g", "h"][random.below(6) as usize])
    };
    let (one, other) = (name(), name());
    let _ = match random.below(9) {
        0 | 1 => std::fs::create_dir(&one),
        2 | 3 => std::fs::write(&one, vec![random.below(250) as u8; random.below(3) as usize]),
        4 => std::fs::rename(&one, &other),
        5 => std::fs::hard_link(&one, &other),
        6 => symlink("../f", &one),
        7 => std::fs::remove_file(&one).or_else(|_| std::fs::remove_dir_all(&one)),
        // Behind the times' back, as through a mapping.
        _ => (|| {
            let before = std::fs::metadata(&one)?;
            if before.len() > 0 && before.is_file() {
                std::fs::write(&one, vec![7; before.len() as usize])?;
                File::options().write(true).open(&one)?.set_modified(before.modified()?)?;
            }
            Ok(())
        })(),
    };
}

#[test]
fn after_the_last_look_a_mirror_is_what_is_there_whatever_was_done_between_the_looks() {
    for seed in 1..=150 {
        let base = tempfile::tempdir().unwrap();
        let (top, place) = (base.path().join("top"), base.path().join("kept/one"));
        std::fs::create_dir(&top).unwrap();
        std::fs::create_dir(place.parent().unwrap()).unwrap();
        let mut mirror = Mirror::new(top.clone(), place);
        let mut random = Random(seed * 7919);
        for _ in 0..60 {
            change(&top, &mut random);
            if random.below(5) == 0 {
                mirror.look(&look(Some(Duration::ZERO))).unwrap();
            }
            // The run went on after what was to be the last look.
            if random.below(30) == 0 {
                mirror.look(&look(None)).unwrap();
            }
        }
        let found = mirror.look(&look(None)).unwrap();
        assert_eq!(found.files_left, 0, "seed {seed}");
        assert_eq!(seen(&mirror.tree()), seen(&top), "seed {seed}");
        assert_eq!(mirror.difference(&look(None)).unwrap(), None, "seed {seed}");
    }
}

#[test]
fn what_is_open_for_writing_is_left_and_keeps_the_last_look_from_ending() {
    let base = tempfile::tempdir().unwrap();
    let top = base.path().join("top");
    std::fs::create_dir_all(&top).unwrap();
    std::fs::create_dir(base.path().join("kept")).unwrap();
    let writer = File::create(top.join("f")).unwrap();
    let mut mirror = Mirror::new(top.clone(), base.path().join("kept/one"));
    assert_eq!(mirror.look(&look(Some(Duration::ZERO))).unwrap().files_left, 1);
    let refused = mirror.look(&look(None)).unwrap_err().to_string();
    assert!(refused.contains("f: it is open for writing"), "{refused}");
    drop(writer);
    assert_eq!(mirror.look(&look(None)).unwrap().files_left, 0);
    std::fs::write(top.join("g"), "later").unwrap();
    assert_eq!(mirror.difference(&look(None)).unwrap(), Some("g".into()));
}

#[test]
fn a_file_that_is_written_anew_is_whole_by_its_old_line_or_by_its_new_one() {
    let base = tempfile::tempdir().unwrap();
    let (top, place) = (base.path().join("top"), base.path().join("kept/one"));
    std::fs::create_dir(&top).unwrap();
    std::fs::create_dir(place.parent().unwrap()).unwrap();
    let mut mirror = Mirror::new(top.clone(), place.clone());
    for text in ["one", "other"] {
        std::fs::write(top.join("f"), text).unwrap();
        mirror.look(&look(Some(Duration::ZERO))).unwrap();
        assert_eq!(std::fs::read_to_string(mirror.tree().join("f")).unwrap(), text);
    }
    std::fs::write(mirror.tree().join("half"), "ha").unwrap();
    assert_eq!(restore(&place).unwrap(), Some(mirror.tree()));
    assert_eq!(seen(&mirror.tree()).len(), 1, "{:?}", seen(&mirror.tree()));
    assert_eq!(restore(&base.path().join("kept/none")).unwrap(), None);
}
