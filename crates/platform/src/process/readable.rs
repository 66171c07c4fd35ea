//! Descriptors the runtime has no type for: packet sockets and process handles.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;

/// Registers a descriptor with the runtime.
#[expect(unsafe_code, reason = "tokio cannot see that an owned descriptor stays what it is")]
pub(crate) fn watched(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` keeps the same descriptor open for as long as it lives, and `AsyncFd` owns it.
    let registered = unsafe { AsyncFd::register(fd) };
    Ok(registered?)
}
