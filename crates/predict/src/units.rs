//! Sizes, rates and times as they are written.

use terrace_core::size::Size;

pub fn size(text: &str) -> std::result::Result<u64, String> {
    let text = text.trim_end_matches("/s");
    match Size::parse(text) {
        Ok(Size::Bytes(bytes)) => Ok(bytes),
        Ok(Size::Percent(_)) => Err(format!("`{text}` is a part of something; a number of bytes is needed")),
        Err(reason) => Err(format!("{reason}; write a number and a unit, such as `8GiB` or `500MB`")),
    }
}

pub fn seconds(text: &str) -> std::result::Result<f64, String> {
    terrace_core::size::parse_duration(text)
        .map(|duration| duration.as_secs_f64())
        .map_err(|reason| format!("{reason}; {}", terrace_core::size::DURATION_HINT))
}
