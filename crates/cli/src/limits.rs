//! Limits of our own service processes (agent, keeper, supervisor): they serve many programs, and inherit the limits of one.
//! The program has its own: it is started by `run`, where none of this happens.

/// Enough for every thread of a supervisor; root may raise a lower hard limit to it.
const DESCRIPTORS: libc::rlim_t = 65_536;

/// As many descriptors as may be had; and a file that gets too large is an error of the write, not our end.
pub fn be_a_service() {
    // SAFETY: a disposition without a handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    raise(libc::RLIMIT_NOFILE, DESCRIPTORS);
}

/// The agent moves files that programs with other limits wrote, and has an index of its own.
pub fn take_large_files() {
    raise(libc::RLIMIT_FSIZE, libc::RLIM_INFINITY);
}

/// The soft limit to the hard one, and both to what is wished for if we may.
fn raise(resource: libc::__rlimit_resource_t, wish: libc::rlim_t) {
    // SAFETY: live structures; a zeroed one is valid.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(resource, &mut limit) != 0 {
            return;
        }
        let most = limit.rlim_max.max(wish);
        if libc::setrlimit(resource, &libc::rlimit { rlim_cur: most, rlim_max: most }) != 0 {
            libc::setrlimit(resource, &libc::rlimit { rlim_cur: limit.rlim_max, ..limit });
        }
    }
}
