//! Requests to `terrace-web`, as they are on the wire: a test says each byte that it wants to say.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

pub struct Http {
    /// ADDRESS:PORT
    pub address: String,
    pub token: String,
}

pub struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    /// A header's value; empty: there is none of this name.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Http {
    pub fn new(url: &str, token: &str) -> Http {
        let address = url.strip_prefix("http://").expect("served in the clear").trim_end_matches('/');
        Http { address: address.into(), token: token.into() }
    }

    /// With the token.
    #[track_caller]
    pub fn get(&self, path: &str) -> Answer {
        self.get_with(path, "")
    }
    /// With more lines of the head, each ended by `\r\n`.
    #[track_caller]
    pub fn get_with(&self, path: &str, lines: &str) -> Answer {
        self.send("GET", path, &format!("Authorization: Bearer {}\r\n{lines}", self.token), b"")
    }

    #[track_caller]
    pub fn send(&self, method: &str, path: &str, lines: &str, body: &[u8]) -> Answer {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n{lines}\r\n",
            self.address,
            body.len()
        );
        let request = [head.as_bytes(), body].concat();
        self.raw(&request).unwrap_or_else(|| panic!("{method} {path} was not answered"))
    }

    /// Bytes as they are; `None`: the connection ended without an answer.
    pub fn raw(&self, request: &[u8]) -> Option<Answer> {
        let mut stream = BufReader::new(self.connect());
        // Whoever is refused early may find the connection ended.
        let _ = stream.get_mut().write_all(request);
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        let status = line.split(' ').nth(1)?.parse().ok()?;
        let mut headers = vec![];
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).ok()?;
            match line.trim_end().split_once(':') {
                Some((name, value)) => headers.push((name.to_owned(), value.trim().to_owned())),
                None => break,
            }
        }
        let mut body = vec![];
        stream.read_to_end(&mut body).ok()?;
        Some(Answer { status, headers, body })
    }

    /// Bytes that are no request, and no more after them; whatever is said to that.
    pub fn noise(&self, bytes: &[u8]) {
        let mut stream = self.connect();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut vec![]);
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("terrace-web listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }
}
