//! The `faultscope` binary: the tool, the launcher of processes and every cell.

use std::process::ExitCode;

/// Spans are many small texts, made by one thread and freed by another, which glibc's allocator is slow at. Without huge
/// pages it needs no more memory than that, and there are many small processes of this binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    faultscope_cli::main()
}
