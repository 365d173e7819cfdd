//! Storage layouts: how a file is spread over servers, set before it is made, read back and recorded.
//!
//! Each file system is told by its own program or attributes; a new one is one more `StorageLayout`.

use crate::error::{Error, Result};
use crate::settings::{LayoutSettings, LocalLayout, Stripes};
use std::fs::OpenOptions;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use terrace_core::size::Size;

trait StorageLayout {
    /// Makes the file, empty, with the wanted layout.
    fn set(&self, path: &Path, file_bytes: u64) -> Result<()>;
    /// What the file system says of the file, on one line.
    fn read_back(&self, path: &Path) -> Result<String>;
}

fn of(settings: &LayoutSettings) -> Option<Box<dyn StorageLayout + '_>> {
    match settings {
        LayoutSettings::AsIs => None,
        LayoutSettings::Lustre(stripes) => Some(Box::new(Lustre(stripes))),
        LayoutSettings::OrangeFs(stripes) => Some(Box::new(OrangeFs(stripes))),
        LayoutSettings::BeeGfs(stripes) => Some(Box::new(BeeGfs(stripes))),
        LayoutSettings::Local(local) => Some(Box::new(Local(local))),
    }
}

/// Removes this experiment's old file and makes it anew with its layout; without a wish there is no file afterwards.
/// A file of somebody else is refused.
pub fn set(settings: &LayoutSettings, path: &Path, file_bytes: u64, replaces: bool) -> Result<()> {
    if !replaces && path.symlink_metadata().is_ok() {
        return Err(crate::claims::refused(path));
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::io("remove the old", path.display(), error));
        }
        _ => {}
    }
    of(settings).map_or(Ok(()), |layout| layout.set(path, file_bytes))
}

pub fn read_back(settings: &LayoutSettings, path: &Path) -> Result<Option<String>> {
    of(settings).map(|layout| layout.read_back(path)).transpose()
}

struct Lustre<'a>(&'a Stripes);

impl StorageLayout for Lustre<'_> {
    fn set(&self, path: &Path, _: u64) -> Result<()> {
        let mut command = Command::new("lfs");
        command.arg("setstripe");
        if let Some(size) = self.0.stripe_size {
            command.args(["-S", &size.0.to_string()]);
        }
        if let Some(count) = self.0.stripe_count {
            command.args(["-c", &count.to_string()]);
        }
        run(command.arg(path)).map(|_| ())
    }
    fn read_back(&self, path: &Path) -> Result<String> {
        let size = run(Command::new("lfs").args(["getstripe", "-S"]).arg(path))?;
        let count = run(Command::new("lfs").args(["getstripe", "-c"]).arg(path))?;
        compare(self.0, path, &size, &count)?;
        Ok(format!("stripe_size={size} stripe_count={count}"))
    }
}

/// A layout that the file system did not take would make the run a measurement of something else.
fn compare(wanted: &Stripes, path: &Path, size: &str, count: &str) -> Result<()> {
    let size_differs = wanted.stripe_size.is_some_and(|wanted| match Size::parse(size) {
        Ok(Size::Bytes(found)) => found != wanted.0,
        _ => true,
    });
    let count_differs = wanted.stripe_count.is_some_and(|wanted| count != wanted.to_string());
    if size_differs || count_differs {
        return Err(Error::failed(format!(
            "{}: the file system gave stripe_size={size} stripe_count={count} instead of the layout wanted (are there enough servers?)",
            path.display()
        )));
    }
    Ok(())
}

struct BeeGfs<'a>(&'a Stripes);

impl StorageLayout for BeeGfs<'_> {
    fn set(&self, path: &Path, _: u64) -> Result<()> {
        // BeeGFS takes a pattern for a directory; files made in it have it.
        let directory = path.parent().unwrap_or(Path::new("."));
        let mut command = Command::new("beegfs-ctl");
        command.arg("--setpattern");
        if let Some(size) = self.0.stripe_size {
            command.arg(format!("--chunksize={}", size.0));
        }
        if let Some(count) = self.0.stripe_count {
            command.arg(format!("--numtargets={count}"));
        }
        run(command.arg(directory)).map(|_| ())?;
        create(path)
    }
    fn read_back(&self, path: &Path) -> Result<String> {
        let told = run(Command::new("beegfs-ctl").arg("--getentryinfo").arg(path))?;
        let lines = told.lines().map(str::trim);
        let kept: Vec<_> = lines.filter(|line| line.contains("hunksize") || line.contains("storage targets")).collect();
        let last_word = |of: &str| {
            let line = kept.iter().find(|line| line.contains(of));
            line.and_then(|line| line.split([' ', ':']).rfind(|word| !word.is_empty())).unwrap_or("unknown")
        };
        compare(self.0, path, last_word("hunksize"), last_word("desired"))?;
        Ok(kept.join("; "))
    }
}

/// OrangeFS takes extended attributes of the directory.
struct OrangeFs<'a>(&'a Stripes);

impl StorageLayout for OrangeFs<'_> {
    fn set(&self, path: &Path, _: u64) -> Result<()> {
        let directory = path.parent().unwrap_or(Path::new("."));
        let put = |name: &str, value: String| {
            xattr::set(directory, name, value.as_bytes())
                .map_err(|error| Error::io(&format!("set `{name}` of"), directory.display(), error))
        };
        if let Some(size) = self.0.stripe_size {
            put("user.pvfs2.dist_name", "simple_stripe".into())?;
            put("user.pvfs2.dist_params", format!("strip_size:{}", size.0))?;
        }
        if let Some(count) = self.0.stripe_count {
            put("user.pvfs2.num_dfiles", count.to_string())?;
        }
        create(path)
    }
    fn read_back(&self, path: &Path) -> Result<String> {
        let directory = path.parent().unwrap_or(Path::new("."));
        let mut told = Vec::new();
        for name in ["user.pvfs2.dist_name", "user.pvfs2.dist_params", "user.pvfs2.num_dfiles"] {
            let value = xattr::get(directory, name)
                .map_err(|error| Error::io(&format!("read `{name}` of"), directory.display(), error))?;
            if let Some(value) = value {
                told.push(format!("{}={}", &name["user.pvfs2.".len()..], String::from_utf8_lossy(&value)));
            }
        }
        Ok(told.join(" "))
    }
}

struct Local<'a>(&'a LocalLayout);

impl StorageLayout for Local<'_> {
    fn set(&self, path: &Path, file_bytes: u64) -> Result<()> {
        create(path)?;
        if self.0.preallocate {
            let file =
                OpenOptions::new().write(true).open(path).map_err(|error| Error::io("open", path.display(), error))?;
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, file_bytes.max(1))
                .map_err(|error| Error::io(&format!("reserve {file_bytes} bytes for"), path.display(), error))?;
        }
        Ok(())
    }
    fn read_back(&self, path: &Path) -> Result<String> {
        let found = std::fs::metadata(path).map_err(|error| Error::io("stat", path.display(), error))?;
        Ok(format!("allocated={} size={}", found.blocks() * 512, found.len()))
    }
}

fn create(path: &Path) -> Result<()> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .map(|_| ())
        .map_err(|error| Error::io("create", path.display(), error))
}

fn run(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| {
        Error::input(
            format!("can't run `{program}`: {error}"),
            format!("the layout needs `{program}`; install it, or leave `layout` out"),
        )
    })?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        return Err(Error::failed(format!("{command:?} failed: {}", reason.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
