//! A network that can be cut: a TCP proxy on loopback that stops passing bytes, and holds what it has, until it is mended.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub struct Proxy {
    pub address: String,
    shared: Arc<Shared>,
}

struct Shared {
    target: String,
    is_cut: AtomicBool,
    ends: AtomicBool,
    /// Bytes that went towards the target, and back.
    passed: [AtomicU64; 2],
    /// Bytes that may still go.
    left: [AtomicU64; 2],
    /// By a number for each pair.
    connections: Mutex<Vec<(u64, TcpStream)>>,
    next: AtomicU64,
}

/// Of the two directions.
const TO: usize = 0;
const BACK: usize = 1;
const LOOK: Duration = Duration::from_millis(5);

impl Proxy {
    pub fn to(target: &str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            target: target.into(),
            is_cut: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            passed: Default::default(),
            left: [u64::MAX, u64::MAX].map(AtomicU64::new),
            connections: Mutex::default(),
            next: AtomicU64::new(0),
        });
        let accepting = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.ends.load(SeqCst) {
                    return;
                }
                let (Ok(stream), shared) = (stream, accepting.clone()) else { continue };
                std::thread::spawn(move || shared.serve(stream));
            }
        });
        Proxy { address, shared }
    }

    /// From now on nothing passes, in neither direction; nobody is told.
    pub fn cut(&self) {
        self.shared.is_cut.store(true, SeqCst);
    }

    pub fn mend(&self) {
        self.shared.is_cut.store(false, SeqCst);
    }

    /// All connections end at once.
    pub fn sever(&self) {
        for (_, stream) in self.shared.connections.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Bytes that went towards the target.
    pub fn passed(&self) -> u64 {
        self.shared.passed[TO].load(SeqCst)
    }

    /// Bytes that came back from it.
    pub fn passed_back(&self) -> u64 {
        self.shared.passed[BACK].load(SeqCst)
    }

    /// From now on so many bytes may pass towards the target and back; then it is as if it were cut.
    pub fn allow(&self, to: u64, back: u64) {
        self.shared.left[TO].store(to, SeqCst);
        self.shared.left[BACK].store(back, SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ends.store(true, SeqCst);
        self.sever();
        let _ = TcpStream::connect(&self.address);
    }
}

impl Shared {
    fn wait_until_mended(&self) {
        while self.is_cut.load(SeqCst) && !self.ends.load(SeqCst) {
            std::thread::sleep(LOOK);
        }
    }

    fn wait_until_allowed(&self, way: usize, count: u64) {
        let take = |left: u64| if left == u64::MAX { Some(left) } else { left.checked_sub(count) };
        while self.left[way].fetch_update(SeqCst, SeqCst, take).is_err() && !self.ends.load(SeqCst) {
            std::thread::sleep(LOOK);
        }
    }

    fn serve(self: Arc<Shared>, client: TcpStream) {
        self.wait_until_mended();
        let Ok(server) = TcpStream::connect(&self.target) else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        // Ends are told by a reset. After an ordinary one a sender whom no window was left waits for a minute and more.
        for stream in [&client, &server] {
            let linger = libc::linger { l_onoff: 1, l_linger: 0 };
            let size = size_of::<libc::linger>() as libc::socklen_t;
            // SAFETY: an open socket, and an option of the size that it has.
            let set = unsafe {
                libc::setsockopt(
                    stream.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_LINGER,
                    (&raw const linger).cast(),
                    size,
                )
            };
            assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
        }
        let clone = |stream: &TcpStream| stream.try_clone().unwrap();
        let number = self.next.fetch_add(1, SeqCst);
        self.connections.lock().unwrap().extend([(number, clone(&client)), (number, clone(&server))]);
        let (back_from, back_to, shared) = (clone(&server), clone(&client), self.clone());
        let back = std::thread::spawn(move || shared.copy(back_from, back_to, BACK));
        self.copy(client, server, TO);
        let _ = back.join();
        // Closed, not only shut down: whoever still sends is told.
        self.connections.lock().unwrap().retain(|(other, _)| *other != number);
    }

    fn copy(&self, mut from: TcpStream, mut to: TcpStream, way: usize) {
        let mut buffer = vec![0; 256 << 10];
        while let Ok(count) = from.read(&mut buffer) {
            self.wait_until_mended();
            self.wait_until_allowed(way, count as u64);
            if count == 0 || self.ends.load(SeqCst) || to.write_all(&buffer[..count]).is_err() {
                break;
            }
            self.passed[way].fetch_add(count as u64, SeqCst);
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}
