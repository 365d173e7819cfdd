//! Which nodes a launch is to have, and what starts a program on them.
//!
//!   slurm   SLURM_JOB_NODELIST      one `srun --overlap` for all nodes
//!   pbs     PBS_NODEFILE            `pbs_tmrsh` (else `ssh`) for each node
//!   mpi     the launcher knows      one `mpirun` for all nodes
//!   hosts:  a file, or a list       `ssh` for each node
//!
//! A launcher of the user's with `{host}` in it is started once for each node, one without it once for all of them.

use crate::hosts;
use std::path::Path;
use std::process::{Command, Stdio};
use terrace_tool::failure::{Failure, Result};

const BY_SSH: &str = "ssh -o BatchMode=yes {host}";
const BY_PBS: &str = "pbs_tmrsh {host}";
/// All of the job's resources, which its other steps have as well: an agent is no task of the program's.
const BY_SRUN: &str = "srun --quiet --overlap --mpi=none --kill-on-bad-exit=0 --ntasks-per-node=1";

pub struct Nodes {
    /// `None`: only the launcher knows.
    pub hosts: Option<Vec<String>>,
    pub launcher: Launcher,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// Started once for each node; `{host}` is its name.
    Each(Vec<String>),
    /// Started once, and starts one process on each node by itself.
    All(Vec<String>),
}

impl Nodes {
    /// `wanted`: what `--nodes` says.
    pub fn find(wanted: &str, launcher: Option<&str>, environment: impl Fn(&str) -> Option<String>) -> Result<Nodes> {
        let (hosts, default) = match wanted.split_once(':') {
            None if wanted == "slurm" => {
                let hosts = hosts::from_slurm(&environment)?;
                let srun = format!("{BY_SRUN} --nodes={0} --ntasks={0}", hosts.len());
                (Some(hosts), srun)
            }
            None if wanted == "pbs" => {
                let file = environment("PBS_NODEFILE").ok_or_else(|| {
                    Failure::bad_input("PBS_NODEFILE is not set", "use --nodes pbs inside a job of PBS (qsub)")
                })?;
                let by = if is_in_path("pbs_tmrsh") { BY_PBS } else { BY_SSH };
                (Some(hosts::from_slots(Path::new(&file))?), by.to_owned())
            }
            None if wanted == "mpi" => {
                let by = match launcher {
                    Some(given) => given.to_owned(),
                    None => by_mpi(&version_of_mpi()?, &environment)?,
                };
                (None, by)
            }
            Some(("hosts", list)) if Path::new(list).is_file() => {
                (Some(hosts::from_file(Path::new(list))?), BY_SSH.to_owned())
            }
            Some(("hosts", list)) => (Some(hosts::from_list(list)?), BY_SSH.to_owned()),
            _ => {
                return Err(Failure::bad_input(
                    format!("--nodes {wanted}: this is no way to find nodes"),
                    "say slurm, pbs, mpi, hosts:FILE or hosts:HOST,HOST…",
                ));
            }
        };
        let launcher = Launcher::parse(launcher.unwrap_or(&default))?;
        if hosts.is_none() && matches!(launcher, Launcher::Each(_)) {
            return Err(Failure::bad_input(
                "--nodes mpi with a launcher for each {host}: MPI does not say which hosts there are",
                "name them with --nodes hosts:FILE",
            ));
        }
        Ok(Nodes { hosts, launcher })
    }
}

impl Launcher {
    fn parse(text: &str) -> Result<Launcher> {
        let words: Vec<String> = text.split_whitespace().map(String::from).collect();
        match words.first() {
            None => Err(Failure::bad_input("the launcher is empty", "leave --launcher out, or say `ssh {host}`")),
            Some(_) if words.iter().any(|word| word.contains("{host}")) => Ok(Launcher::Each(words)),
            Some(_) => Ok(Launcher::All(words)),
        }
    }
}

fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

fn version_of_mpi() -> Result<String> {
    let asked = Command::new("mpirun").arg("--version").stdin(Stdio::null()).output();
    asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).map_err(|error| {
        Failure::bad_input(
            format!("`mpirun --version` can't be run: {error}"),
            "load your MPI's module, or name its command with --launcher",
        )
    })
}

