//! How people attach a debugger to a command, by language.

use std::fmt;

use serde::Serialize;

/// A debugger that a command starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Debugger {
    /// Python's debugpy.
    Debugpy,
    /// The inspector of Node.
    Inspector,
    /// The debug wire protocol of Java.
    Jdwp,
    /// Go's Delve.
    Delve,
    /// The server of gdb, for Rust, C and C++.
    Gdbserver,
    /// The server of lldb, for the same.
    LldbServer,
}

/// Where a debugger listens, and how to attach to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AttachHint {
    /// The debugger.
    pub debugger: Debugger,
    /// The port in the instance.
    pub port: u16,
}

impl AttachHint {
    /// Recognizes the debugger of a command and its port; none if there is no debugger that listens.
    pub fn find(command: &[String]) -> Option<Self> {
        command.iter().enumerate().find_map(|(at, word)| recognize(word, &command[at + 1..]))
    }

    /// What to type, or to enter in an editor, when it listens on this port of the loopback interface.
    pub fn instructions(&self, port: u16) -> String {
        match self.debugger {
            Debugger::Debugpy => format!(
                "in VS Code: {{\"type\": \"debugpy\", \"request\": \"attach\", \"connect\": {{\"host\": \"127.0.0.1\", \"port\": {port}}}}}"
            ),
            Debugger::Inspector => {
                format!("open chrome://inspect and add 127.0.0.1:{port}, or `node inspect 127.0.0.1:{port}`")
            }
            Debugger::Jdwp => {
                format!("`jdb -attach 127.0.0.1:{port}`, or a remote JVM configuration of the editor")
            }
            Debugger::Delve => format!("`dlv connect 127.0.0.1:{port}`"),
            Debugger::Gdbserver => {
                format!("`gdb -ex 'target remote 127.0.0.1:{port}'`, or `rust-gdb` for Rust")
            }
            Debugger::LldbServer => {
                format!("`lldb -o 'gdb-remote 127.0.0.1:{port}'`, or `rust-lldb` for Rust")
            }
        }
    }

    /// Commands that start a service in a debugger, one for each language.
    pub fn examples() -> [(&'static str, &'static str); 5] {
        [
            ("Python", "python -m debugpy --listen 5678 --wait-for-client app.py"),
            ("Node", "node --inspect-brk=9229 app.js"),
            ("Java", "java -agentlib:jdwp=transport=dt_socket,server=y,suspend=y,address=5005 -jar app.jar"),
            ("Go", "dlv exec ./app --headless --listen :2345 --accept-multiclient"),
            ("Rust", "gdbserver :2345 ./app"),
        ]
    }
}

impl fmt::Display for Debugger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Debugpy => "debugpy",
            Self::Inspector => "the inspector of Node",
            Self::Jdwp => "the debug port of Java",
            Self::Delve => "Delve",
            Self::Gdbserver => "gdbserver",
            Self::LldbServer => "lldb-server",
        })
    }
}

fn recognize(word: &str, rest: &[String]) -> Option<AttachHint> {
    let hint = |debugger, port| Some(AttachHint { debugger, port });
    let listen = |default| option(rest, "--listen").and_then(|address| port_of(&address)).or(default);
    let name = word.rsplit('/').next().unwrap_or(word);
    if name == "debugpy" {
        return hint(Debugger::Debugpy, listen(Some(5678))?);
    }
    if name == "dlv" {
        // Without a port Delve chooses one that nobody knows.
        return hint(Debugger::Delve, listen(None)?);
    }
    if name == "gdbserver" {
        let address = rest.iter().find(|word| !word.starts_with('-'))?;
        return hint(Debugger::Gdbserver, port_of(address)?);
    }
    if name == "lldb-server" {
        return rest.iter().find_map(|word| port_of(word)).and_then(|port| hint(Debugger::LldbServer, port));
    }
    for flag in ["--inspect-brk", "--inspect-wait", "--inspect"] {
        match word.strip_prefix(flag) {
            Some("") => return hint(Debugger::Inspector, 9229),
            Some(value) if value.starts_with('=') => {
                return hint(Debugger::Inspector, port_of(&value[1..]).unwrap_or(9229));
            }
            _ => {}
        }
    }
    let jdwp = word.strip_prefix("-agentlib:jdwp=").or(word.strip_prefix("-Xrunjdwp:"))?;
    let address = jdwp.split(',').find_map(|part| part.strip_prefix("address="))?;
    hint(Debugger::Jdwp, port_of(address)?)
}

/// The value of an option, after a blank or `=`.
fn option(words: &[String], name: &str) -> Option<String> {
    words.iter().enumerate().find_map(|(at, word)| {
        let value = word.strip_prefix(name)?;
        if value.is_empty() { words.get(at + 1).cloned() } else { value.strip_prefix('=').map(str::to_owned) }
    })
}

/// The port of `5678`, `:5678`, `*:5678` or `0.0.0.0:5678`.
fn port_of(address: &str) -> Option<u16> {
    let port = address.rsplit(':').next().unwrap_or(address);
    port.parse().ok().filter(|port| *port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debuggers_are_recognized_with_their_ports() {
        let find = |text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            AttachHint::find(&words).map(|hint| (hint.debugger, hint.port))
        };
        for (text, expected) in [
            ("python -m debugpy --listen 0.0.0.0:5679 app.py", Some((Debugger::Debugpy, 5679))),
            ("python -m debugpy --listen=5680 --wait-for-client -m app", Some((Debugger::Debugpy, 5680))),
            ("node --inspect-brk app.js", Some((Debugger::Inspector, 9229))),
            ("node --inspect=0.0.0.0:9300 app.js", Some((Debugger::Inspector, 9300))),
            (
                "java -agentlib:jdwp=transport=dt_socket,server=y,suspend=n,address=*:5005 -jar a.jar",
                Some((Debugger::Jdwp, 5005)),
            ),
            ("/go/bin/dlv exec ./app --headless --listen :2345", Some((Debugger::Delve, 2345))),
            ("gdbserver --once :2346 ./app --listen 1", Some((Debugger::Gdbserver, 2346))),
            ("lldb-server g *:2347 -- ./app", Some((Debugger::LldbServer, 2347))),
            ("dlv exec ./app", None),
            ("node app.js --inspected", None),
            ("python app.py", None),
            ("gdbserver :0 ./app", None),
        ] {
            assert_eq!(find(text), expected, "{text}");
        }
        for (language, example) in AttachHint::examples() {
            let (_, port) = find(example).unwrap_or_else(|| panic!("{language}"));
            let words: Vec<String> = example.split(' ').map(str::to_owned).collect();
            let hint = AttachHint::find(&words).unwrap();
            assert!(hint.instructions(port).contains("127.0.0.1"), "{language}");
        }
    }
}
