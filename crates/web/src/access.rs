//! Who is let in: programs by the token, a browser by a cookie, which it gets for an address that works once, or for the token.
//!
//! Invariant: nothing of the root is said to a request that shows neither. The token itself never stands in an address.

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use std::io::Read;
use std::path::Path;
use std::sync::Mutex;
use terrace_tool::failure::Failure;

/// As `terrace serve --listen` has it.
const TOKEN_MIN: usize = 16;
const TOKEN_MAX: usize = 4096;

pub struct Access {
    token: String,
    /// What makes an address work once.
    code: Mutex<Option<String>>,
    /// What a browser shows: of this process, so an earlier page is no key to a later one.
    pass: String,
    /// Browsers send a host's cookies to all of its ports.
    cookie: String,
    is_tls: bool,
}

pub fn read_token(file: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::invalid(format!("the token {} can't be read: {error}", file.display())))?;
    let token = text.trim();
    if !(TOKEN_MIN..=TOKEN_MAX).contains(&token.len()) {
        return Err(Failure::invalid(format!("the token in {} has fewer than {TOKEN_MIN} characters", file.display()))
            .hint("remove the file; a new one is made"));
    }
    Ok(token.to_owned())
}

fn secret() -> Result<String, Failure> {
    let mut bytes = [0u8; 24];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| Failure::new(format!("/dev/urandom can't be read: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Takes the same time for every wrong text of one length.
fn is_same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

impl Access {
    pub fn new(token: String, port: u16, is_tls: bool) -> Result<Access, Failure> {
        let code = Mutex::new(Some(secret()?));
        Ok(Access { token, code, pass: secret()?, cookie: format!("terrace-{port}"), is_tls })
    }

    /// Empty when it was used.
    pub fn code(&self) -> String {
        self.code.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone().unwrap_or_default()
    }

    pub fn allows(&self, headers: &HeaderMap) -> bool {
        let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        if let Some(token) = bearer {
            return is_same(token, &self.token);
        }
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        cookies
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .any(|(name, value)| name == self.cookie && is_same(value, &self.pass))
    }

    /// Whether what is more than reading was asked by our page, or by a program with the token. A browser sends the cookie also for
    /// pages of this host's other ports; which page asks it says itself, and no page can say another.
    pub fn is_own(&self, headers: &HeaderMap) -> bool {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let scheme = if self.is_tls { "https" } else { "http" };
        match (text(ORIGIN), text(HOST)) {
            (None, _) => headers.contains_key(AUTHORIZATION),
            (Some(origin), Some(host)) => origin.eq_ignore_ascii_case(&format!("{scheme}://{host}")),
            (Some(_), None) => false,
        }
    }

    /// The code of an address that works once: true the first time.
    pub fn takes_code(&self, given: &str) -> bool {
        let mut code = self.code.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let is_right = code.as_ref().is_some_and(|code| is_same(code, given));
        if is_right {
            *code = None;
        }
        is_right
    }

    pub fn is_token(&self, given: &str) -> bool {
        is_same(given, &self.token)
    }

    /// What a browser is told to keep. Other sites' pages can lead a reader here, which changes nothing, and can't ask in his name.
    pub fn set_cookie(&self) -> String {
        let secure = if self.is_tls { "; Secure" } else { "" };
        format!("{}={}; HttpOnly; SameSite=Lax; Path=/{secure}", self.cookie, self.pass)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> Access {
        Access::new("0123456789abcdef".into(), 81, false).unwrap()
    }

    fn shows(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())])
    }

    #[test]
    fn the_token_and_the_cookie_open_and_nothing_else_does() {
        let access = access();
        assert!(access.allows(&shows("authorization", "Bearer 0123456789abcdef")));
        assert!(access.allows(&shows("authorization", "bearer  0123456789abcdef")));
        for wrong in ["Bearer", "Bearer ", "Bearer 0123456789abcdeg", "Basic 0123456789abcdef", "0123456789abcdef"] {
            assert!(!access.allows(&shows("authorization", wrong)), "{wrong}");
        }
        let cookie = access.set_cookie();
        let pair = cookie.split(';').next().unwrap();
        assert!(access.allows(&shows("cookie", &format!("a=b; {pair}"))));
        assert!(!access.allows(&shows("cookie", &pair.replace("terrace-81", "terrace-80"))));
        assert!(!access.allows(&shows("cookie", "terrace-81=")));
        assert!(!access.allows(&HeaderMap::new()));
    }

    #[test]
    fn more_than_reading_is_for_our_page_and_for_programs() {
        let access = access();
        let from = |origin: &'static str| {
            HeaderMap::from_iter([(HOST, "127.0.0.1:81".parse().unwrap()), (ORIGIN, origin.parse().unwrap())])
        };
        assert!(access.is_own(&from("http://127.0.0.1:81")));
        for other in ["http://127.0.0.1:82", "https://127.0.0.1:81", "http://example.org", "null", ""] {
            assert!(!access.is_own(&from(other)), "{other}");
        }
        assert!(access.is_own(&shows("authorization", "Bearer 0123456789abcdef")));
        assert!(!access.is_own(&HeaderMap::new()));
    }

    #[test]
    fn an_address_works_once() {
        let access = access();
        let code = access.code();
        assert!(!access.takes_code("") && !access.takes_code("x"));
        assert!(access.takes_code(&code));
        assert!(!access.takes_code(&code) && !access.takes_code(""));
    }
}
