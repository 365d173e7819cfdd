//! What is wrong with a run's settings, said before anything runs.

use super::*;

impl RunSettings {
    /// What can be said before anything runs.
    pub fn check(&self) -> Result<()> {
        let wrong = |message: String, hint: &str| Err(Error::input(message, hint));
        if self.workers == 0 || self.workers > 100_000 {
            return wrong(format!("{} workers can't work", self.workers), "give a number from 1 to 100000");
        }
        if self.repetitions == 0 || self.operations.is_empty() {
            return wrong("there is nothing to do".into(), "give at least one repetition and one operation");
        }
        let metadata = matches!(self.workload, Workload::Metadata(_));
        if let Some(operation) = self.operations.iter().find(|operation| operation.is_metadata() != metadata) {
            return wrong(
                format!("the workload has no operation `{}`", operation.name()),
                "metadata: create, stat, list, unlink; others: write, read, mixed",
            );
        }
        let finds = matches!(self.workload, Workload::Find(_));
        if self.operations.iter().any(|operation| (*operation == Operation::Find) != finds) {
            return wrong("`find` is the operation of the workload `find`".into(), "give both, or none");
        }
        if self.existing == Existing::Overwrite && !(self.keep && self.backend.has_local_files()) {
            return wrong(
                "`existing` is `overwrite`: what was there before would be removed".into(),
                "set `keep`, and use a backend that has files",
            );
        }
        if self.operations.contains(&Operation::Mixed) && !matches!(self.workload, Workload::Offset(_)) {
            return wrong("`mixed` needs an offset workload".into(), "use `write` and `read`");
        }
        crate::names::check(self)?;
        if let Some(rate) = self.rate
            && !(rate.requests_per_second.is_finite() && rate.requests_per_second > 0.0)
        {
            return wrong("`rate.requests_per_second` must be above 0".into(), "for example 1000");
        }
        if let Some(stonewall) = self.stonewall
            && stonewall.after.0 <= 0.0
        {
            return wrong("`stonewall.after` must be above 0".into(), "for example `5s`");
        }
        if let Coalesce::UpTo(Bytes(0)) = self.coalesce {
            return wrong("`coalesce.up_to` is 0".into(), "give a size, or `off`");
        }
        self.check_backend()?;
        crate::workload::check(self)
    }

    fn has_tree(&self) -> bool {
        matches!(self.workload, Workload::Metadata(_) | Workload::Find(_))
    }

    /// What files of a tree are not asked about; a row would say it all the same.
    fn check_metadata(&self) -> Result<()> {
        let ignored = [
            ("cache", self.cache != Cache::AsIs),
            ("layout", self.layout != LayoutSettings::AsIs),
            ("flush", self.flush == Flush::Request),
            ("coalesce", self.coalesce != Coalesce::Off),
            ("stonewall", self.stonewall.is_some() && !self.operations.contains(&Operation::Create)),
            ("rate", self.rate.is_some()),
        ];
        match ignored.iter().find(|(_, given)| *given) {
            Some((key, _)) if self.has_tree() => Err(Error::input(
                format!("a metadata workload knows no `{key}`"),
                format!("leave `{key}` out: files are created, looked at and removed one by one, as fast as it goes"),
            )),
            _ => Ok(()),
        }
    }

    fn check_backend(&self) -> Result<()> {
        let per_worker = self.files == Files::PerWorker;
        if self.has_tree() && !matches!(self.backend, BackendSettings::Posix(_) | BackendSettings::TerraceFiles(_)) {
            return Err(Error::input(
                format!("a metadata workload is done by POSIX calls, not by `{}`", self.backend.name()),
                "use the backend `posix` or `terrace_files`",
            ));
        }
        self.check_metadata()?;
        let blocks = self.backend.takes_blocks() && matches!(self.workload, Workload::Dataset(_));
        if blocks && (self.rate.is_some() || self.stonewall.is_some()) {
            return Err(Error::input(
                format!(
                    "`{}` moves a worker's whole part in one call: there is nothing to pace or to stop",
                    self.backend.name()
                ),
                "leave `rate` and `stonewall` out, or use a backend that takes rows",
            ));
        }
        if self.layout != LayoutSettings::AsIs && !self.backend.has_local_files() {
            return Err(Error::input(
                format!("the backend `{}` has no files whose layout could be set", self.backend.name()),
                "leave `layout` out",
            ));
        }
        if self.cache != Cache::AsIs && !self.backend.has_local_files() {
            return Err(Error::input(
                format!("the backend `{}` has no page cache to make cold or warm", self.backend.name()),
                "leave `cache` out",
            ));
        }
        match &self.backend {
            BackendSettings::Mpiio(mpi) if mpi.view && !matches!(self.workload, Workload::Dataset(_)) => {
                Err(Error::input("a file view needs a dataset workload", "exclude this combination"))
            }
            BackendSettings::Netcdf(library) if library.alignment.is_some() => {
                Err(Error::input("`alignment` is for HDF5", "leave it out"))
            }
            BackendSettings::IoUring(uring) if uring.depth == 0 || uring.depth > 4096 => {
                Err(Error::input("io_uring's depth must be from 1 to 4096", "for example 32"))
            }
            BackendSettings::S3(_) if !per_worker && self.workers > 1 => {
                Err(Error::input("an S3 object can't be written by several workers", "set `files` to `per_worker`"))
            }
            BackendSettings::S3(_) if self.flush != Flush::End => Err(Error::input(
                "an S3 object is there when all of it is, and not before: its write ends with `\"flush\": \"end\"`",
                "leave `flush` out",
            )),
            BackendSettings::S3(_) if self.operations.contains(&Operation::Mixed) => {
                Err(Error::input("parts of an S3 object can't be written anew", "leave `mixed` out"))
            }
            BackendSettings::TerraceObjects(_)
                if self.flush == Flush::Request && !per_worker && self.workers > 1 && !blocks =>
            {
                Err(Error::input(
                    "an object that others write can't be made durable after each request",
                    "use `\"flush\": \"end\"`, or set `files` to `per_worker`",
                ))
            }
            BackendSettings::Null(null) if null.request_time.0 <= 0.0 || null.noise < 0.0 || null.factor <= 0.0 => {
                Err(Error::input(
                    "the null backend's request_time and factor must be above 0, noise at least 0",
                    "see docs/guide/bench.md",
                ))
            }
            backend if self.flush == Flush::Request && !per_worker && backend.needs_mpi() => Err(Error::input(
                "workers flush a shared file together, so not after each request",
                "use `\"flush\": \"end\"`",
            )),
            _ if self.stonewall.is_some() && self.backend.needs_mpi() => {
                Err(Error::input("a stonewall can't end calls that workers make together", "use another backend"))
            }
            _ => Ok(()),
        }
    }
}
