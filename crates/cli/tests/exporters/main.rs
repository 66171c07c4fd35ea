//! Programs of others and the built tool: exporters that send to it, a Zipkin that it is compared with, a
//! Jaeger that it reads from, collectors that it hands on to. `./test.sh exporters` installs them all under
//! `target/exporters` and runs these.

#![expect(clippy::print_stderr, reason = "what others printed explains a failure")]

mod clients;
mod corners;
mod forwarding;
mod http;
mod jaeger;
mod little;
mod peers;
mod server;
mod slot;
mod zipkin;

use std::path::{Path, PathBuf};

/// Where `./test.sh exporters` installs programs.
fn installed(path: &str) -> PathBuf {
    let found = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("exporters").join(path);
    assert!(found.exists(), "{} is missing: `./test.sh exporters` installs it", found.display());
    found
}

/// The source of a client.
fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/exporters/clients").join(path)
}
