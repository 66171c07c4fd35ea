//! Procfiles: one `name: command` per line, as foreman runs them.

use std::collections::BTreeMap;

use super::interpolate::Interpolation;
use super::shell::{needs_shell, split_words};
use super::{
    ImportError, Imported, ImportedApplication, ImportedPort, ImportedReadiness, ImportedService, dotenv,
    is_service_name,
};

/// The port of the first process; the following ones get the next hundreds.
const FIRST_PORT: u16 = 5000;

/// The most processes of a Procfile: foreman counts ports in hundreds, and 65,535 is the last one.
const MAX_PROCESSES: usize = 600;

/// Reads a Procfile as an application called `name`; `dotenv` is the text of its `.env` file.
///
/// Each process gets a port of its own in `PORT`, counted as foreman counts them, unless its command names one.
/// A command that means something to a shell is run by one.
pub fn from_procfile(
    name: &str,
    file: &str,
    text: &str,
    dotenv: Option<&str>,
) -> Result<Imported, ImportError> {
    let shared: BTreeMap<String, String> = dotenv::parse(
        dotenv.unwrap_or_default(),
        dotenv::Reading::Literal,
        &Interpolation::default(),
        &|_| None,
    )
    .map_err(|(line, message)| ImportError::at(".env", line, message))?
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect();
    let base = match shared.get("PORT") {
        Some(port) => port
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| ImportError::at(".env", 0, format!("PORT `{port}` is not a port")))?,
        None => FIRST_PORT,
    };

    let mut application = ImportedApplication { name: name.to_owned(), ..ImportedApplication::default() };
    let mut warnings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = u32::try_from(index + 1).unwrap_or(0);
        let refuse = |message: String| ImportError::at(file, number, message);
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((process, command)) = line.split_once(':').map(|(p, c)| (p.trim(), c.trim())) else {
            return Err(refuse("a line reads `name: command`".to_owned()));
        };
        if !is_service_name(process) {
            return Err(refuse(format!(
                "`{}` cannot name a service",
                process.chars().take(40).collect::<String>()
            )));
        }
        if command.is_empty() {
            return Err(refuse(format!("`{process}` has no command")));
        }
        if application.services.contains_key(process) {
            return Err(refuse(format!("`{process}` is given twice")));
        }
        if process == "release" {
            warnings.push(
                "service `release` usually runs once before the others; make it the `setup`".to_owned(),
            );
        }
        let offset = application.services.len();
        let port = u16::try_from(offset)
            .ok()
            .filter(|_| offset < MAX_PROCESSES)
            .and_then(|n| find_given_port(base, n));
        let given = port.ok_or_else(|| refuse("there are more processes than ports".to_owned()))?;
        let own = find_own_port(&split_words(command).map_err(|message| refuse(message.to_owned()))?);
        let port = own.unwrap_or(given);
        let service = make_service(command, port, own.is_some() || process == WEB, &shared)
            .map_err(|message| refuse(message.to_owned()))?;
        if service.ready.is_some() {
            warnings.push(format!(
                "service `{process}`: its command does not mention PORT; if it never listens on {port}, remove `ports`"
            ));
        }
        application.services.insert(process.to_owned(), service);
    }
    if application.services.is_empty() {
        return Err(ImportError::at(file, 0, "no process is given"));
    }
    application.header = vec![
        format!("Made by `faultscope init` from {file}."),
        "Each process has its port in PORT, as foreman gives them.".to_owned(),
    ];
    Ok(Imported { application, warnings })
}

fn find_given_port(base: u16, n: u16) -> Option<u16> {
    base.checked_add(n.checked_mul(100)?)
}

/// The port that a command names itself: `PORT=8080 server`, `server --port 8080`, `server -p 8080`.
fn find_own_port(words: &[String]) -> Option<u16> {
    let port = |text: &str| text.parse().ok().filter(|port: &u16| *port > 0);
    let mut found = None;
    for (place, word) in words.iter().enumerate() {
        let joined = ["PORT=", "--port=", "-p="].iter().find_map(|start| word.strip_prefix(start));
        let next = matches!(word.as_str(), "--port" | "-port" | "-p").then(|| words.get(place + 1)).flatten();
        found = found.or_else(|| joined.or(next.map(String::as_str)).and_then(port));
    }
    found
}

/// The process that answers requests at its port, by the custom of Procfiles.
const WEB: &str = "web";

fn make_service(
    command: &str,
    port: u16,
    uses_it: bool,
    shared: &BTreeMap<String, String>,
) -> Result<ImportedService, &'static str> {
    // Only a process that uses its port can be waited for there; a worker counts as ready at once.
    let listens = uses_it || command.contains("PORT");
    let ready =
        (!listens).then(|| ImportedReadiness { command: vec!["true".to_owned()], ..Default::default() });
    let mut words = split_words(command)?;
    // A word of the shell, and no program; without a shell there is nothing to take the place of.
    if words.first().is_some_and(|word| word == "exec") {
        words.remove(0);
    }
    let command = if needs_shell(command) || words.is_empty() {
        // `exec` lets signals reach the program instead of the shell, where it is a single command.
        let single = !command.contains(['|', '&', ';', '(', '\n', '=']);
        let script = if single && !command.starts_with("exec ") {
            format!("exec {command}")
        } else {
            command.to_owned()
        };
        vec!["sh".to_owned(), "-c".to_owned(), script]
    } else {
        words
    };
    let mut env = shared.clone();
    env.insert("PORT".to_owned(), port.to_string());
    Ok(ImportedService {
        command,
        ports: vec![ImportedPort::Plain(port)],
        env,
        ready,
        ..ImportedService::default()
    })
}
