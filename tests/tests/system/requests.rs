//! What a run asks of the durable file system's server: on a parallel file system metadata requests are the time of small files.

use std::process::Command;
use terrace_tests::{Outcome, SlowTier, Wish};

/// So many requests of either count may be of others: whoever looks at all mounts, as other tests do, asks this one too.
const STRAY: i64 = 20;

/// A file system that counts its requests; the kernel takes names that it found as known for a minute.
const COUNTING: &[&str] = &["--cache-ttl-ms", "60000", "--write-back"];

/// Requests of `more` over those of `less`: natively, and under Terrace. None: it can't be had here.
fn difference(wish: Wish, less: &str, more: &str) -> Option<[i64; 2]> {
    differences(wish, [less, more], [less, more])
}

/// As `difference`, of a program natively to another one under Terrace.
fn differences(wish: Wish, native: [&str; 2], ours: [&str; 2]) -> Option<[i64; 2]> {
    let natively = |script: &str| {
        let counting = SlowTier::mount(COUNTING)?;
        let mut command = Command::new("python3");
        command.args(["-c", script]).current_dir(counting.root());
        Outcome::within(60, &mut command).ok();
        Some(counting.count())
    };
    let by_terrace = |script: &str| {
        let counting = SlowTier::mount(COUNTING)?;
        let place = wish.clone().root(&counting.root()).build();
        std::fs::write(place.scratch().join("script.py"), script).unwrap();
        place.sh("python3 $SCRATCH/script.py").ok();
        drop(place);
        Some(counting.count())
    };
    Some([natively(native[1])? - natively(native[0])?, by_terrace(ours[1])? - by_terrace(ours[0])?])
}

#[test]
fn a_flushed_file_is_read_again_without_asking_the_durable_tier() {
    let script = |times: u32| {
        format!(
            "import os, time\n\
             for i in range(10): open(f'f{{i}}', 'w').write('data')\n\
             time.sleep(3)\n\
             for _ in range({times}):\n\
             \tfor i in range(10): assert open(f'f{{i}}').read() == 'data'\n"
        )
    };
    let Some([natively, ours]) = difference(Wish::default(), &script(1), &script(101)) else { return };
    assert!(natively >= 1000 - STRAY, "an open is a request: {natively}");
    assert!(ours <= 100 + STRAY, "{ours} requests for 1000 opens of flushed files, natively {natively}");
}

#[test]
fn what_is_not_there_costs_one_request_as_natively() {
    let script = |times: u32| {
        format!(
            "import os, time\n\
             open('flushed', 'w').write('data')\n\
             time.sleep(2)\n\
             for i in range({times}):\n\
             \tfor call in (os.unlink, os.stat, open):\n\
             \t\ttry: call(f'f{{i}}')\n\
             \t\texcept FileNotFoundError: pass\n\
             \t\telse: raise AssertionError('found')\n"
        )
    };
    let Some([natively, ours]) = difference(Wish::default(), &script(10), &script(1010)) else { return };
    assert!(natively >= 3000 - STRAY, "a look at nothing is a request: {natively}");
    assert!(ours <= natively + natively / 20 + STRAY, "{ours} requests, natively {natively}");
}

/// In a directory whose times change each time. Natively three and three; what is removed is a link, which has to be read.
#[test]
fn a_file_is_made_with_as_many_requests_as_natively_and_removed_with_one_more() {
    let script = |times: u32| {
        format!(
            "import os\n\
             os.mkdir('work')\n\
             for i in range({times}):\n\
             \topen(f'work/f{{i}}', 'w').close()\n\
             \tos.unlink(f'work/f{{i}}')\n"
        )
    };
    // On a slow machine a file would live for long enough to be flushed, which has requests of its own.
    let Some([natively, ours]) = difference(Wish::default().settle("1h"), &script(10), &script(1010)) else { return };
    assert!(natively >= 2000 - STRAY, "making and removing are requests: {natively}");
    assert!(ours <= natively + 1000 + natively / 20 + STRAY, "{ours} requests, natively {natively}");
}

/// The names of what lies in tiers are known: who walked the tree for them asked for every directory of a root that may have a million.
#[test]
fn a_run_that_ends_does_not_look_through_the_directories_of_the_root() {
    let script = |times: u32| {
        format!(
            "import os\n\
             open('placed', 'w').write('data')\n\
             for i in range({times}): os.mkdir(f'd{{i}}')\n"
        )
    };
    let Some([natively, ours]) = difference(Wish::default(), &script(10), &script(510)) else { return };
    assert!(natively >= 500 - STRAY, "making a directory is a request: {natively}");
    assert!(ours <= natively + natively / 20 + STRAY, "{ours} requests for 500 directories, natively {natively}");
}

