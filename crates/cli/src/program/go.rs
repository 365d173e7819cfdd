//! What Go's tool chain writes into each of its programs (the buildinfo section): version and build settings.
//!
//! Layout since Go 1.18: `\xff Go buildinf:`, a byte of pointer size, a byte of flags (2: the strings follow inline), up to 32
//! bytes; then two strings, each a varint length and its bytes: the version and the module's information.

const MAGIC: &[u8] = b"\xff Go buildinf:";
const HEADER: usize = 32;
const INLINE: u8 = 2;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoBuild {
    pub version: Option<String>,
    /// Does it call C, so that a C library is in it? Unknown for programs of old tool chains.
    pub has_cgo: Option<bool>,
}

impl GoBuild {
    pub fn of(section: &[u8]) -> GoBuild {
        GoBuild::parse(section).unwrap_or_default()
    }

    fn parse(section: &[u8]) -> Option<GoBuild> {
        if !section.starts_with(MAGIC) || section.get(MAGIC.len() + 1)? & INLINE == 0 {
            return None;
        }
        let (version, rest) = string(section.get(HEADER..)?)?;
        let (settings, _) = string(rest)?;
        let settings = String::from_utf8_lossy(settings);
        let cgo = settings.lines().find_map(|line| line.strip_prefix("build\tCGO_ENABLED="));
        Some(GoBuild {
            version: Some(String::from_utf8_lossy(version).into_owned()),
            has_cgo: cgo.map(|value| value == "1"),
        })
    }
}

/// A string and what follows it.
fn string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut length = 0usize;
    for (i, byte) in bytes.iter().take(5).enumerate() {
        length |= ((byte & 0x7f) as usize) << (7 * i);
        if byte & 0x80 == 0 {
            return bytes.get(i + 1..)?.split_at_checked(length);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_and_settings_are_read() {
        let mut section = MAGIC.to_vec();
        section.extend([8, INLINE]);
        section.resize(HEADER, 0);
        let settings = "path\tx\nbuild\tCGO_ENABLED=0\nbuild\tGOOS=linux\n".repeat(4);
        section.extend([7]);
        section.extend(b"go1.26.");
        section.extend([(settings.len() as u8 & 0x7f) | 0x80, (settings.len() >> 7) as u8]);
        section.extend(settings.as_bytes());
        let build = GoBuild::of(&section);
        assert_eq!((build.version.as_deref(), build.has_cgo), (Some("go1.26."), Some(false)));
    }

    #[test]
    fn what_is_cut_short_is_unknown() {
        let mut section = MAGIC.to_vec();
        section.extend([8, INLINE]);
        section.resize(HEADER, 0);
        section.extend([0xff, 0xff, 0xff, 0xff, 0xff]);
        for length in 0..section.len() {
            assert_eq!(GoBuild::of(&section[..length]), GoBuild::default());
        }
    }
}
