//! Histories: random operations by several programs on three nodes, by library and by supervisor, while files are flushed and evicted and
//! programs and agents are killed or stopped; whatever was seen must be what one file system may show (docs/design/histories.md).
//!
//! `TERRACE_HISTORY_SECONDS=3600` makes a long one of them, in rounds; `TERRACE_HISTORY_SEED` repeats one (its requests, not its moments).

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use terrace_tests::history::{History, Killed, Rules, UNDECIDED, Unreachable};
use terrace_tests::{Node, Nodes, Outcome, Random, compile, compile_statically, skipped, terrace_binary, wait_until};

/// Groups of names, by the number at their ends; each has slots of another size.
const NAMES: [&str; 9] = ["a0", "b0", "s/c0", "a1", "b1", "s/c1", "a2", "b2", "s/c2"];
/// Within a page; a page; more than an answer carries along (64 KiB).
const BLOCKS: &str = "64,4096,70000";
/// A program that is killed in the middle of many pages leaves a part of them, natively, too: those that may be killed write one page.
const BLOCKS_OF_MORTALS: &str = "64,4096,0";
/// Nodes answer `EREMOTE` for each other's files until their agents talk to each other.
const FOREIGN_IS_REFUSED: bool = false;
/// As long as foreign files are refused their links show, and a hard link that is made elsewhere is one of the link.
const LEFT_OUT: &str = if FOREIGN_IS_REFUSED { "lL" } else { "-" };

const NODES: usize = 3;
/// On each node; another one of three kinds is left out on each. Where all may wait for one that is stopped, more of them make more orders than
/// can be looked at.
const CLIENTS_MAX: usize = 2;
/// Which of a node's clients writes large slots, and is never killed.
const SLOT_OF_LARGE: u32 = 1;
/// Which of a node's clients is statically linked.
const SLOT_OF_STATIC: u32 = 2;

fn seconds(of_test: f64) -> f64 {
    match std::env::var("TERRACE_HISTORY_SECONDS") {
        Ok(text) => text.parse().expect("TERRACE_HISTORY_SECONDS is a number"),
        Err(_) => of_test,
    }
}

const SEED: u64 = 20_261_123;

fn seed() -> u64 {
    match std::env::var("TERRACE_HISTORY_SEED") {
        Ok(text) => text.parse().expect("TERRACE_HISTORY_SEED is a number"),
        Err(_) => SEED,
    }
}

/// In ns, as the recorder tells it.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Where the programs and their logs are: outside the root, seen by all nodes.
struct Recording {
    directory: PathBuf,
    dynamic: PathBuf,
    statically: PathBuf,
    seed: u64,
}

impl Recording {
    fn in_directory(directory: &Path, seed: u64) -> Recording {
        std::fs::create_dir_all(directory.join("logs")).unwrap();
        let source = include_str!("histories/recorder.c");
        let dynamic = compile(directory, "recorder", source);
        let statically = compile_statically(directory, "recorder-static", source);
        Recording { directory: directory.to_owned(), dynamic, statically, seed }
    }

    fn logs(&self) -> PathBuf {
        self.directory.join("logs")
    }

    /// A script that keeps clients going until `end`: one that is killed has a successor with the next number.
    fn script(&self, node: usize, end: u64, left_out: &str, clients: &[(&Path, &str)]) -> String {
        let mut script = format!(
            "client() {{ i=0; while :; do id=$((100000 * {node} + 1000 * $1 + i)); log={logs}/{node}-$id.log\n\
             $2 $log $id {seed} {end} 700 $3 {left_out} {names} && return; {dead} dead $log; i=$((i + 1)); done; }}\n",
            logs = self.logs().display(),
            seed = self.seed,
            end = end as f64 / 1e9,
            names = NAMES.join(" "),
            dead = self.dynamic.display(),
        );
        // What a static program has open since before another node came stays bound to its object (docs/reference/semantics.md,
        // limits): such programs begin when all nodes are there, and know of each other.
        let here = |node: usize| self.logs().join(format!("here-{node}")).display().to_string();
        let all = (0..NODES).map(|node| format!("[ ! -e {} ]", here(node))).collect::<Vec<_>>().join(" || ");
        script.push_str(&format!(": >{}\n", here(node)));
        for (slot, (program, blocks)) in clients.iter().enumerate() {
            if clients.len() > CLIENTS_MAX && slot == (self.seed as usize + node) % clients.len() {
                continue;
            }
            let begin =
                if *program == self.statically { format!("while {all}; do sleep 0.01; done; ") } else { String::new() };
            script.push_str(&format!("{{ {begin}client {slot} {} {blocks}; }} &\n", program.display()));
        }
        script + "wait"
    }