/// Its start, its registration for other nodes, and its end.
#[test]
fn a_run_asks_the_durable_tier_for_sixty_things_of_its_own_at_most() {
    let Some(counting) = SlowTier::mount(COUNTING) else { return };
    let place = Wish::default().root(&counting.root()).build();
    place.sh("true").ok();
    drop(place);
    let asked = counting.count();
    assert!(asked <= 60 + STRAY, "{asked} requests for nothing");
}

/// What is read of a directory changes its time of access, so that who looks at it in between asks the server.
#[test]
fn listings_and_renames_ask_what_they_ask_natively() {
    let listings = |times: u32| {
        format!(
            "import os\n\
             os.mkdir('d')\n\
             open('d/placed', 'w').write('data')\n\
             for i in range({times}): assert os.listdir('d') == ['placed']\n"
        )
    };
    let renames = |times: u32, make: &str| {
        format!(
            "import os\n\
             {make}\n\
             for i in range({times}): os.rename(f'f{{i}}', f'f{{i + 1}}')\n"
        )
    };
    for door in ["preload", "both"] {
        let wish = Wish::default().settle("1h").top(&format!("door = {door:?}"));
        let Some([natively, ours]) = difference(wish.clone(), &listings(10), &listings(510)) else { return };
        assert!(natively >= 500 - STRAY, "reading a directory is a request: {natively}");
        assert!(ours <= natively + natively / 20 + STRAY, "{door}: {ours} requests for 500 lists, natively {natively}");
        for make in ["os.mkfifo('f0')", "open('f0', 'w').write('data')"] {
            let [few, many] = [10, 510].map(|times| renames(times, make));
            let Some([natively, ours]) = difference(wish.clone(), &few, &many) else { return };
            assert!(natively >= 1000 - STRAY, "a new name is looked for, and made: {natively}");
            assert!(
                ours <= natively + natively / 20 + STRAY,
                "{door}: {ours} for 500 renames, natively {natively} ({make})"
            );
        }
    }
}

/// Natively a program that replaces a file finds its name in the kernel's memory.
#[test]
fn renames_over_a_name_that_is_there_ask_what_they_ask_natively_and_of_what_is_not_there_once_more() {
    let replaces =
        |times: u32| format!("import os\nfor i in range({times}):\n\tos.mkfifo('a')\n\tos.rename('a', 'b')\n");
    let misses = |times: u32| {
        format!(
            "import os\nfor i in range({times}):\n\ttry: os.rename('none', 'b')\n\texcept FileNotFoundError: pass\n"
        )
    };
    let Some([natively, ours]) = difference(Wish::default(), &replaces(10), &replaces(510)) else { return };
    assert!(natively >= 1000 - STRAY, "a name is made, and renamed: {natively}");
    assert!(ours <= natively + natively / 20 + STRAY, "{ours} requests for 500 replaced names, natively {natively}");
    let Some([natively, ours]) = difference(Wish::default(), &misses(10), &misses(510)) else { return };
    assert!(natively >= 500 - STRAY, "a name that is not there is looked for: {natively}");
    assert!(ours <= 2 * natively + STRAY, "{ours} requests for 500 names that are not there, natively {natively}");
}

/// Once it is known that the program makes small files. The 32nd goes to a tier all the same, and others after it, more and more seldom.
#[test]
fn a_small_file_of_a_program_that_makes_such_costs_what_it_costs_natively() {
    let script = |times: u32| {
        format!(
            "import time\n\
             def make(name): open(name, 'w').write('data')\n\
             for i in range(12):\n\
             \tmake(f'lesson{{i}}.o')\n\
             \ttime.sleep(0.05)\n\
             for i in range({times}): make(f'f{{i}}.o')\n\
             for i in range({times}): open(f'f{{i}}.o').read()\n"
        )
    };
    let wish = Wish::default().top("small_files = \"learn\"");
    let Some([natively, ours]) = difference(wish, &script(10), &script(522)) else { return };
    eprintln!("{ours} requests for 512 files, natively {natively}");
    assert!(natively >= 1024 - STRAY, "making and opening are requests: {natively}");
    assert!(ours <= natively + 5 * 25 + natively / 10 + STRAY, "{ours} requests, natively {natively}");
}

/// What lies in a placed directory is made, read and removed without any request to the durable tier.
#[test]
fn files_of_a_placed_scratch_directory_cost_no_request() {
    let script = |times: u32| {
        format!(
            "import os\n\
             os.mkdir('work'); os.mkdir('work/d')\n\
             for i in range({times}):\n\
             \topen(f'work/d/f{{i}}', 'w').write('data')\n\
             for i in range({times}):\n\
             \tassert open(f'work/d/f{{i}}').read() == 'data'; os.stat(f'work/d/f{{i}}')\n\
             \tif i % 2: os.unlink(f'work/d/f{{i}}')\n"
        )
    };
    for door in ["preload", "both"] {
        let wish = Wish::default()
            .tier("ram", "64MiB")
            .top(&format!("directories = \"scratch\"\ndoor = {door:?}"))
            .policy("flush = [\"**\", \"!work/**\"]\nevict = [\"work/**\"]");
        let Some([natively, ours]) = difference(wish, &script(10), &script(1010)) else { return };
        assert!(natively >= 3000 - STRAY, "making, opening and removing are requests: {natively}");
        assert!(ours <= 2 * STRAY, "{door}: {ours} requests for 1000 files of a placed directory, natively {natively}");
    }
}

