//! Runs the tool in a folder of its own.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use crate::fixture::Fixture;
use crate::output::Output;
use crate::running::Running;
use crate::view::RunView;

/// How long a tool may be idle: one that hangs must not block the tests.
const WITHIN: Duration = Duration::from_secs(120);

/// The tool, with a folder for the application and another one for temporary files.
#[derive(Debug)]
pub struct Faultscope {
    program: PathBuf,
    folder: TempDir,
    before: Vec<OsString>,
    env: BTreeMap<String, String>,
}

impl Faultscope {
    /// The built program in an empty folder.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let folder = tempfile::Builder::new().prefix("fs-test-").tempdir().expect("a temporary folder");
        for name in ["app", "tmp", "data"] {
            fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        Self { program: program.into(), folder, before: Vec::new(), env: BTreeMap::new() }
    }

    /// The built program in a folder with this application.
    pub fn with(program: impl Into<PathBuf>, fixture: &Fixture) -> Self {
        let tool = Self::new(program);
        fixture.write(&tool.folder());
        tool
    }

    /// Sets an environment variable of the tool.
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.insert(name.to_owned(), value.into());
        self
    }

    /// Runs the tool as a user without privileges, from a copy that this user can read.
    pub fn unprivileged(mut self) -> Self {
        const NOBODY: u32 = 65534;
        let copy = self.folder.path().join("faultscope");
        fs::copy(&self.program, &copy).expect("a copy of the program");
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("permissions");
        self.program = copy;
        for path in [self.folder.path().to_owned(), self.folder(), self.temporary(), self.data()] {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("permissions");
        }
        self.before = ["setpriv", "--clear-groups", "--inh-caps=-all"]
            .into_iter()
            .map(OsString::from)
            .chain([format!("--reuid={NOBODY}").into(), format!("--regid={NOBODY}").into()])
            .collect();
        self.env.insert("HOME".into(), "/nonexistent".into());
        self
    }

    /// Runs the tool with these limits of open files; call it last.
    pub fn open_files(mut self, soft: u64, hard: u64) -> Self {
        let limited = ["prlimit".into(), format!("--nofile={soft}:{hard}").into()];
        self.before.splice(0..0, limited);
        self
    }

    /// Runs the tool with this limit of file sizes in bytes; call it last.
    pub fn file_size(mut self, bytes: u64) -> Self {
        self.before.splice(0..0, ["prlimit".into(), format!("--fsize={bytes}").into()]);
        self
    }

    /// The application's folder, in which the tool runs.
    pub fn folder(&self) -> PathBuf {
        self.folder.path().join("app")
    }

    /// The folder for temporary files.
    pub fn temporary(&self) -> PathBuf {
        self.folder.path().join("tmp")
    }

    /// The user's data folder, which contains the tool's key.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The tool's own program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Writes a file into the application's folder.
    pub fn write(&self, path: &str, text: &str) -> &Self {
        let path = self.folder().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
        self
    }

    /// Reads a file of the application's folder.
    #[track_caller]
    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.folder().join(path)).expect("a file")
    }

    /// Runs the tool to its end.
    #[track_caller]
    pub fn run<S: AsRef<str>>(&self, words: impl IntoIterator<Item = S>) -> Output {
        self.start(words).finish(WITHIN)
    }

    /// Runs a command line that the tool has printed, split as by a shell.
    #[track_caller]
    pub fn pasted(&self, line: &str) -> Output {
        let words = line.strip_prefix("faultscope ").expect("a command of the tool");
        let split = Command::new("sh").arg("-c").arg(format!("printf '%s\\0' {words}")).output();
        let split = String::from_utf8(split.expect("a shell").stdout).expect("text");
        self.run(split.split_terminator('\0'))
    }

    /// Starts the tool and leaves it running.
    #[track_caller]
    pub fn start<S: AsRef<str>>(&self, words: impl IntoIterator<Item = S>) -> Running {
        let words: Vec<String> = words.into_iter().map(|w| w.as_ref().to_owned()).collect();
        let mut line = self.before.clone();
        line.push(self.program.clone().into());
        line.extend(words.iter().map(OsString::from));
        let mut command = Command::new(&line[0]);
        command
            .args(&line[1..])
            .current_dir(self.folder())
            // The developer's own settings must not affect the tests.
            .env_remove("FAULTSCOPE_LOG")
            .env_remove("FAULTSCOPE_ENVOY")
            .env("NO_COLOR", "1")
            .env("COLUMNS", "100")
            .env("TMPDIR", self.temporary())
            .env("XDG_DATA_HOME", self.data())
            .envs(&self.env);
        let masks = [
            (self.folder().display().to_string(), "<folder>"),
            (self.temporary().display().to_string(), "<tmp>"),
            (self.program.display().to_string(), "<faultscope>"),
        ];
        let masks = masks.map(|(path, name)| (path, name.to_owned()));
        Running::start(command, words.join(" "), masks.to_vec())
    }

    /// Runs the tool with `--json`, asserts the exit code, and returns what it printed.
    #[track_caller]
    pub fn json<S: AsRef<str>>(&self, words: impl IntoIterator<Item = S>, code: i32) -> serde_json::Value {
        let words = words.into_iter().map(|w| w.as_ref().to_owned());
        let output = self.run(words.chain(["--json".to_owned()]));
        output.expect(code).json()
    }

    /// Runs `test` with these arguments, asserts the exit code, and returns the newest run with its calls.
    #[track_caller]
    pub fn tested<S: AsRef<str>>(&self, words: impl IntoIterator<Item = S>, code: i32) -> RunView {
        let words = words.into_iter().map(|w| w.as_ref().to_owned());
        self.run(["test".to_owned()].into_iter().chain(words)).expect(code);
        self.last_run()
    }

    /// The newest stored run with its calls.
    #[track_caller]
    pub fn last_run(&self) -> RunView {
        RunView::new(self.json(["runs", "show"], 0))
    }
}

/// A port on the loopback interface that no other test of this process uses.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Below the ports that the kernel assigns to clients, and separate from those of other test processes.
    let base = 20_000 + u16::try_from(std::process::id() % 100).unwrap_or_default() * 100;
    loop {
        let port = base + NEXT.fetch_add(1, Ordering::Relaxed) % 100;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}
