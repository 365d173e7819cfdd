//! The conformance suite of backends: a new one is one more line.

use super::*;
use crate::quantity::{Bytes, Span};
use crate::settings::*;
use crate::signature::{Identity, Signature};

fn conforms(backend: BackendSettings, base: &str) {
    let directory = tempfile::Builder::new().prefix("tb-").tempdir_in(base).unwrap();
    let path = directory.path().join("data");
    let settings = RunSettings { backend, ..RunSettings::default() };
    let mut backend = make(&settings, 1).unwrap();
    let signature = Signature::new(Identity { seed: 1, run: 1, replication: 0, repetition: 0, file: 0 });
    // Page-aligned for direct I/O.
    let mut buffer = memmap2::MmapMut::map_anon(65536).unwrap();
    let target = |write| Target {
        path: &path,
        directory: directory.path(),
        file_bytes: 5 * 65536,
        write,
        blocks: &[],
        shared: false,
        worker: 0,
    };
    assert!(backend.open(&target(false)).is_err(), "a file that is not there opened");
    backend.open(&target(true)).unwrap();
    for index in [2_u64, 0, 4, 1, 3] {
        signature.fill(index * 65536, &mut buffer);
        backend.write(index * 65536, &buffer).unwrap();
    }
    backend.flush().unwrap();
    backend.close().unwrap();
    let content = std::fs::read(&path).unwrap();
    assert_eq!(content.len(), 5 * 65536);
    signature.verify(0, &content).unwrap();

    // A second writer finds what the first one left.
    backend.open(&target(true)).unwrap();
    signature.fill(65536, &mut buffer);
    backend.write(65536, &buffer).unwrap();
    backend.close().unwrap();

    backend.open(&target(false)).unwrap();
    for index in [4_u64, 1, 0] {
        buffer.fill(0);
        backend.read(index * 65536, &mut buffer).unwrap();
        signature.verify(index * 65536, &buffer).unwrap();
    }
    assert!(backend.read(5 * 65536, &mut buffer).is_err(), "a read past the end succeeded");
    backend.close().unwrap();
    assert!(backend.write(0, &buffer).is_err(), "a write into a closed file succeeded");
    backend.remove(&path).unwrap();
    assert!(!path.exists());
}

#[test]
fn posix_conforms() {
    conforms(BackendSettings::Posix(PosixSettings::default()), "/var/tmp");
    conforms(BackendSettings::Posix(PosixSettings { seek: true, ..PosixSettings::default() }), "/dev/shm");
}

#[test]
fn posix_past_the_page_cache_conforms() {
    conforms(BackendSettings::Posix(PosixSettings { direct: true, ..PosixSettings::default() }), "/var/tmp");
}

#[test]
fn the_c_stream_conforms() {
    for buffer in [None, Some(Bytes(0)), Some(Bytes(1 << 20))] {
        conforms(BackendSettings::Cstream(StreamSettings { buffer }), "/var/tmp");
    }
}

#[test]
fn mapped_files_conform() {
    conforms(BackendSettings::Mmap(Plain {}), "/var/tmp");
    conforms(BackendSettings::Mmap(Plain {}), "/dev/shm");
}

#[test]
fn io_uring_conforms() {
    conforms(BackendSettings::IoUring(IoUringSettings { direct: false, depth: 5 }), "/var/tmp");
    conforms(BackendSettings::IoUring(IoUringSettings { direct: true, depth: 1 }), "/var/tmp");
}

#[test]
fn the_delaying_adapter_conforms() {
    let slow = PosixSettings { added_delay: Span(0.001), ..PosixSettings::default() };
    conforms(BackendSettings::Posix(slow), "/dev/shm");
}

#[test]
fn io_uring_keeps_several_requests_under_way() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = directory.path().join("data");
    let target = Target {
        path: &path,
        directory: directory.path(),
        file_bytes: 64,
        write: true,
        blocks: &[],
        shared: false,
        worker: 0,
    };
    let mut backend = io_uring::Uring::new(4, false).unwrap();
    backend.open(&target).unwrap();
    let mut buffers = [[1_u8; 16], [2; 16], [3; 16], [4; 16]];
    for (slot, buffer) in buffers.iter_mut().enumerate() {
        // SAFETY: the buffers live until all requests are complete, below.
        unsafe { backend.submit(slot, true, slot as u64 * 16, buffer.as_mut_ptr(), 16) }.unwrap();
    }
    let mut done: Vec<usize> = (0..4).map(|_| backend.complete().unwrap()).collect();
    done.sort_unstable();
    assert_eq!(done, [0, 1, 2, 3]);
    backend.close().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), buffers.concat());
}
