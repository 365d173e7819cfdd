//! `terrace run --hdf5`: programs that use HDF5 get the connector `terrace`, by the environment that HDF5 looks at.
//!
//!   --hdf5        arrays beside the files while the run lasts: policy drops them at its end
//!   --hdf5=both   they stay, and are made durable as Zarr

use clap::ValueEnum;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use terrace_core::settings::Settings;
use terrace_tool::control_client::running;
use terrace_tool::failure::{Failure, Result};

/// What becomes of the arrays of HDF5 files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Hdf5 {
    /// The file only: its arrays are there while the run lasts
    File,
    /// The file, and its arrays as Zarr in `.zarr`
    Both,
}

/// Below the root: what arrays are in that go at the run's end.
const CONTAINER: &str = ".hdf5";
const CONNECTOR: &str = "HDF5_VOL_CONNECTOR";
/// Tells the connector, and runs inside, what the flag said.
const KEEP: &str = "TERRACE_HDF5";
const PLUGINS: &str = "HDF5_PLUGIN_PATH";
/// Where HDF5 looks for plug-ins when nobody says where.
const USUAL_PLUGINS: &str = "/usr/local/hdf5/lib/plugin";

impl Hdf5 {
    /// Adds what policy says of the arrays.
    pub fn set_policy(self, settings: &mut Settings) {
        if self == Hdf5::File {
            settings.policy.flush.push(format!("!{CONTAINER}/**"));
            // As an expression, so that the directory itself is not placed in a tier as a whole.
            settings.policy.evict.push(format!(r"re:^{}/", CONTAINER.replace('.', r"\.")));
        }
    }

    /// What is left when the last run has ended: directories, and arrays that nobody has put anything into.
    pub fn clean(self, settings: &Settings) {
        if self == Hdf5::File && matches!(running(settings), Ok(None)) {
            remove_empty(&settings.root.join(CONTAINER));
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Hdf5::File => "file",
            Hdf5::Both => "both",
        }
    }
}

/// The variables by which HDF5 finds the connector, beside the preload library.
pub fn environment(hdf5: Hdf5, settings: &Settings) -> Result<Vec<(&'static str, OsString)>> {
    let directory = settings.library.with_file_name("hdf5");
    let connector = directory.join("libterrace_hdf5.so");
    if !connector.exists() {
        return Err(Failure::bad_input(
            format!("the HDF5 connector {} is not there", connector.display()),
            "`make build` makes it beside the preload library; or run without --hdf5",
        ));
    }
    if let Some(other) = std::env::var_os(CONNECTOR).filter(|other| !other.is_empty() && other != "terrace") {
        return Err(Failure::bad_input(
            format!("{CONNECTOR} says `{}`, and --hdf5 needs it for its own connector", other.display()),
            format!("unset {CONNECTOR}, or run without --hdf5"),
        ));
    }
    let before = std::env::var_os(PLUGINS).filter(|before| !before.is_empty()).unwrap_or(USUAL_PLUGINS.into());
    let all = std::iter::once(directory.clone()).chain(std::env::split_paths(&before).filter(|one| *one != directory));
    let all = std::env::join_paths(all.collect::<Vec<PathBuf>>()).map_err(|error| {
        Failure::bad_input(format!("{}: {error}", connector.display()), "install terrace where no path has a colon")
    })?;
    Ok(vec![(CONNECTOR, "terrace".into()), (PLUGINS, all), (KEEP, hdf5.as_str().into())])
}

/// Removes a directory with all directories in it, as far as there is nothing else in them than an array's description.
fn remove_empty(directory: &Path) {
    let entries: Vec<PathBuf> =
        std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    if let [only] = &entries[..]
        && only.ends_with("zarr.json")
    {
        let _ = std::fs::remove_file(only);
    }
    for entry in entries.iter().filter(|entry| entry.is_dir() && !entry.is_symlink()) {
        remove_empty(entry);
    }
    // It fails where something is left, which is what is wanted.
    let _ = std::fs::remove_dir(directory);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_that_nothing_is_in_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let below = |name: &str| place.path().join(name);
        std::fs::create_dir_all(below("a/b/c")).unwrap();
        std::fs::create_dir_all(below("a/kept")).unwrap();
        std::fs::create_dir_all(below("a/array")).unwrap();
        std::fs::write(below("a/array/zarr.json"), "{}").unwrap();
        std::fs::write(below("a/kept/file"), "x").unwrap();
        remove_empty(&below("a"));
        assert_eq!(
            (below("a/b").exists(), below("a/array").exists(), below("a/kept/file").exists()),
            (false, false, true)
        );
        remove_empty(&below("not there"));
    }

    #[test]
    fn arrays_beside_a_file_are_dropped_and_those_of_both_are_kept() {
        let mut settings = Settings::new("/r".into(), vec![], 0, "/l.so".into());
        let before = settings.policy.clone();
        Hdf5::Both.set_policy(&mut settings);
        assert_eq!(settings.policy, before);
        Hdf5::File.set_policy(&mut settings);
        let policy = terrace_core::policy::Policy::compile(&settings.policy).unwrap();
        let mode = |path: &str| policy.decide(Path::new(path)).mode;
        assert_eq!(mode(".hdf5/a.h5/x/c/0"), terrace_core::policy::Mode::Remove);
        assert_eq!(mode("a.h5"), terrace_core::policy::Mode::Copy);
    }
}
