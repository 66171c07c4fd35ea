//! Builds a Go program once and caches it, since fetching and building takes longer than all other tests.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the program built from these files; builds it only if no earlier test has done so.
pub(crate) fn build(built: &Path, files: &[(&str, &str)]) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    let folder = built.join(format!("go-{:016x}", hasher.finish()));
    fs::create_dir_all(&folder).expect("a folder");
    // Tests run at the same time, in one process and in several.
    let lock = File::create(folder.join("lock")).expect("a lock file");
    lock.lock().expect("a lock");
    let program = folder.join("program");
    if program.exists() {
        return program;
    }
    for (name, text) in files {
        fs::write(folder.join(name), text).expect("a file");
    }
    let fresh = folder.join("program.new");
    let output = Command::new("go")
        .args(["build", "-o"])
        .arg(&fresh)
        .arg(".")
        .current_dir(&folder)
        // A static program runs in any namespace and needs no C compiler.
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-mod=readonly")
        .output()
        .expect("`go` is needed to build a gRPC client and server");
    assert!(output.status.success(), "go build: {}", String::from_utf8_lossy(&output.stderr));
    // Renamed when complete, so that nobody uses half a program.
    fs::rename(&fresh, &program).expect("a program");
    program
}
