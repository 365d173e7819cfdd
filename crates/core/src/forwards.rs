//! Rules for forwarding as the user writes them: `[[forward]]` in terrace.toml, or one text for each in a flag or the environment.

use crate::declared::{Checked, FORWARD_SETTINGS};
use crate::objects::few::Condition;
use crate::refusal::{Refusal, nearest};
use crate::settings::Keep;
use std::path::PathBuf;
use toml::Value;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct WantedForward {
    pub containers: Vec<String>,
    pub targets: Vec<String>,
    /// One for all targets, or one for each.
    pub token_files: Vec<PathBuf>,
    pub fingerprints: Vec<String>,
    pub arrays: Vec<String>,
    pub conditions: Vec<String>,
    pub keep: Keep,
}

const WAY_OUT: &str = "start each rule with a line `[[forward]]`, then `container`, `target`, `token_file`";
const TEXT_WAY_OUT: &str =
    "write CONTAINER=TARGET[,TARGET…] token_file=FILE [fingerprint=HEX] [arrays=NAME,NAME] [where=>3.5,<9] [keep=none]";

pub fn of_value(entry: &Value, number: usize, origin: &str) -> Result<WantedForward, Refusal> {
    let Value::Table(table) = entry else {
        return Err(Refusal::new(format!("{origin}: forward {number} is not a table"), WAY_OUT));
    };
    let mut rule = WantedForward::default();
    for (key, value) in table {
        put(&mut rule, key, origin, |kind| kind.check(value))?;
    }
    checked(rule, number, origin)
}

/// `CONTAINER=TARGET[,TARGET…] [KEY=VALUE]…`
pub fn of_text(text: &str, number: usize, origin: &str) -> Result<WantedForward, Refusal> {
    let mut rule = WantedForward::default();
    for (position, word) in text.split_whitespace().enumerate() {
        let Some((key, value)) = word.split_once('=') else {
            return Err(Refusal::new(format!("{origin}: `{word}` in `{text}` has no `=`"), TEXT_WAY_OUT));
        };
        let listed = value.replace(',', ";");
        match position {
            0 => {
                rule.containers = vec![key.to_owned()];
                put(&mut rule, "target", origin, |kind| kind.check_text(&listed))?;
            }
            _ => put(&mut rule, key, origin, |kind| kind.check_text(&listed))?,
        }
    }
    checked(rule, number, origin)
}

fn put(
    rule: &mut WantedForward,
    key: &str,
    origin: &str,
    check: impl FnOnce(crate::declared::Kind) -> Result<Checked, crate::declared::Wrong>,
) -> Result<(), Refusal> {
    let Some(declared) = FORWARD_SETTINGS.iter().find(|declared| declared.key == key) else {
        let hint = match nearest(key, FORWARD_SETTINGS.iter().map(|declared| declared.key)) {
            Some(known) => format!("did you mean `{known}`?"),
            None => format!(
                "a rule has the keys {}",
                FORWARD_SETTINGS.iter().map(|d| format!("`{}`", d.key)).collect::<Vec<_>>().join(", ")
            ),
        };
        return Err(Refusal::new(format!("{origin}: unknown key `forward.{key}`"), hint));
    };
    let checked = check(declared.kind)
        .map_err(|(reason, hint)| Refusal::new(format!("{origin}: `forward.{key}`: {reason}"), hint))?;
    match (declared.key, checked) {
        ("container", Checked::List(list)) => rule.containers = list,
        ("target", Checked::List(list)) => rule.targets = list,
        ("token_file", Checked::List(list)) => rule.token_files = list.into_iter().map(PathBuf::from).collect(),
        ("fingerprint", Checked::List(list)) => rule.fingerprints = list,
        ("arrays", Checked::List(list)) => rule.arrays = list,
        ("where", Checked::List(list)) => rule.conditions = list,
        ("keep", Checked::Text(word)) => rule.keep = if word == "none" { Keep::None } else { Keep::Durable },
        (key, _) => unreachable!("`{key}` is checked against its kind"),
    }
    Ok(())
}

