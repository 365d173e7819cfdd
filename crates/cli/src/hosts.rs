//! Which hosts there are: from a file, from Slurm's environment, or from MPI's.

use std::path::Path;
use terrace_core::members::{AGENTS_MAX, Membership};
use terrace_tool::failure::{Failure, Result};

/// One host on each line; what follows a blank (slots, as MPI's files have) or `#` is not looked at.
pub fn from_file(file: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(file).map_err(|error| Failure::io("read the hosts file", file, error))?;
    let words = text.lines().filter_map(|line| line.split('#').next()?.split_whitespace().next());
    // MPICH writes slots behind a colon.
    let without_slots = |word: &str| match word.split_once(':') {
        Some((host, slots)) if !slots.is_empty() && slots.bytes().all(|byte| byte.is_ascii_digit()) => host.to_owned(),
        _ => word.to_owned(),
    };
    checked(words.map(without_slots).collect(), &file.display().to_string())
}

/// As PBS writes them: a host has a line for each of its slots.
pub fn from_slots(file: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(file).map_err(|error| Failure::io("read the hosts file", file, error))?;
    let mut hosts: Vec<String> = vec![];
    for word in text.lines().filter_map(|line| line.split('#').next()?.split_whitespace().next()) {
        let host = word.split_once(':').map_or(word, |(host, _)| host);
        if !hosts.iter().any(|found| found == host) {
            hosts.push(host.to_owned());
        }
    }
    checked(hosts, &file.display().to_string())
}

/// `n1,n2,n[5-7]`
pub fn from_list(list: &str) -> Result<Vec<String>> {
    let hosts = expand(list).ok_or_else(|| {
        Failure::bad_input(
            format!("`{list}` is neither a file nor a list of hosts"),
            "write hosts:FILE, hosts:n1,n2 or hosts:n[1-4]",
        )
    })?;
    checked(hosts, "--nodes")
}

pub fn from_slurm(environment: impl Fn(&str) -> Option<String>) -> Result<Vec<String>> {
    let list = environment("SLURM_JOB_NODELIST").or_else(|| environment("SLURM_NODELIST")).ok_or_else(|| {
        Failure::bad_input("SLURM_JOB_NODELIST is not set", "use --slurm inside an allocation (salloc, sbatch)")
    })?;
    let hosts = expand(&list).ok_or_else(|| {
        Failure::bad_input(
            format!("`{list}` is not a list of nodes as Slurm writes them"),
            "write the hosts into a file and give it with --hosts",
        )
    })?;
    checked(hosts, "SLURM_JOB_NODELIST")
}

fn checked(hosts: Vec<String>, origin: &str) -> Result<Vec<String>> {
    let bad = |what: String| Failure::bad_input(what, "one host on each line, each host once");
    if hosts.is_empty() || hosts.len() > AGENTS_MAX as usize {
        return Err(bad(format!("{origin} names {} hosts: 1 to {AGENTS_MAX} are possible", hosts.len())));
    }
    let is_plain = |host: &&String| {
        !host.starts_with('-') && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:@".contains(&b))
    };
    if let Some(host) = hosts.iter().find(|host| !is_plain(host)) {
        return Err(bad(format!("{origin} has `{}`, which is no host's name", host.escape_debug())));
    }
    match hosts.iter().enumerate().find(|(number, host)| hosts[..*number].contains(host)) {
        Some((_, host)) => Err(bad(format!("{origin} names the host {host} twice"))),
        None => Ok(hosts),
    }
}

/// `n[1-3,07],login` is n1 n2 n3 n07 login: ranges keep their leading zeroes, brackets may come several times in a name.
pub fn expand(list: &str) -> Option<Vec<String>> {
    let mut hosts = vec![];
    for word in words(list)? {
        hosts.extend(expand_word(&word)?);
        if hosts.len() > AGENTS_MAX as usize {
            return None;
        }
    }
    Some(hosts)
}

