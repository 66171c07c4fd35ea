//! Unified diffs: made from edits, applied, reverted, written.

use std::fmt;

use serde::Serialize;

use crate::edit::{self, Edit};

/// Lines around a change, as `diff -u` and git have them.
const CONTEXT: usize = 3;

/// The difference between two versions of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Patch {
    /// The file, relative to the application's folder, with slashes.
    pub path: String,
    /// What changes, from the top of the file down.
    pub hunks: Vec<Hunk>,
}

/// Neighbouring changes with the lines around them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hunk {
    /// The first line before, from 0.
    pub old_start: usize,
    /// The first line after, from 0.
    pub new_start: usize,
    /// From the top down.
    pub lines: Vec<Line>,
}

/// A line of a hunk. It keeps its ending, so `\r\n` and a missing last newline survive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// Stands in both versions.
    Kept(String),
    /// Stands in the old version only.
    Removed(String),
    /// Stands in the new version only.
    Added(String),
}

/// The file is not the one that a patch was made for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}:{line}: the file has changed since the mutant was made")]
pub struct PatchError {
    /// The file.
    pub path: String,
    /// The line that differs, from 1.
    pub line: usize,
}

impl Patch {
    /// The difference that edits make; `edits` are in order and apart.
    pub(crate) fn from_edits(path: &str, text: &str, edits: &[Edit]) -> Self {
        let old: Vec<&str> = text.split_inclusive('\n').collect();
        Self { path: path.to_owned(), hunks: hunks(&old, &changes(text, &old, edits)) }
    }

    /// Makes the changes.
    pub fn apply(&self, text: &str) -> Result<String, PatchError> {
        self.change(text, |hunk| hunk.old_start, false)
    }

    /// Takes the changes back.
    pub fn revert(&self, text: &str) -> Result<String, PatchError> {
        self.change(text, |hunk| hunk.new_start, true)
    }

    /// The first line that changes, in the file as it was, from 1.
    pub fn first_line(&self) -> usize {
        let unchanged =
            |hunk: &Hunk| hunk.lines.iter().take_while(|line| matches!(line, Line::Kept(_))).count();
        self.hunks.first().map_or(1, |hunk| hunk.old_start + unchanged(hunk) + 1)
    }

    fn change(
        &self,
        text: &str,
        start: impl Fn(&Hunk) -> usize,
        backwards: bool,
    ) -> Result<String, PatchError> {
        let have: Vec<&str> = text.split_inclusive('\n').collect();
        let mut changed = String::with_capacity(text.len());
        let mut at = 0;
        for hunk in &self.hunks {
            let start = start(hunk);
            have.get(at..start).unwrap_or_default().iter().for_each(|line| changed.push_str(line));
            at = start;
            for line in &hunk.lines {
                let (expected, written) = match (line, backwards) {
                    (Line::Kept(line), _) => (Some(line), Some(line)),
                    (Line::Removed(line), false) | (Line::Added(line), true) => (Some(line), None),
                    (Line::Added(line), false) | (Line::Removed(line), true) => (None, Some(line)),
                };
                if let Some(expected) = expected {
                    if have.get(at).is_none_or(|found| found != expected) {
                        return Err(PatchError { path: self.path.clone(), line: at + 1 });
                    }
                    at += 1;
                }
                written.into_iter().for_each(|line| changed.push_str(line));
            }
        }
        have.get(at..).unwrap_or_default().iter().for_each(|line| changed.push_str(line));
        Ok(changed)
    }
}

/// The text as `git apply` and `patch -p1` read it.
impl fmt::Display for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "--- a/{}\n+++ b/{}", self.path, self.path)?;
        self.hunks.iter().try_for_each(|hunk| hunk.fmt(f))
    }
}

impl fmt::Display for Hunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |is_in: fn(&Line) -> bool| self.lines.iter().filter(|line| is_in(line)).count();
        let old = count(|line| !matches!(line, Line::Added(_)));
        let new = count(|line| !matches!(line, Line::Removed(_)));
        // An empty side is named by the line in front of it.
        let first = |start: usize, count: usize| start + usize::from(count > 0);
        writeln!(f, "@@ -{},{old} +{},{new} @@", first(self.old_start, old), first(self.new_start, new))?;
        for line in &self.lines {
            let (sign, line) = match line {
                Line::Kept(line) => (' ', line),
                Line::Removed(line) => ('-', line),
                Line::Added(line) => ('+', line),
            };
            write!(f, "{sign}{line}")?;
            if !line.ends_with('\n') {
                writeln!(f, "\n\\ No newline at end of file")?;
            }
        }
        Ok(())
    }
}

/// Whole lines and what stands in their place.
struct Change<'t> {
    start: usize,
    removed: Vec<&'t str>,
    added: Vec<String>,
}