    /// What the directory holds in the end is a part of the history.
    fn look_at_all(&self, mut command: Command) -> Outcome {
        let log = self.logs().join("7-900000.log");
        command.arg(log).args(["900000", "1", "0", "0", BLOCKS, LEFT_OUT]).args(NAMES);
        Outcome::within(60, &mut command)
    }

    /// `nodes`: whose agents' logs are kept with a history that is wrong. False: it shows nothing, which one of many may.
    fn check(&self, rules: &Rules, nodes: &[Node]) -> (History, bool) {
        let names: Vec<String> = NAMES.map(str::to_owned).into();
        let history = History::read(&self.logs(), &names);
        let mut is_decided = true;
        match history.check(rules) {
            Ok(verdicts) => {
                for verdict in verdicts {
                    println!("{} operations, {} configurations", verdict.operations, verdict.configurations);
                }
            }
            Err(wrong) if is_long() && wrong.contains(UNDECIDED) => {
                println!("{wrong}");
                is_decided = false;
            }
            Err(wrong) => self.fail(nodes, &format!("{:?}\n{wrong}", history.calls)),
        }
        println!("{:?}", history.calls);
        (history, is_decided)
    }

    fn fail(&self, nodes: &[Node], what: &str) -> ! {
        let kept = self.keep_logs();
        for (number, node) in nodes.iter().enumerate() {
            let log = node.native("cat /var/tmp/terrace-*/*/agent.log").stdout;
            std::fs::write(kept.join(format!("agent-{number}")), log).unwrap();
        }
        panic!("seed {}: {what}\nlogs kept in {}", self.seed, kept.display());
    }

    fn keep_logs(&self) -> PathBuf {
        let kept = tempfile::Builder::new().prefix("terrace-history-").tempdir_in("/tmp").unwrap().keep();
        for log in std::fs::read_dir(self.logs()).unwrap().flatten() {
            let _ = std::fs::copy(log.path(), kept.join(log.file_name()));
        }
        kept
    }
}

fn count(history: &History, call: &str) -> usize {
    history.calls.get(call).copied().unwrap_or(0)
}

