//! What chance changes between runs of one circumstance: which calls come, and what is in their answers.

/// Larger products of two lengths are compared place by place: the table of a longer alignment would not fit.
const MAX_CELLS: usize = 4 << 20;

/// Which places of two lists correspond.
#[derive(Debug)]
pub(super) struct Alignment {
    /// For each place of the first list, that in the second.
    places: Vec<Option<usize>>,
    other: usize,
}

impl Alignment {
    /// The place in the second list.
    pub(super) fn place(&self, at: usize) -> Option<usize> {
        self.places.get(at).copied().flatten()
    }

    /// Both lists as one, in order: what corresponds together, what is in one of them alone.
    pub(super) fn merge(&self) -> Vec<(Option<usize>, Option<usize>)> {
        let mut merged = Vec::new();
        let mut next = 0;
        for (at, place) in self.places.iter().enumerate() {
            if let Some(place) = place {
                merged.extend((next..*place).map(|other| (None, Some(other))));
                next = place + 1;
            }
            merged.push((Some(at), *place));
        }
        merged.extend((next..self.other).map(|other| (None, Some(other))));
        merged
    }
}

/// Aligns two lists by their longest common subsequence.
pub(super) fn align(one: &[String], other: &[String]) -> Alignment {
    let before = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let (rest, other_rest) = (&one[before..], &other[before..]);
    // Of equal calls the earlier ones correspond, since a run that fails often ends sooner. Only lists that are too long
    // for the table are matched from their end first.
    let fits = rest.len().saturating_mul(other_rest.len() + 1) <= MAX_CELLS;
    let same_end = || rest.iter().rev().zip(other_rest.iter().rev()).take_while(|(a, b)| a == b).count();
    let after = if fits { 0 } else { same_end() };
    let (rest, other_rest) = (&rest[..rest.len() - after], &other_rest[..other_rest.len() - after]);
    let mut places: Vec<Option<usize>> = (0..before).map(Some).collect();
    let width = other_rest.len() + 1;
    if rest.len().saturating_mul(width) > MAX_CELLS {
        let same = |at: usize| other_rest.get(at) == Some(&rest[at]);
        places.extend((0..rest.len()).map(|at| same(at).then_some(before + at)));
    } else {
        // The length of the longest common subsequence from each pair of places on.
        let mut longest = vec![0u32; (rest.len() + 1) * width];
        for i in (0..rest.len()).rev() {
            for j in (0..other_rest.len()).rev() {
                longest[i * width + j] = if rest[i] == other_rest[j] {
                    longest[(i + 1) * width + j + 1] + 1
                } else {
                    longest[(i + 1) * width + j].max(longest[i * width + j + 1])
                };
            }
        }
        let mut j = 0;
        for i in 0..rest.len() {
            while j < other_rest.len()
                && rest[i] != other_rest[j]
                && longest[i * width + j + 1] >= longest[(i + 1) * width + j]
            {
                j += 1;
            }
            if j < other_rest.len() && rest[i] == other_rest[j] {
                places.push(Some(before + j));
                j += 1;
            } else {
                places.push(None);
            }
        }
    }
    let (end, other_end) = (one.len() - after, other.len() - after);
    places.extend((end..one.len()).map(|at| Some(at - end + other_end)));
    Alignment { places, other: other.len() }
}

/// Whether two answers differ in more than what differs between answers of equal runs.
pub(super) fn differs((one, one_again): (&str, &[String]), (other, other_again): (&str, &[String])) -> bool {
    if one == other {
        return false;
    }
    let (ours, theirs) = (words(one), words(other));
    let (Some(ours_vary), Some(theirs_vary)) = (varying(&ours, one_again), varying(&theirs, other_again))
    else {
        // Even the shape of the answer is chance.
        return false;
    };
    if ours.len() != theirs.len() {
        return true;
    }
    (0..ours.len()).any(|at| ours[at] != theirs[at] && !ours_vary[at] && !theirs_vary[at])
}

/// Which words of an answer differ in equal runs; none when their number does.
fn varying(answer: &[&str], again: &[String]) -> Option<Vec<bool>> {
    let mut vary = vec![false; answer.len()];
    for other in again {
        let other = words(other);
        if other.len() != answer.len() {
            return None;
        }
        for (at, word) in other.iter().enumerate() {
            vary[at] |= *word != answer[at];
        }
    }
    Some(vary)
}

/// Runs of letters and digits, and every other character alone.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut start = 0;
    for (at, letter) in text.char_indices() {
        if !letter.is_alphanumeric() {
            if start < at {
                words.push(&text[start..at]);
            }
            let end = at + letter.len_utf8();
            words.push(&text[at..end]);
            start = end;
        }
    }
    if start < text.len() {
        words.push(&text[start..]);
    }
    words
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(text: &str) -> Vec<String> {
        text.chars().map(String::from).collect()
    }

    #[test]
    fn what_is_there_only_once_is_found() {
        let aligned = align(&list("abcd"), &list("xbd"));
        assert_eq!(
            aligned.merge(),
            [(Some(0), None), (None, Some(0)), (Some(1), Some(1)), (Some(2), None), (Some(3), Some(2)),]
        );
    }

    #[test]
    fn a_run_that_ends_sooner_lacks_the_later_calls() {
        // A further connection at first, then a login, a post and a get; the other run also deletes and gets again.
        let aligned = align(&list("clpg"), &list("lpgdg"));
        assert_eq!(
            aligned.merge(),
            [
                (Some(0), None),
                (Some(1), Some(0)),
                (Some(2), Some(1)),
                (Some(3), Some(2)),
                (None, Some(3)),
                (None, Some(4))
            ]
        );
    }

    #[test]
    fn random_parts_of_answers_are_masked() {
        let again = |text: &str| vec![text.to_owned()];
        let (good, bad) = (r#"{"id":"a1-b2","sum":10}"#, r#"{"id":"c3-d4","sum":0}"#);
        assert!(differs((bad, &[]), (good, &again(r#"{"id":"e5-f6","sum":10}"#))), "the sum is no chance");
        let same = r#"{"id":"c3-d4","sum":10}"#;
        assert!(!differs((same, &[]), (good, &again(r#"{"id":"e5-f6","sum":10}"#))), "the id is");
        assert!(!differs(("[1,2]", &again("[1]")), ("[3]", &[])), "a list of any length");
        assert!(differs(("no", &[]), ("a longer one", &[])));
    }

    proptest! {
        #[test]
        fn every_place_is_merged_once(one in "[abc]{0,12}", other in "[abc]{0,12}") {
            let (one, other) = (list(&one), list(&other));
            let merged = align(&one, &other).merge();
            let ours: Vec<_> = merged.iter().filter_map(|pair| pair.0).collect();
            let theirs: Vec<_> = merged.iter().filter_map(|pair| pair.1).collect();
            prop_assert_eq!(ours, (0..one.len()).collect::<Vec<_>>());
            prop_assert_eq!(theirs, (0..other.len()).collect::<Vec<_>>());
            for (ours, theirs) in merged {
                if let (Some(ours), Some(theirs)) = (ours, theirs) {
                    prop_assert_eq!(&one[ours], &other[theirs]);
                }
            }
        }
    }
}
