//! Secrets in short options of well-known programs. Long options say what they are.

use std::ops::Range;

/// An option whose value is secret.
struct SecretOption {
    /// What the command begins with.
    programs: &'static [&'static str],
    option: &'static str,
    value: OptionValue,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OptionValue {
    /// `-pabc`.
    Attached,
    /// `-p abc`.
    Next,
    /// `-u user:abc`.
    AfterColon,
}

const OPTIONS: &[SecretOption] = &[
    SecretOption {
        programs: &["mysql", "mariadb", "mytop", "7z", "sshpass"],
        option: "-p",
        value: OptionValue::Attached,
    },
    SecretOption {
        programs: &["sshpass", "docker login", "podman login", "mongo", "cqlsh", "clickhouse"],
        option: "-p",
        value: OptionValue::Next,
    },
    SecretOption { programs: &["redis-cli", "valkey-cli"], option: "-a", value: OptionValue::Next },
    SecretOption { programs: &["ldap"], option: "-w", value: OptionValue::Next },
    SecretOption {
        programs: &["curl", "wget", "http", "https"],
        option: "-u",
        value: OptionValue::AfterColon,
    },
    SecretOption {
        programs: &["curl", "wget", "http", "https"],
        option: "--user",
        value: OptionValue::AfterColon,
    },
    SecretOption {
        programs: &["sqlcmd", "bcp", "mosquitto", "zip", "unzip"],
        option: "-P",
        value: OptionValue::Next,
    },
];

/// How far before an option its program may be.
const MAX_BEFORE: usize = 512;

/// The secret value of the option before which `at` stands.
pub(super) fn secret_option(text: &[u8], at: usize) -> Option<Range<usize>> {
    let is_listed = text[at] == b'"';
    let start = at + 1;
    let line = text[..at].iter().rev().take(MAX_BEFORE).take_while(|byte| **byte != b'\n').count();
    let before = String::from_utf8_lossy(&text[at - line..at]);
    let rest = &text[start..];
    let runs = |programs: &[&str]| {
        let begins = |program: &&str| {
            before.match_indices(*program).any(|(place, _)| {
                before[..place]
                    .chars()
                    .next_back()
                    .is_none_or(|c| !c.is_alphanumeric() && c != '-' && c != '.')
            })
        };
        programs.iter().any(begins)
    };
    for SecretOption { programs, option, value } in OPTIONS {
        if !rest.starts_with(option.as_bytes()) {
            continue;
        }
        let behind = &rest[option.len()..];
        let is_attached =
            behind.first().is_some_and(|byte| !byte.is_ascii_whitespace() && !b"\"'".contains(byte));
        if is_attached != (*value == OptionValue::Attached) && behind.first() != Some(&b'=')
            || !runs(programs)
        {
            continue;
        }
        let gap = behind.iter().take_while(|byte| b" \t=\"',\\".contains(byte)).count();
        let word = &behind[gap..];
        let is_end =
            |byte: &u8| byte.is_ascii_whitespace() || b"\"'\\`".contains(byte) || is_listed && *byte == b',';
        let length = word.iter().position(is_end).unwrap_or(word.len());
        let word = &word[..length];
        let user = match value {
            OptionValue::AfterColon => word.iter().position(|byte| *byte == b':')? + 1,
            _ => 0,
        };
        let begin = start + option.len() + gap;
        return (length > user && !word.starts_with(b"-")).then_some(begin + user..begin + length);
    }
    None
}