/// The lines that edits touch. Edits of the same line are one change.
fn changes<'t>(text: &'t str, old: &[&'t str], edits: &[Edit]) -> Vec<Change<'t>> {
    let mut starts = Vec::with_capacity(old.len() + 1);
    let mut offset = 0;
    for line in old {
        starts.push(offset);
        offset += line.len();
    }
    let line_at = |offset: usize| starts.partition_point(|&start| start <= offset).saturating_sub(1);
    let mut groups: Vec<(usize, usize, Vec<&Edit>)> = Vec::new();
    for edit in edits {
        let first = line_at(edit.range.start);
        let last = line_at(edit.range.end).min(old.len().saturating_sub(1));
        match groups.last_mut() {
            Some((_, end, members)) if first <= *end => {
                *end = last.max(*end);
                members.push(edit);
            }
            _ => groups.push((first, last, vec![edit])),
        }
    }
    let change = |(first, last, members): (usize, usize, Vec<&Edit>)| {
        let mut removed = old.get(first..=last).unwrap_or_default();
        let base = starts.get(first).copied().unwrap_or(0);
        let region = &text[base..base + removed.iter().map(|line| line.len()).sum::<usize>()];
        let moved: Vec<Edit> = members
            .into_iter()
            .map(|edit| Edit {
                range: edit.range.start - base..edit.range.end - base,
                text: edit.text.clone(),
            })
            .collect();
        let new = edit::apply(region, &moved);
        let mut added: Vec<String> = new.split_inclusive('\n').map(str::to_owned).collect();
        let same = removed.iter().zip(&added).take_while(|(old, new)| old == new).count();
        removed = &removed[same..];
        added.drain(..same);
        while removed.last().is_some_and(|line| added.last().is_some_and(|new| new == line)) {
            removed = &removed[..removed.len() - 1];
            added.pop();
        }
        Change { start: first + same, removed: removed.to_vec(), added }
    };
    groups
        .into_iter()
        .map(change)
        .filter(|change| !(change.removed.is_empty() && change.added.is_empty()))
        .collect()
}

fn hunks(old: &[&str], changes: &[Change<'_>]) -> Vec<Hunk> {
    let mut hunks: Vec<Hunk> = Vec::new();
    // Lines of the old file that stand in a hunk already or lie before it.
    let mut done = 0;
    let mut shift: isize = 0;
    for (index, change) in changes.iter().enumerate() {
        let joins = index > 0 && change.start <= done + CONTEXT;
        let first = if joins { done } else { change.start.saturating_sub(CONTEXT).max(done) };
        if !joins {
            let new_start = first.saturating_add_signed(shift);
            hunks.push(Hunk { old_start: first, new_start, lines: Vec::new() });
        }
        let Some(hunk) = hunks.last_mut() else { continue };
        let kept =
            |range: std::ops::Range<usize>| old[range].iter().map(|line| Line::Kept((*line).to_owned()));
        hunk.lines.extend(kept(first..change.start));
        hunk.lines.extend(change.removed.iter().map(|line| Line::Removed((*line).to_owned())));
        hunk.lines.extend(change.added.iter().cloned().map(Line::Added));
        let end = change.start + change.removed.len();
        let next = changes.get(index + 1).map_or(old.len(), |next| next.start);
        done = (end + CONTEXT).min(next);
        hunk.lines.extend(kept(end..done));
        shift += change.added.len() as isize - change.removed.len() as isize;
    }
    hunks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, edits: &[Edit], diff: &str) {
        let patch = Patch::from_edits("a.txt", text, edits);
        assert_eq!(patch.to_string().lines().skip(2).collect::<Vec<_>>().join("\n"), diff);
        let changed = patch.apply(text).unwrap();
        assert_eq!(changed, edit::apply(text, edits));
        assert_eq!(patch.revert(&changed).unwrap(), text);
    }

    #[test]
    fn insertions_in_front_of_a_line_remove_nothing() {
        check("a\nb\n", &[Edit::insert(2, "x\n")], "@@ -1,2 +1,3 @@\n a\n+x\n b");
        check("", &[Edit::insert(0, "x\n")], "@@ -0,0 +1,1 @@\n+x");
        check("a\n", &[Edit::insert(2, "x\n")], "@@ -1,1 +1,2 @@\n a\n+x");
    }

    #[test]
    fn a_missing_last_newline_is_said() {
        check(
            "a",
            &[Edit::insert(1, "\nx")],
            "@@ -1,1 +1,2 @@\n-a\n\\ No newline at end of file\n+a\n+x\n\\ No newline at end of file",
        );
    }

    #[test]
    fn near_changes_share_a_hunk_and_far_ones_do_not() {
        let text = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n";
        let near = [Edit::remove(0..2), Edit::replace(6..7, "x")];
        check(text, &near, "@@ -1,7 +1,6 @@\n-1\n 2\n 3\n-4\n+x\n 5\n 6\n 7");
        let far = [Edit::remove(0..2), Edit::replace(16..17, "x")];
        let wanted = "@@ -1,4 +1,3 @@\n-1\n 2\n 3\n 4\n@@ -6,5 +5,5 @@\n 6\n 7\n 8\n-9\n+x\n 10";
        check(text, &far, wanted);
    }

    #[test]
    fn another_file_is_refused() {
        let patch = Patch::from_edits("a.txt", "a\nb\n", &[Edit::replace(2..3, "c")]);
        assert_eq!(patch.apply("a\nd\n").unwrap_err().line, 2);
        assert_eq!(patch.apply("").unwrap_err().line, 1);
    }
}
