//! What programs in a slot inherit of the shell that the tool was started from.
//!
//! Interpreters and build tools need their variables, and tests are steered by those of their frameworks, so most are
//! passed on. Credentials are not: a service that is debugged has no business with the cloud account of its developer.

use std::collections::BTreeMap;

use faultscope_model::SecretRules;
use faultscope_model::secrets::{SecretNames, redact_str};

/// Names, separated by commas, of variables that are passed on although they look like credentials. It is a setting of
/// whoever runs the tool and no key of the application file, so that the file of somebody else cannot ask for them.
const INHERIT: &str = "FAULTSCOPE_INHERIT";

/// Nothing starts without these, and they are no credentials, whatever they look like.
const NEEDED: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "PWD",
    "LANG",
    "TERM",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
];

/// Variables of tools that act in the name of a user: accounts of clouds, agents with keys, files with log-ins.
const ACCOUNTS: [&str; 13] = [
    "AWS_",
    "AZURE_",
    "ARM_",
    "GOOGLE_",
    "CLOUDSDK_",
    "VAULT_",
    "KUBECONFIG",
    "SSH_",
    "GPG_AGENT_INFO",
    "DOCKER_",
    "PGPASSFILE",
    "PGSERVICEFILE",
    "DBUS_SESSION_BUS_ADDRESS",
];

/// The environment that programs in a slot inherit.
pub(super) fn inherited_environment() -> BTreeMap<String, String> {
    let declared = std::env::var(INHERIT).unwrap_or_default();
    let declared: Vec<&str> = declared.split(',').map(str::trim).collect();
    let names = SecretNames::new(&SecretRules::default());
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, value)| is_passed_on(name, value, &declared, &names))
        .collect()
}

fn is_passed_on(name: &str, value: &str, declared: &[&str], names: &SecretNames) -> bool {
    // The tool's own settings, and proxies, which cannot be reached from a slot.
    if name.starts_with("FAULTSCOPE_") || name.to_ascii_lowercase().ends_with("_proxy") {
        return false;
    }
    if declared.contains(&name)
        || NEEDED.contains(&name)
        || name.starts_with("LC_")
        || name.starts_with("XDG_")
    {
        return true;
    }
    let is_account = ACCOUNTS.iter().any(|prefix| name.starts_with(prefix));
    let is_secret = names.field_suspicion(name).hides(value.as_bytes()) || redact_str(value, names).is_some();
    !is_account && !is_secret
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_the_shell_stay_there() {
        let names = SecretNames::new(&SecretRules::default());
        let passes = |name: &str, value: &str| is_passed_on(name, value, &["NPM_TOKEN"], &names);
        for (name, value) in [
            ("AWS_SECRET_ACCESS_KEY", "hunter2"),
            ("AWS_PROFILE", "production"),
            ("GITHUB_TOKEN", "hunter2"),
            ("CARGO_REGISTRY_TOKEN", "hunter2"),
            ("DB_PASSWORD", "hunter2"),
            ("PGPASSWORD", "hunter2"),
            ("OPENAI_API_KEY", "hunter2"),
            ("DATABASE_URL", "postgres://app:hunter2@db/orders"),
            ("EDITOR_NOTES", "ghp_0123456789abcdefghijABCDEFGHIJ012345"),
            ("SSH_AUTH_SOCK", "/tmp/agent"),
            ("KUBECONFIG", "/home/ann/.kube/config"),
            ("GOOGLE_APPLICATION_CREDENTIALS", "/home/ann/key.json"),
            ("VAULT_ADDR", "https://vault:8200"),
            ("FAULTSCOPE_TOKEN", "x"),
            ("https_proxy", "http://proxy:3128"),
        ] {
            assert!(!passes(name, value), "{name}");
        }
        for (name, value) in [
            ("PATH", "/usr/bin:/home/ann/.local/share/token/bin"),
            ("HOME", "/home/ann"),
            ("LANG", "de_DE.UTF-8"),
            ("LC_ALL", "C"),
            ("XDG_SESSION_ID", "3"),
            ("JAVA_HOME", "/usr/lib/jvm/17"),
            ("NODE_ENV", "test"),
            ("NODE_OPTIONS", "--max-old-space-size=512"),
            ("VIRTUAL_ENV", "/home/ann/venv"),
            ("GOPATH", "/home/ann/go"),
            ("RUST_LOG", "debug"),
            ("CARGO_HOME", "/home/ann/.cargo"),
            ("PYTEST_ADDOPTS", "-q -x"),
            ("CI", "true"),
            ("DATABASE_HOST", "db"),
            ("NPM_TOKEN", "hunter2"),
        ] {
            assert!(passes(name, value), "{name}");
        }
    }
}
