//! What a store must know of us: variables of the environment, and for S3 the files of the AWS command line.

use ini::Ini;
use std::path::PathBuf;
use terrace_tool::failure::{Failure, Result};

/// Variables with that prefix, with names in lower case, as the client's settings are called.
pub fn of_environment(prefix: &str) -> Vec<(String, String)> {
    let variables = std::env::vars_os();
    let named = variables.filter_map(|(name, value)| {
        let name = name.to_str()?.to_ascii_lowercase();
        name.starts_with(prefix).then_some(())?;
        Some((name, value.into_string().ok()?))
    });
    named.collect()
}

/// Whether the server that settings name is one without TLS: then it is what was asked for.
pub fn name_a_plain_server(settings: &[(String, String)]) -> bool {
    let names_server = |name: &str| name.contains("endpoint") || name.contains("base_url");
    settings.iter().any(|(name, value)| names_server(name) && value.starts_with("http://"))
}

/// The environment's settings, and whether they are for a server that asks nobody who he is: `STORAGE_EMULATOR_HOST` is Google's own
/// clients' way to name one.
pub fn google() -> (Vec<(String, String)>, bool) {
    let mut settings = of_environment("google_");
    let emulator = std::env::var("STORAGE_EMULATOR_HOST").ok().filter(|server| !server.is_empty());
    let is_emulator = emulator.is_some();
    settings.extend(emulator.map(|server| {
        let url = if server.contains("://") { server } else { format!("http://{server}") };
        ("google_base_url".into(), url)
    }));
    (settings, is_emulator)
}

/// The environment's settings; what it leaves out comes from `~/.aws/credentials` and `~/.aws/config` ([AWS CLI: configuration and
/// credential file settings]), by `AWS_PROFILE`.
pub fn aws() -> Result<Vec<(String, String)>> {
    let mut settings = of_environment("aws_");
    let profile = std::env::var("AWS_PROFILE").ok().filter(|name| !name.is_empty());
    let of_files = of_profile(
        profile.as_deref().unwrap_or("default"),
        read("AWS_SHARED_CREDENTIALS_FILE", "credentials")?.as_ref(),
        read("AWS_CONFIG_FILE", "config")?.as_ref(),
    );
    if let (Some(profile), true) = (&profile, of_files.is_empty()) {
        return Err(Failure::bad_input(
            format!(
                "AWS_PROFILE names the profile {profile:?}, and neither ~/.aws/credentials nor ~/.aws/config has it"
            ),
            "correct AWS_PROFILE, or unset it",
        ));
    }
    // Keys belong together: a token of a file is not for a key of the environment.
    let has_key = settings.iter().any(|(name, _)| name == "aws_access_key_id");
    for (name, value) in of_files {
        let is_key = matches!(name.as_str(), "aws_access_key_id" | "aws_secret_access_key" | "aws_session_token");
        let is_there = settings.iter().any(|(known, _)| *known == name);
        if !(is_there || is_key && has_key) {
            settings.push((name, value));
        }
    }
    Ok(settings)
}

fn of_profile(profile: &str, credentials: Option<&Ini>, config: Option<&Ini>) -> Vec<(String, String)> {
    let mut found = vec![];
    let in_credentials = credentials.and_then(|file| file.section(Some(profile)));
    let in_config = config
        .and_then(|file| file.section(Some(format!("profile {profile}"))).or_else(|| file.section(Some(profile))));
    let named = [
        ("aws_access_key_id", "aws_access_key_id"),
        ("aws_secret_access_key", "aws_secret_access_key"),
        ("aws_session_token", "aws_session_token"),
        ("region", "aws_region"),
        ("endpoint_url", "aws_endpoint_url"),
    ];
    for (in_file, name) in named {
        let value = [in_credentials, in_config].into_iter().flatten().find_map(|section| section.get(in_file));
        found.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    }
    found
}

fn read(variable: &str, name: &str) -> Result<Option<Ini>> {
    let path = match std::env::var_os(variable).filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => match std::env::home_dir() {
            Some(home) => home.join(".aws").join(name),
            None => return Ok(None),
        },
    };
    match Ini::load_from_file(&path) {
        Ok(file) => Ok(Some(file)),
        Err(ini::Error::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::io("read", &path, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_has_its_keys_from_one_file_and_its_place_from_the_other() {
        let credentials = Ini::load_from_str(
            "[default]\naws_access_key_id = A\naws_secret_access_key = s\n[other]\naws_access_key_id=B\n",
        );
        let config =
            Ini::load_from_str("[default]\nregion = eu-west-1\n[profile other]\nendpoint_url = http://h:9000\n");
        let of = |profile: &str| of_profile(profile, credentials.as_ref().ok(), config.as_ref().ok());
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            of("default"),
            [pair("aws_access_key_id", "A"), pair("aws_secret_access_key", "s"), pair("aws_region", "eu-west-1")]
        );
        assert_eq!(of("other"), [pair("aws_access_key_id", "B"), pair("aws_endpoint_url", "http://h:9000")]);
        assert_eq!(of("none"), []);
    }
}
