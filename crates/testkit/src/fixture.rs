//! Small applications with known answers, written into a test's folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::golang;

/// The files of an application.
#[derive(Debug, Clone)]
pub struct Fixture {
    files: Vec<(String, String)>,
    programs: Vec<(String, PathBuf)>,
}

impl Fixture {
    fn from_files(files: &[(&str, &str)]) -> Self {
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        Self { files: files.iter().map(owned).collect(), programs: Vec::new() }
    }

    /// Adds or replaces a file.
    #[must_use]
    pub fn file(mut self, path: &str, text: &str) -> Self {
        self.files.retain(|(known, _)| known != path);
        self.files.push((path.to_owned(), text.to_owned()));
        self
    }

    /// Puts all files below a folder, as the last step.
    #[must_use]
    pub fn below(mut self, folder: &str) -> Self {
        self.files.iter_mut().for_each(|(path, _)| *path = format!("{folder}/{path}"));
        self.programs.iter_mut().for_each(|(path, _)| *path = format!("{folder}/{path}"));
        self
    }

    /// Replaces the application file.
    #[must_use]
    pub fn application(self, text: &str) -> Self {
        self.file("faultscope.yaml", text)
    }

    /// Replaces a text in the application file, which must contain it.
    #[must_use]
    #[track_caller]
    pub fn replace(mut self, from: &str, to: &str) -> Self {
        let file = self.files.iter_mut().find(|(path, _)| path == "faultscope.yaml");
        let (_, text) = file.expect("an application file");
        assert!(text.contains(from), "the application file has no `{from}`");
        *text = text.replacen(from, to, 1);
        self
    }

    /// Appends lines to the application file.
    #[must_use]
    #[track_caller]
    pub fn more(mut self, lines: &str) -> Self {
        let file = self.files.iter_mut().find(|(path, _)| path == "faultscope.yaml");
        let (_, text) = file.expect("an application file");
        text.push_str(lines);
        self
    }

    pub(crate) fn write(&self, folder: &Path) {
        for (path, text) in &self.files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        for (path, program) in &self.programs {
            let path = folder.join(path);
            fs::copy(program, &path).expect("a program");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permissions");
        }
    }
}

/// `order` calls `stock`, both in Python with only its standard library, on fixed ports.
pub fn python() -> Fixture {
    Fixture::from_files(&[
        ("order.py", include_str!("../fixtures/python/order.py")),
        ("stock.py", include_str!("../fixtures/python/stock.py")),
        ("client.py", include_str!("../fixtures/python/client.py")),
        ("faultscope.yaml", include_str!("../fixtures/python/faultscope.yaml")),
    ])
}

/// A server of one small file in Python, for curl: ranges, uploads with a length and in chunks, rejections. It has no
/// tests yet.
pub fn files() -> Fixture {
    let application =
        "name: files\nservices:\n  files: { command: [\"python3\", \"files.py\"], ports: [8000] }\n";
    Fixture::from_files(&[
        ("files.py", include_str!("../fixtures/python/files.py")),
        ("faultscope.yaml", application),
    ])
}

/// `gateway` calls `price` in Node, over kept-alive connections; `price` also speaks HTTP/2.
pub fn node() -> Fixture {
    Fixture::from_files(&[
        ("gateway.js", include_str!("../fixtures/node/gateway.js")),
        ("price.js", include_str!("../fixtures/node/price.js")),
        ("http2-client.js", include_str!("../fixtures/node/http2-client.js")),
        ("faultscope.yaml", include_str!("../fixtures/node/faultscope.yaml")),
    ])
}

/// `front` calls `back`; both are the tool's own cells and need nothing else. The spec also has `desk`, which makes
/// three calls at once (`POST /at-once`) or in turn (`POST /in-turn`), and `log`.
pub fn cells() -> Fixture {
    Fixture::from_files(&[
        ("cells.yaml", include_str!("../fixtures/cell/cells.yaml")),
        ("faultscope.yaml", include_str!("../fixtures/cell/faultscope.yaml")),
    ])
}

/// A WebSocket echo in Node and a client in Python.
pub fn websocket() -> Fixture {
    Fixture::from_files(&[
        ("echo.js", include_str!("../fixtures/websocket/echo.js")),
        ("client.py", include_str!("../fixtures/websocket/client.py")),
        ("faultscope.yaml", include_str!("../fixtures/websocket/faultscope.yaml")),
    ])
}

/// A gRPC health server and its client in Go, built once into the given folder.
pub fn grpc(built: &str) -> Fixture {
    let files = [
        ("main.go", include_str!("../fixtures/go/main.go")),
        ("go.mod", include_str!("../fixtures/go/go.mod")),
        ("go.sum", include_str!("../fixtures/go/go.sum")),
    ];
    let program = golang::build(Path::new(built), &files);
    let mut fixture =
        Fixture::from_files(&[("faultscope.yaml", include_str!("../fixtures/go/faultscope.yaml"))]);
    fixture.programs.push(("grpc".into(), program));
    fixture
}
