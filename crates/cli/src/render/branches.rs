//! The lines that connect the rows of a tree.

/// Deeper rows are not indented further, so that part of them stays visible.
const MAX_DEPTH: usize = 40;

/// Draws the branches of rows, which are given from the top down by depth.
#[derive(Debug, Default)]
pub(super) struct Branches {
    /// The prefix of each depth.
    before: Vec<String>,
}

impl Branches {
    /// The prefix of the next row; empty for roots.
    pub(super) fn next(&mut self, depth: usize, is_last: bool) -> String {
        self.before.truncate(depth + 1);
        self.before.resize(depth + 1, String::new());
        let before = &self.before[depth];
        let (branch, below) = match (depth, is_last) {
            (0, _) => ("", ""),
            (_, false) => ("├─ ", "│  "),
            (_, true) => ("└─ ", "   "),
        };
        let row = format!("{before}{branch}");
        let below = if depth > MAX_DEPTH { String::new() } else { format!("{before}{below}") };
        self.before.push(below);
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_end_where_the_last_child_is() {
        let mut branches = Branches::default();
        let rows = [
            (0, true),
            (1, false),
            (2, true),
            (3, true),
            (1, true),
            (2, false),
            (2, true),
            (0, true),
            (1, true),
        ];
        let shown: Vec<_> = rows.iter().map(|(depth, last)| branches.next(*depth, *last)).collect();
        assert_eq!(shown, ["", "├─ ", "│  └─ ", "│     └─ ", "└─ ", "   ├─ ", "   └─ ", "", "└─ "]);
    }

    #[test]
    fn deep_rows_stay_in_sight() {
        let mut branches = Branches::default();
        let widest = (0..200).map(|depth| branches.next(depth, true).chars().count()).max();
        assert!(widest < Some(200), "{widest:?}");
    }
}
