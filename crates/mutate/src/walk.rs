//! Walks through syntax trees without recursion: hostile sources nest deeper than a stack is high.

use tree_sitter::Node;

/// Visits a node and everything below it, in the order of the text; `visit` says whether to go deeper.
pub(crate) fn walk<'t>(root: Node<'t>, mut visit: impl FnMut(Node<'t>) -> bool) {
    let mut cursor = root.walk();
    loop {
        if visit(cursor.node()) && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return;
            }
        }
    }
}

/// All nodes of some kinds below a node, and the node itself.
pub(crate) fn find_all<'t>(root: Node<'t>, kinds: &[&str]) -> Vec<Node<'t>> {
    let mut found = Vec::new();
    walk(root, |node| {
        if kinds.contains(&node.kind()) {
            found.push(node);
        }
        true
    });
    found
}

/// The named children of a node, comments left out.
pub(crate) fn children(node: Node<'_>) -> Vec<Node<'_>> {
    let mut cursor = node.walk();
    node.named_children(&mut cursor).filter(|child| !child.is_extra()).collect()
}

/// The nearest node above that has one of these kinds.
pub(crate) fn ancestor<'t>(node: Node<'t>, kinds: &[&str]) -> Option<Node<'t>> {
    let mut above = node.parent();
    while let Some(node) = above {
        if kinds.contains(&node.kind()) {
            return Some(node);
        }
        above = node.parent();
    }
    None
}
