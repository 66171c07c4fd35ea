//! Replacements in a text.

use std::ops::Range;

/// Replaces a range of bytes by another text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The bytes that go; empty for an insertion.
    pub range: Range<usize>,
    /// What stands in their place.
    pub text: String,
}

impl Edit {
    pub(crate) fn insert(at: usize, text: impl Into<String>) -> Self {
        Self { range: at..at, text: text.into() }
    }

    pub(crate) fn replace(range: Range<usize>, text: impl Into<String>) -> Self {
        Self { range, text: text.into() }
    }

    pub(crate) fn remove(range: Range<usize>) -> Self {
        Self { range, text: String::new() }
    }
}

/// Sorts edits by place. None if two of them overlap or one leaves the text, so that they cannot all be made.
pub(crate) fn in_order(text: &str, mut edits: Vec<Edit>) -> Option<Vec<Edit>> {
    edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
    let fits = |edit: &Edit| {
        edit.range.start <= edit.range.end
            && text.is_char_boundary(edit.range.start)
            && text.is_char_boundary(edit.range.end)
    };
    let apart = edits.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start);
    (apart && edits.iter().all(fits)).then_some(edits)
}

/// Makes edits that [`in_order`] has sorted.
pub(crate) fn apply(text: &str, edits: &[Edit]) -> String {
    let mut changed =
        String::with_capacity(text.len() + edits.iter().map(|edit| edit.text.len()).sum::<usize>());
    let mut done = 0;
    for edit in edits {
        changed.push_str(&text[done..edit.range.start]);
        changed.push_str(&edit.text);
        done = edit.range.end;
    }
    changed.push_str(&text[done..]);
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_that_overlap_or_split_a_character_are_refused() {
        let text = "größe";
        assert!(in_order(text, vec![Edit::remove(0..2), Edit::remove(1..2)]).is_none());
        assert!(in_order(text, vec![Edit::insert(3, "x")]).is_none());
        assert!(in_order(text, vec![Edit::insert(99, "x")]).is_none());
        let edits = in_order(text, vec![Edit::insert(7, "!"), Edit::replace(0..2, "G")]).unwrap();
        assert_eq!(apply(text, &edits), "Göße!");
    }
}
