//! Gives back code that only the start of a cell needed.
//!
//! The kernel maps sixteen pages of the program around each one that is touched, so reading a spec leaves
//! megabytes of parser resident that a serving cell never runs again. They stay in the page cache,
//! shared by all cells, and come back one by one if they are needed after all.

use std::fs;

/// Unmaps the pages of this program's code; the next use of each maps it again.
pub(crate) fn give_back_code() {
    let Ok(program) = fs::read_link("/proc/self/exe") else { return };
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return };
    let program = program.to_string_lossy();
    let code = maps.lines().filter(|line| line.contains(" r-xp ") && line.ends_with(program.as_ref()));
    for (start, end) in code.filter_map(range) {
        give_back(start, end - start);
    }
}

fn range(line: &str) -> Option<(usize, usize)> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    (start < end).then_some((start, end))
}

#[expect(unsafe_code, reason = "giving back pages of a mapping has no safe form")]
fn give_back(start: usize, length: usize) {
    let code = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: the range is a mapping of this program's own file, readable and executable but not
    // writable, so no page of it differs from the file: what is dropped reads back the same.
    let _ = unsafe { rustix::mm::madvise(code, length, rustix::mm::Advice::LinuxDontNeed) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_ranges() {
        assert_eq!(range("00400000-00452000 r-xp 0 08:02 1 /bin/x"), Some((0x40_0000, 0x45_2000)));
        assert_eq!(range("garbage"), None);
    }

    #[test]
    fn the_program_goes_on() {
        give_back_code();
        assert_eq!((1..=4).sum::<i32>(), 10);
    }
}