/// A directory that a run makes is copied and committed as a whole: what is made in it costs what `cp` would ask.
#[test]
fn files_of_a_directory_that_is_committed_as_a_whole_cost_what_copies_cost() {
    let script = |times: u32| {
        format!(
            "import os\nos.mkdir('out')\nfor i in range({times}):\n\topen(f'out/f{{i}}', 'w').write('data')\n\
             for i in range({times}):\n\tassert open(f'out/f{{i}}').read() == 'data'\n"
        )
    };
    let wish = Wish::default().tier("ram", "64MiB").top("directories = \"all\"");
    // When the kernel writes back, and what it asks for again, adds up to 200 to either.
    let counts: Option<Vec<_>> = (0..3).map(|_| difference(wish.clone(), &script(10), &script(510))).collect();
    let Some(counts) = counts else { return };
    let [natively, ours] = [0, 1].map(|way| counts.iter().map(|count| count[way]).min().unwrap());
    eprintln!("{ours} requests for 500 files, natively {natively}");
    assert!(natively >= 1000 - STRAY, "making and opening are requests: {natively}");
    assert!(
        ours <= natively + natively / 10 + STRAY,
        "{ours} requests for 500 files of a directory, natively {natively}"
    );
}

fn small_files(times: u32) -> String {
    format!(
        "import os\n\
         os.mkdir('work')\n\
         for i in range({times}):\n\
         \twith open(f'work/f{{i}}', 'w') as f: f.write('x' * 4096)\n"
    )
}

/// The copy is what nobody may see half-done: natively it is made elsewhere, with the times of the original, synced and renamed.
#[test]
fn a_small_file_is_made_and_flushed_with_two_requests_more_than_made_and_copied_natively() {
    let copied = |times: u32| {
        small_files(times)
            + &format!(
                "os.mkdir('tmp')\n\
                 for i in range({times}):\n\
                 \tfound = os.stat(f'work/f{{i}}')\n\
                 \tfd = os.open(f'tmp/f{{i}}', os.O_RDWR | os.O_CREAT | os.O_EXCL)\n\
                 \tos.write(fd, b'x' * 4096)\n\
                 \tos.utime(fd, ns=(found.st_atime_ns, found.st_mtime_ns))\n\
                 \tos.fsync(fd)\n\
                 \tos.close(fd)\n\
                 \tos.rename(f'tmp/f{{i}}', f'work/f{{i}}')\n\
                 \tos.stat(f'work/f{{i}}')\n"
            )
    };
    let wish = Wish::default().settle("1h");
    let Some([natively, ours]) = differences(wish, [&copied(10), &copied(210)], [&small_files(10), &small_files(210)])
    else {
        return;
    };
    assert!(natively >= 2000 - STRAY, "making and copying are requests: {natively}");
    assert!(ours <= natively + 400 + STRAY, "{ours} requests for 200 files, natively {natively}");
}

/// What `cp -p` asks for, and a rename; beside that, the file's link is looked up, made and read, and each file is synced and looked at once.
#[test]
fn five_hundred_small_files_are_made_and_flushed_with_five_requests_more_than_cp_and_a_rename_need() {
    let copied = |times: u32| {
        format!(
            "import os, subprocess, tempfile\n\
             os.mkdir('work'); os.mkdir('tmp')\n\
             with tempfile.TemporaryDirectory() as at:\n\
             \tfor i in range({times}):\n\
             \t\twith open(f'{{at}}/f{{i}}', 'w') as f: f.write('x' * 4096)\n\
             \tsubprocess.run(['cp', '-rp', at + '/.', 'tmp'], check=True)\n\
             for i in range({times}): os.rename(f'tmp/f{{i}}', f'work/f{{i}}')\n"
        )
    };
    let wish = Wish::default().settle("1h");
    let Some([natively, ours]) = differences(wish, [&copied(10), &copied(510)], [&small_files(10), &small_files(510)])
    else {
        return;
    };
    eprintln!("{ours} requests for 500 files, by cp and a rename {natively}");
    assert!(natively >= 2500 - STRAY, "copying and renaming are requests: {natively}");
    assert!(ours <= natively + 5 * 500 + STRAY, "{ours} requests for 500 files, by cp and a rename {natively}");
}