fn checked(rule: WantedForward, number: usize, origin: &str) -> Result<WantedForward, Refusal> {
    let named = match rule.containers.first() {
        Some(first) => format!("forward {number} (`{first}`)"),
        None => format!("forward {number}"),
    };
    let refuse = |what: String, hint: &str| Err(Refusal::new(format!("{origin}: {named} {what}"), hint));
    if rule.containers.is_empty() {
        return refuse("has no `container`".into(), "name containers below the root, such as container = \"run*\"");
    }
    if rule.targets.is_empty() {
        return refuse("has no `target`".into(), "name an agent, such as target = \"tcp://10.1.2.3:7788\"");
    }
    if let Err(reason) = Condition::parse(&rule.conditions) {
        return refuse(
            format!("has a `where` that can't be read: {reason}"),
            "write comparisons, such as where = \"> 3.5\"",
        );
    }
    for target in &rule.targets {
        let Some(("tcp" | "tls" | "plain", address)) = target.split_once("://") else {
            return refuse(
                format!("has the target `{target}`"),
                "agents are reached by tcp://ADDRESS:PORT, tls:// or plain://",
            );
        };
        if !has_port(address) {
            return refuse(
                format!("has the target `{target}`, which names no host with a port from 1 to 65535"),
                "write the address that the target's `terrace serve --listen` has, such as tcp://10.1.2.3:7788 or tcp://[fd00::1]:7788",
            );
        }
        if rule.targets.iter().filter(|other| *other == target).count() > 1 {
            return refuse(format!("has the target `{target}` twice"), "name each agent once");
        }
    }
    if let Some(wrong) = rule.fingerprints.iter().find(|text| plain_fingerprint(text).is_none()) {
        return refuse(
            format!("has the fingerprint `{}`, which is not 64 hexadecimal digits", wrong.escape_debug()),
            "copy it from the file beside the target's token that ends in .fingerprint",
        );
    }
    for (what, count) in [("token_file", rule.token_files.len()), ("fingerprint", rule.fingerprints.len())] {
        let is_needed = what == "token_file";
        if (is_needed && count == 0) || (count > 1 && count != rule.targets.len()) {
            return refuse(
                format!("has {count} `{what}` for {} targets", rule.targets.len()),
                "give one for all targets, or one for each",
            );
        }
    }
    Ok(rule)
}

/// `HOST:PORT`; an IPv6 address is in brackets.
fn has_port(address: &str) -> bool {
    let Some((host, port)) = address.rsplit_once(':') else { return false };
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    let is_host = !host.is_empty() && (is_bracketed || !host.contains(':'));
    is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// A certificate's fingerprint as people write it: with colons, in capitals, or as it is. `None`: it is none.
pub fn plain_fingerprint(text: &str) -> Option<String> {
    let plain: String = text.trim().chars().filter(|&c| c != ':').map(|c| c.to_ascii_lowercase()).collect();
    (plain.len() == 64 && plain.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_the_same_as_a_table_and_as_text() {
        let table: Value = toml::from_str::<toml::Table>(
            "container = \"run*\"\ntarget = [\"tcp://a:1\", \"tls://b:2\"]\ntoken_file = \"/t\"\narrays = [\"p\", \"v*\"]\nwhere = [\"> 3.5\", \"< 9\"]\nkeep = \"none\"",
        )
        .unwrap()
        .into();
        let text = "run*=tcp://a:1,tls://b:2 token_file=/t arrays=p,v* where=>3.5,<9 keep=none";
        let rule = of_text(text, 0, "--forward").unwrap();
        let of_table = of_value(&table, 0, "terrace.toml").unwrap();
        let conditions = |rule: &WantedForward| Condition::parse(&rule.conditions).unwrap();
        assert_eq!(conditions(&of_table), conditions(&rule));
        assert_eq!(WantedForward { conditions: rule.conditions.clone(), ..of_table }, rule);
        assert_eq!((rule.targets.len(), rule.keep), (2, Keep::None));
    }

    #[test]
    fn a_rule_that_can_not_be_followed_is_named_with_a_way_out() {
        for (text, word) in [
            ("run", "no `=`"),
            ("run=tcp://a:1", "0 `token_file`"),
            ("run=a:1 token_file=t", "`a:1`"),
            ("run=tcp://a:1 token_file=t keep=all", "none of"),
            ("run=tcp://a:1 token_file=t where=3.5", "begins with none of"),
            ("run=tcp://a:1 tokenfile=t", "unknown key"),
            ("run=tcp://a:1,tcp://a:1 token_file=t", "twice"),
            ("run=tcp://a:1,tcp://b:1,tcp://c:1 token_file=t,u", "2 `token_file` for 3"),
            ("run=tcp://a token_file=t", "forward 3 (`run`) has the target `tcp://a`"),
            ("run=tcp://a:99999 token_file=t", "`tcp://a:99999`"),
            ("run=tcp://a:0 token_file=t", "`tcp://a:0`"),
            ("run=tls://:7788 token_file=t", "`tls://:7788`"),
            ("run=tcp://fd00::1 token_file=t", "`tcp://fd00::1`"),
            ("run=tcp://a:1 token_file=t fingerprint=zz", "the fingerprint `zz`"),
        ] {
            let refusal = of_text(text, 3, "--forward").unwrap_err();
            assert!(refusal.message.contains(word) && !refusal.hint.is_empty(), "{text}: {refusal:?}");
        }
    }
}