/// Standard input goes to all: its end is what the nodes end at.
fn by_mpi(version: &str, environment: &impl Fn(&str) -> Option<String>) -> Result<String> {
    if version.contains("Open MPI") || version.contains("OpenRTE") {
        return Ok("mpirun --map-by ppr:1:node --bind-to none --stdin all".into());
    }
    // Hydra (MPICH, Intel MPI) starts as many as it is told.
    let file = ["HYDRA_HOST_FILE", "PBS_NODEFILE"].iter().find_map(|name| environment(name));
    let count = match file {
        Some(file) => Some(hosts::from_slots(Path::new(&file))?.len()),
        None => environment("SLURM_JOB_NUM_NODES").and_then(|text| text.parse().ok()),
    };
    let count = count.ok_or_else(|| {
        Failure::bad_input(
            "this MPI does not say how many nodes it has",
            "say so: --launcher 'mpiexec -f HOSTS -ppn 1 -n 4', or use --nodes hosts:FILE",
        )
    })?;
    // Its first process alone gets standard input; the others look at the launch's directory.
    Ok(format!("mpirun -ppn 1 -n {count}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(wanted: &str, launcher: Option<&str>, variables: &[(&str, &str)]) -> Result<Nodes> {
        let find = |name: &str| variables.iter().find(|(found, _)| *found == name).map(|(_, value)| value.to_string());
        Nodes::find(wanted, launcher, find)
    }

    #[test]
    fn each_way_has_its_launcher_and_the_users_comes_first() {
        let slurm = find("slurm", None, &[("SLURM_JOB_NODELIST", "n[1-3]")]).unwrap();
        let Launcher::All(words) = slurm.launcher else { panic!() };
        assert!(words.contains(&"--overlap".into()) && words.ends_with(&["--nodes=3".into(), "--ntasks=3".into()]));
        let hosts = find("hosts:a,b", None, &[]).unwrap();
        assert_eq!(hosts.hosts.unwrap(), ["a", "b"]);
        assert_eq!(hosts.launcher, Launcher::Each(BY_SSH.split(' ').map(String::from).collect()));
        let own = find("hosts:a", Some("rsh -x {host}"), &[]).unwrap();
        assert_eq!(own.launcher, Launcher::Each(["rsh", "-x", "{host}"].map(String::from).into()));
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("nodes");
        std::fs::write(&file, "n1\nn1\nn2\n").unwrap();
        let pbs = find("pbs", None, &[("PBS_NODEFILE", file.to_str().unwrap())]).unwrap();
        assert_eq!(pbs.hosts.unwrap(), ["n1", "n2"], "PBS names a host once for each slot");
    }

    #[test]
    fn what_is_no_way_to_find_nodes_is_named() {
        for (wanted, launcher, said) in [
            ("slurm", None, "SLURM_JOB_NODELIST"),
            ("pbs", None, "PBS_NODEFILE"),
            ("lsf", None, "--nodes lsf"),
            ("hosts:", None, "hosts"),
            ("hosts:a,a", None, "twice"),
            ("hosts:a", Some(" "), "launcher is empty"),
            ("mpi", Some("ssh {host}"), "--nodes mpi"),
        ] {
            let failure = find(wanted, launcher, &[]).err().unwrap_or_else(|| panic!("{wanted}"));
            assert!(failure.message.contains(said) && failure.hint.is_some(), "{wanted}: {}", failure.message);
        }
    }

    #[test]
    fn mpis_are_known_by_what_they_say_of_themselves() {
        let none = |_: &str| None;
        assert!(by_mpi("mpirun (Open MPI) 4.1.4\n", &none).unwrap().contains("ppr:1:node"));
        assert!(by_mpi("HYDRA build details:\n", &none).is_err());
        let of_slurm = |name: &str| (name == "SLURM_JOB_NUM_NODES").then(|| "5".to_owned());
        assert!(by_mpi("HYDRA build details:\n", &of_slurm).unwrap().contains("-n 5"));
    }
}