/// The model is that of a local file system, or it would be worth nothing.
#[test]
fn a_local_file_system_gives_histories_that_the_model_explains() {
    let directory = tempfile::Builder::new().prefix("tt-").tempdir_in("/var/tmp").unwrap();
    let recording = Recording::in_directory(directory.path(), seed());
    let root = directory.path().join("root");
    std::fs::create_dir_all(root.join("s")).unwrap();
    let end = now() + 4_000_000_000;
    let clients: Vec<Child> = (0..3)
        .map(|node| {
            let programs =
                [(&*recording.dynamic, BLOCKS), (&*recording.statically, BLOCKS), (&*recording.dynamic, BLOCKS)];
            let script = recording.script(node, end, "-", &programs);
            let mut bash = Command::new("bash");
            bash.args(["-uc", &script])
                .current_dir(&root)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for client in clients {
        Outcome::of_child(60, client).ok();
    }
    let mut last = Command::new(&recording.dynamic);
    last.current_dir(&root);
    recording.look_at_all(last).ok();
    let (history, _) = recording.check(&Rules::default(), &[]);
    let made = ["open", "read", "write", "append", "rename", "link", "unlink", "list", "stat", "truncate"];
    assert!(made.iter().all(|call| count(&history, call) > 50), "{:?}", history.calls);
}

/// What goes wrong meanwhile.
#[derive(Clone, Copy, Default)]
struct Trouble {
    kill_programs: bool,
    kill_agents: bool,
    stop_agents: bool,
    node_dies: bool,
}

impl Trouble {
    fn is_any(self) -> bool {
        self.kill_programs || self.kill_agents || self.stop_agents || self.node_dies
    }
}

#[test]
fn three_nodes_show_one_file_system_while_files_move() {
    rounds(5.0, Trouble::default());
}

#[test]
fn three_nodes_show_one_file_system_while_programs_and_agents_are_killed() {
    rounds(5.0, Trouble { kill_programs: true, kill_agents: true, stop_agents: true, ..Trouble::default() });
}

#[test]
fn two_nodes_show_one_file_system_when_a_third_one_dies() {
    rounds(5.0, Trouble { kill_programs: true, node_dies: true, ..Trouble::default() });
}

/// One round; by request as many as there is time for, each with another seed.
fn rounds(each: f64, trouble: Trouble) {
    if trouble.is_any() && !is_long() {
        skipped("histories with kills run on request, with TERRACE_HISTORY_SECONDS=10 (docs/design/histories.md)");
        return;
    }
    let (begun, whole) = (Instant::now(), seconds(each));
    let mut seed = seed();
    let (mut rounds, mut undecided) = (0, 0);
    loop {
        let Some(nodes) = Nodes::new() else { return };
        println!("seed {seed}");
        let left = whole - begun.elapsed().as_secs_f64();
        // Who waits for a stopped agent makes many orders: of short rounds few have more than can be looked at.
        let most = if trouble.stop_agents { 20.0 } else { 60.0 };
        let seconds = if is_long() { left.clamp(each, most) } else { each };
        undecided += usize::from(!round(&nodes, seed, seconds, trouble));
        rounds += 1;
        assert!(undecided <= 1 + rounds / 10, "{undecided} of {rounds} rounds show nothing");
        if !is_long() || begun.elapsed().as_secs_f64() + each > whole {
            return;
        }
        seed += 1;
    }
}

fn is_long() -> bool {
    std::env::var_os("TERRACE_HISTORY_SECONDS").is_some()
}

/// So long it may take until a node knows that it isn't alone; before, a file of another node isn't there.
const SETTLE_S: u64 = if FOREIGN_IS_REFUSED { 6 } else { 0 };

fn start(node: &Node, script: &str) -> Child {
    let mut command = node.command(&terrace_binary());
    command.args(["run", "--settle", "150ms", "--tier", "ram=/dev/shm:64MiB", "--", "bash", "-uc", script]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(pid: i32, signal: i32) {
    // SAFETY: kill takes any number; the process is one of the test's nodes.
    unsafe { libc::kill(pid, signal) };
}

/// Whether it shows something.
fn round(nodes: &Nodes, seed: u64, seconds: f64, trouble: Trouble) -> bool {
    let recording = Recording::in_directory(nodes.root().parent().unwrap(), seed);
    std::fs::create_dir(nodes.root().join("s")).unwrap();
    let three: Vec<Node> = (0..3).map(|node| nodes.node(&format!("node{node}"))).collect();
    let end = now() + (seconds * 1e9) as u64 + SETTLE_S * 1_000_000_000;
    let mut runs: Vec<Option<Child>> = three
        .iter()
        .enumerate()
        .map(|(number, node)| {
            let large = if trouble.node_dies && number == 2 { BLOCKS_OF_MORTALS } else { BLOCKS };
            let clients = [
                (&*recording.dynamic, BLOCKS_OF_MORTALS),
                (&*recording.dynamic, large),
                (&*recording.statically, BLOCKS_OF_MORTALS),
            ];
            let script = recording.script(number, end, LEFT_OUT, &clients);
            Some(start(node, &format!("sleep {SETTLE_S}\n{script}")))
        })
        .collect();
    std::thread::sleep(Duration::from_secs(SETTLE_S));
    let rules = std::thread::scope(|threads| {
        // Flushing and evicting waits for files; the other troubles don't wait for it.
        let mover = threads.spawn(|| {
            let mut random = Random::new(seed ^ 0xf1);
            // Before that, a command would start an agent of its own.
            let is_here = |node: usize| recording.logs().join(format!("here-{node}")).exists();
            wait_until(60, || (0..NODES).all(is_here));
            let mut moved = 0;
            while now() + 500_000_000 < end {
                let node = &three[random.below(if trouble.node_dies { 2 } else { 3 }) as usize];
                let request = ["flush", "evict"][random.below(2) as usize];
                let arguments: &[&str] = if request == "flush" { &["flush", "--all", "-q"] } else { &["evict", "-q"] };
                moved += usize::from(node.terrace(arguments).code == 0);
                std::thread::sleep(Duration::from_millis(20 + random.below(200)));
            }
            moved
        });
        let rules = trouble_makes(&three, &mut runs, &recording, end, trouble, seed);
        let moved = mover.join().unwrap();
        assert!(moved > 0, "the test shows nothing: files were moved {moved} times");
        rules
    });
    for (node, run) in runs.into_iter().enumerate() {
        let Some(run) = run else { continue };
        let begun = Instant::now();
        let outcome = Outcome::of_child(60 + seconds as u64, run);
        println!("the run on node {node} ended {:.1} s after its clients", begun.elapsed().as_secs_f64());
        if outcome.code != 0 {
            recording.fail(&three, &format!("the run on node {node}: {outcome:?}"));
        }
    }
    if trouble.node_dies {
        recording.look_at_all(under_terrace(&three[0], &recording.dynamic)).ok();
    } else {
        recording.look_at_all(three[0].command(&recording.dynamic)).ok();
        let left: Vec<_> = NAMES.iter().filter(|name| nodes.root().join(name).is_symlink()).collect();
        if !left.is_empty() {
            recording.fail(&three, &format!("still links: {left:?}"));
        }
    }
    let (history, is_decided) = recording.check(&rules, &three);
    for call in ["open", "read", "write", "rename", "unlink", "list", "stat"] {
        assert!(count(&history, call) > 0, "seed {seed}: the history shows nothing: {:?}", history.calls);
    }
    assert_eq!(count(&history, "open EREMOTE") > 0, FOREIGN_IS_REFUSED, "{:?}", history.calls);
    is_decided
}

fn under_terrace(node: &Node, program: &Path) -> Command {
    let mut command = node.command(&terrace_binary());
    command.args(["run", "-q", "--settle", "150ms", "--tier", "ram=/dev/shm:64MiB", "--"]).arg(program);
    command
}

/// Until the end; says which nodes could not be reached when.
fn trouble_makes(
    three: &[Node],
    runs: &mut [Option<Child>],
    recording: &Recording,
    end: u64,
    trouble: Trouble,
    seed: u64,
) -> Rules {
    let mut random = Random::new(seed);
    let mut rules = Rules {
        foreign_is_refused: FOREIGN_IS_REFUSED,
        has_no_library: Some(|client| client / 1000 % 100 == SLOT_OF_STATIC),
        open_attributes_may_lag: FOREIGN_IS_REFUSED,
        lost_names_may_lag: true,
        descriptors_keep_versions: FOREIGN_IS_REFUSED,
        also_on_own_node: FOREIGN_IS_REFUSED,
        ..Rules::default()
    };
    let (begun, mut killed, mut dead) = (now(), (0, 0), false);
    while now() < end {
        std::thread::sleep(Duration::from_millis(50 + random.below(300)));
        let node = random.below(3) as usize;
        if now() + 1_000_000_000 > end || (dead && node == 2) {
            continue;
        }
        // What chance has not done by then is done first.
        let is_late = now() > begun + (end - begun) / 2;
        let what = match random.below(8) {
            _ if is_late && trouble.node_dies && !dead => 7,
            _ if is_late && trouble.kill_agents && killed.1 == 0 => 4,
            _ if is_late && trouble.kill_programs && killed.0 == 0 => 0,
            what => what,
        };
        match what {
            0..4 if trouble.kill_programs => {
                // The recorder takes its list of slots' sizes apart, in its command line, too.
                let is_mortal = |line: &[String]| {
                    let client = line.get(2).and_then(|word| word.parse::<u32>().ok());
                    line[0].contains("recorder") && client.is_some_and(|client| client / 1000 % 100 != SLOT_OF_LARGE)
                };
                let mortals: Vec<_> = three[node].processes().into_iter().filter(|(_, line)| is_mortal(line)).collect();
                let mortal = mortals.get(random.below(mortals.len().max(1) as u64) as usize);
                if let Some(&(pid, _)) = mortal {
                    signal(pid, libc::SIGKILL);
                    killed.0 += 1;
                }
            }
            4 | 5 if trouble.kill_agents => {
                if let Some(agent) = three[node].agent() {
                    let from = now();
                    signal(agent, libc::SIGKILL);
                    killed.1 += 1;
                    rules.agents_killed.push(Killed { node: node as u8, at: from });
                    std::thread::sleep(Duration::from_millis(700));
                    rules.unreachable.push(Unreachable { node: node as u8, from, to: now() });
                }
            }
            6 if trouble.stop_agents => {
                if let Some(agent) = three[node].agent() {
                    signal(agent, libc::SIGSTOP);
                    std::thread::sleep(Duration::from_millis(100 + random.below(300)));
                    signal(agent, libc::SIGCONT);
                }
            }
            7 if trouble.node_dies && !dead && now() > begun + (end - begun) / 3 => {
                rules.unreachable.push(Unreachable { node: 2, from: now(), to: u64::MAX });
                three[2].reboot();
                dead = true;
                runs[2].take().unwrap().wait().unwrap();
                for log in std::fs::read_dir(recording.logs()).unwrap().flatten() {
                    if log.file_name().to_str().unwrap().starts_with("2-") {
                        let mut command = Command::new(&recording.dynamic);
                        Outcome::within(10, command.arg("dead").arg(log.path())).ok();
                    }
                }
            }
            _ => {}
        }
    }
    println!("{} programs and {} agents were killed", killed.0, killed.1);
    assert!(!trouble.kill_programs || killed.0 > 0, "the test shows nothing: no program was killed");
    assert!(!trouble.kill_agents || killed.1 > 0, "the test shows nothing: no agent was killed");
    assert!(!trouble.node_dies || dead, "the test shows nothing: no node has died");
    rules
}
