//! Sizes and durations as people write them: `8GiB`, `500MB`, `10%`, `200ms`, `1h30m`, `02:00:00`.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// An amount of storage: bytes, or a part of what a file system has available.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq)]
pub enum Size {
    Bytes(u64),
    Percent(f64),
}

const UNITS: [(&str, u64); 18] = [
    ("", 1),
    ("B", 1),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
    ("P", 1 << 50),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
];

impl Size {
    /// The error is the reason only; the caller knows which setting it was.
    pub fn parse(text: &str) -> Result<Size, String> {
        let text = text.trim();
        let (number, unit) = split_number(text);
        let value: f64 = number.parse().map_err(|_| format!("`{text}` is not a size"))?;
        if !value.is_finite() {
            return Err(format!("`{text}` is not a size"));
        }
        if unit == "%" {
            return match value {
                0.0..=100.0 => Ok(Size::Percent(value)),
                _ => Err(format!("`{text}` is not between 0% and 100%")),
            };
        }
        let known = UNITS.iter().find(|(name, _)| *name == unit);
        let known = known.or_else(|| UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)));
        let (_, factor) = known.ok_or_else(|| format!("`{text}` has the unknown unit `{unit}`"))?;
        // Whole numbers exactly, however large.
        let exact = number.parse::<u64>().ok().map(|n| n.checked_mul(*factor));
        let bytes = exact.unwrap_or_else(|| {
            let bytes = value * *factor as f64;
            (bytes < u64::MAX as f64).then_some(bytes.round() as u64)
        });
        bytes.map(Size::Bytes).ok_or_else(|| format!("`{text}` is too large"))
    }

    /// Bytes, where `available` is what 100% stands for.
    pub fn bytes(self, available: u64) -> u64 {
        match self {
            Size::Bytes(bytes) => bytes,
            Size::Percent(percent) => (available as f64 * percent / 100.0) as u64,
        }
    }
}

pub const SIZE_HINT: &str = "write a number and a unit, such as `8GiB`, `500MB`, or `10%` (of what is available)";

fn split_number(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// `200ms`, `60s`, `5m`, `1h30m`, `2d`, `90` (seconds), `[D-]HH:MM:SS` as batch systems write it.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let wrong = || format!("`{text}` is not a duration");
    if text.contains(':') {
        return parse_clock(text).ok_or_else(wrong);
    }
    let mut rest = text;
    let mut seconds = 0.0;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let (number, tail) = split_number(rest);
        let value: f64 = number.parse().map_err(|_| wrong())?;
        let end = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        seconds += value
            * match &tail[..end] {
                "" | "s" | "sec" => 1.0,
                "ms" => 1e-3,
                "m" | "min" => 60.0,
                "h" => 3600.0,
                "d" => 86400.0,
                _ => return Err(wrong()),
            };
        rest = tail[end..].trim_start();
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

pub const DURATION_HINT: &str = "write a number and a unit, such as `200ms`, `60s`, `1h30m`, or `HH:MM:SS`";

fn parse_clock(text: &str) -> Option<Duration> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (days.parse::<u64>().ok()?, clock),
        None => (0, text),
    };
    let parts: Vec<u64> = clock.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let seconds = match parts[..] {
        [minutes, seconds] => minutes.checked_mul(60)?.checked_add(seconds)?,
        [hours, minutes, seconds] => {
            hours.checked_mul(3600)?.checked_add(minutes.checked_mul(60)?)?.checked_add(seconds)?
        }
        _ => return None,
    };
    Some(Duration::from_secs(days.checked_mul(86400)?.checked_add(seconds)?))
}

/// `1.5 GiB`, for people.
pub fn show_bytes(bytes: u64) -> String {
    const NAMES: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < NAMES.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", NAMES[unit]) }
}

/// `2 h 5 min`, `12.3 s`, for people.
pub fn show_seconds(seconds: f64) -> String {
    match seconds {
        s if s < 0.0995 => format!("{:.1} ms", s * 1e3),
        s if s < 9.995 => format!("{s:.2} s"),
        s if s < 119.95 => format!("{s:.1} s"),
        s if s < 7170.0 => format!("{:.0} min {:.0} s", (s / 60.0).floor(), (s % 60.0).floor()),
        s => format!("{:.0} h {:.0} min", (s / 3600.0).floor(), (s % 3600.0 / 60.0).floor()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("8GiB", 8 << 30),
            ("500MB", 500_000_000),
            ("64k", 64 << 10),
            ("1.5 GiB", 3 << 29),
            ("4096", 4096),
            ("7gib", 7 << 30),
            ("2T", 2 << 40),
        ] {
            assert_eq!(Size::parse(text), Ok(Size::Bytes(bytes)), "{text}");
        }
        assert_eq!(Size::parse("10%"), Ok(Size::Percent(10.0)));
        assert_eq!(Size::Percent(10.0).bytes(1000), 100);
        for text in ["", "GiB", "8 GiBB", "-1", "101%", "1e3", "99999999999999999999", "20000000T"] {
            assert!(Size::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_read_as_people_and_batch_systems_write_them() {
        for (text, ms) in [
            ("200ms", 200),
            ("60", 60_000),
            ("1h30m", 5_400_000),
            ("2m 5s", 125_000),
            ("02:00:00", 7_200_000),
            ("1-00:00:01", 86_401_000),
            ("05:30", 330_000),
            ("0", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "abc", "5 parsecs", "1:2:3:4", "-5s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in "\\PC{0,16}") {
            let _ = Size::parse(&text);
            let _ = parse_duration(&text);
        }

        #[test]
        fn whole_bytes_are_exact(bytes: u64) {
            prop_assert_eq!(Size::parse(&bytes.to_string()), Ok(Size::Bytes(bytes)));
        }
    }
}