/// Split at commas outside brackets.
fn words(list: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut is_inside) = (vec![], String::new(), false);
    for symbol in list.trim().chars() {
        match symbol {
            '[' if is_inside => return None,
            ']' if !is_inside => return None,
            ',' if !is_inside => words.push(std::mem::take(&mut word)),
            symbol => {
                is_inside = symbol == '[' || is_inside && symbol != ']';
                word.push(symbol);
            }
        }
    }
    words.push(word);
    (!is_inside && words.iter().all(|word| !word.is_empty())).then_some(words)
}

fn expand_word(word: &str) -> Option<Vec<String>> {
    let Some((before, rest)) = word.split_once('[') else { return Some(vec![word.into()]) };
    let (ranges, after) = rest.split_once(']')?;
    let tails = expand_word(after)?;
    let mut names = vec![];
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(first) || !is_number(last) {
            return None;
        }
        let (from, to, width) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?, first.len());
        if from > to || to - from >= AGENTS_MAX {
            return None;
        }
        for number in from..=to {
            names.extend(tails.iter().map(|tail| format!("{before}{number:0width$}{tail}")));
        }
        if names.len() > AGENTS_MAX as usize {
            return None;
        }
    }
    Some(names)
}

/// This process's place among those that MPI's launcher (or srun) has started.
pub fn from_mpi(environment: impl Fn(&str) -> Option<String>) -> Result<Membership> {
    const PAIRS: [(&str, &str); 4] = [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS"),
    ];
    let number = |name: &str| environment(name).and_then(|text| text.parse::<u32>().ok());
    let found = PAIRS.iter().find_map(|(rank, size)| Some((number(rank)?, number(size)?)));
    let (number, of) = found.filter(|(rank, size)| rank < size && *size <= AGENTS_MAX).ok_or_else(|| {
        Failure::bad_input(
            "no MPI has started this process: neither Open MPI's, MPICH's nor srun's variables are set",
            "start it as `mpirun -npernode 1 terrace serve --mpi …`",
        )
    })?;
    let launches = ["PMIX_NAMESPACE", "PMI_JOBID", "SLURM_JOB_ID"];
    let launch = launches.iter().find_map(|name| environment(name)).unwrap_or_default();
    Ok(Membership { number, of, launch })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slurms_lists_of_nodes_are_expanded() {
        let expanded = |list: &str| expand(list).map(|hosts| hosts.join(" "));
        assert_eq!(expanded("login"), Some("login".into()));
        assert_eq!(expanded("n[1-3]"), Some("n1 n2 n3".into()));
        assert_eq!(expanded("n[08-11,20],gpu-a,x3[1,2]-ib"), Some("n08 n09 n10 n11 n20 gpu-a x31-ib x32-ib".into()));
        assert_eq!(expanded("r[1-2]n[01-02]"), Some("r1n01 r1n02 r2n01 r2n02".into()));
        for bad in ["", "n[", "n]", "n[1-]", "n[3-1]", "n[a-b]", "n[1,,2]", ",n", "n[[1]]", "n[1-99999999]"] {
            assert_eq!(expanded(bad), None, "{bad}");
        }
    }

    #[test]
    fn hosts_files_of_mpi_are_read_and_bad_ones_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("hosts");
        std::fs::write(&file, "# nodes\nn1 slots=4\n\n  n2:8 # fast\n").unwrap();
        assert_eq!(from_file(&file).unwrap(), ["n1", "n2"]);
        for bad in ["", "n1\nn1\n", "-oProxyCommand=x\n", "a;b\n"] {
            std::fs::write(&file, bad).unwrap();
            assert!(from_file(&file).is_err(), "{bad}");
        }
    }

    #[test]
    fn mpis_environment_says_which_agent_of_how_many() {
        let from = |variables: &[(&str, &str)]| {
            from_mpi(|name| variables.iter().find(|(found, _)| *found == name).map(|(_, value)| value.to_string()))
        };
        let place = from(&[("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "3"), ("PMIX_NAMESPACE", "j7")]);
        assert_eq!(place.unwrap(), Membership { number: 2, of: 3, launch: "j7".into() });
        assert_eq!(from(&[("PMI_RANK", "0"), ("PMI_SIZE", "1")]).unwrap().of, 1);
        assert!(from(&[("PMI_RANK", "3"), ("PMI_SIZE", "3")]).is_err());
        assert!(from(&[]).is_err());
    }
}
