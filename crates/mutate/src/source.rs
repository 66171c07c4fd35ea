//! A source text that can be mutated: bounded, UTF-8, without syntax errors.

use tree_sitter::{InputEdit, Node, Parser, Point, Range, Tree};

use crate::edit::{self, Edit};
use crate::language::Language;

/// Larger files are generated or bundled, and nobody debugs them by line.
pub const MAX_SOURCE: usize = 1 << 20;

/// Deeper trees are generated, or an attack: finding the parent of a node takes as many steps as it is deep.
const MAX_DEPTH: usize = 500;

const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Why a file has no mutants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnusableSource {
    /// It is larger than [`MAX_SOURCE`].
    #[error("it is larger than 1 MiB")]
    TooLarge,
    /// It is not UTF-8, or has NUL bytes.
    #[error("it is not text")]
    NotText,
    /// Its syntax is nested more than 500 levels deep.
    #[error("it is nested too deeply")]
    TooDeep,
    /// The grammar does not accept it.
    #[error("line {line} is not valid {language}")]
    Syntax {
        /// The first line with an error, from 1.
        line: usize,
        /// Whose grammar.
        language: Language,
    },
}

/// A parsed file.
#[derive(Debug)]
pub struct Source<'s> {
    /// The file, relative to the application's folder, with slashes.
    pub path: &'s str,
    /// Its text.
    pub text: &'s str,
    /// Its language.
    pub language: Language,
    tree: Tree,
}

impl<'s> Source<'s> {
    /// Parses the content of a file.
    pub fn parse(path: &'s str, bytes: &'s [u8], language: Language) -> Result<Self, UnusableSource> {
        if bytes.len() > MAX_SOURCE {
            return Err(UnusableSource::TooLarge);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| UnusableSource::NotText)?;
        if bytes.contains(&0) {
            return Err(UnusableSource::NotText);
        }
        let tree = parse(text, language, None).ok_or(UnusableSource::Syntax { line: 1, language })?;
        match first_error(tree.root_node()) {
            Some(line) => Err(UnusableSource::Syntax { line, language }),
            None if depth(tree.root_node()) > MAX_DEPTH => Err(UnusableSource::TooDeep),
            None => Ok(Self { path, text, language, tree }),
        }
    }

    /// Whether the text is still valid after these edits, which are in order and apart.
    pub(crate) fn accepts(&self, edits: &[Edit]) -> bool {
        let changed = edit::apply(self.text, edits);
        let mut tree = self.tree.clone();
        // From the end, so that the places of earlier edits stay as they are.
        for edit in edits.iter().rev() {
            let start = edit.range.start;
            tree.edit(&InputEdit {
                start_byte: start,
                old_end_byte: edit.range.end,
                new_end_byte: start + edit.text.len(),
                start_position: position(self.text, start),
                old_end_position: position(self.text, edit.range.end),
                new_end_position: advance(position(self.text, start), &edit.text),
            });
        }
        parse(&changed, self.language, Some(&tree)).is_some_and(|tree| !tree.root_node().has_error())
    }

    pub(crate) fn root(&self) -> Node<'_> {
        self.tree.root_node()
    }

    pub(crate) fn text_of(&self, node: Node<'_>) -> &'s str {
        self.text.get(node.byte_range()).unwrap_or_default()
    }

    /// The text of a field of a node.
    pub(crate) fn field(&self, node: Node<'_>, name: &str) -> &'s str {
        node.child_by_field_name(name).map_or("", |child| self.text_of(child))
    }

    /// How lines end here.
    pub(crate) fn newline(&self) -> &'static str {
        if self.text.find('\n').is_some_and(|at| self.text[..at].ends_with('\r')) { "\r\n" } else { "\n" }
    }

    pub(crate) fn line_start(&self, at: usize) -> usize {
        self.text[..at].rfind('\n').map_or(self.first_byte().min(at), |newline| newline + 1)
    }

    /// The white space at the beginning of the line of a place.
    pub(crate) fn indent(&self, at: usize) -> &'s str {
        let line = &self.text[self.line_start(at)..];
        &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
    }

    /// Whether only white space stands in front of a place in its line.
    pub(crate) fn starts_line(&self, at: usize) -> bool {
        self.text[self.line_start(at)..at].trim_start_matches([' ', '\t']).is_empty()
    }

    /// The indentation that one level adds, guessed from the first indented line.
    pub(crate) fn indent_unit(&self) -> &'s str {
        let indented =
            self.text.lines().filter(|line| line.starts_with([' ', '\t']) && !line.trim().is_empty());
        let widths = indented.map(|line| &line[..line.len() - line.trim_start().len()]);
        // Block comments of Java and JavaScript are indented by one space.
        widths.filter(|indent| *indent != " ").min_by_key(|indent| indent.len()).unwrap_or("    ")
    }

    /// The first byte behind a byte order mark.
    pub(crate) fn first_byte(&self) -> usize {
        if self.text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 }
    }
}

fn parse(text: &str, language: Language, old: Option<&Tree>) -> Option<Tree> {
    let mut parser = Parser::new();
    parser.set_language(&language.grammar()).ok()?;
    if text.starts_with(BYTE_ORDER_MARK) {
        // Grammars do not know the mark. Leaving it out of the range keeps all offsets as they are in the file.
        let start = BYTE_ORDER_MARK.len();
        let whole = Range {
            start_byte: start,
            end_byte: text.len(),
            start_point: position(text, start),
            end_point: position(text, text.len()),
        };
        parser.set_included_ranges(&[whole]).ok()?;
    }
    parser.parse(text, old)
}

fn first_error(root: Node<'_>) -> Option<usize> {
    if !root.has_error() {
        return None;
    }
    let mut line = None;
    crate::walk::walk(root, |node| {
        if line.is_none() && (node.is_error() || node.is_missing()) {
            line = Some(node.start_position().row + 1);
        }
        line.is_none() && node.has_error()
    });
    Some(line.unwrap_or(1))
}

fn depth(root: Node<'_>) -> usize {
    let mut cursor = root.walk();
    let mut deepest = 0;
    loop {
        deepest = deepest.max(cursor.depth() as usize);
        if deepest > MAX_DEPTH {
            return deepest;
        }
        if cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return deepest;
            }
        }
    }
}

fn position(text: &str, at: usize) -> Point {
    advance(Point { row: 0, column: 0 }, &text[..at])
}

fn advance(from: Point, text: &str) -> Point {
    let row = from.row + text.bytes().filter(|&byte| byte == b'\n').count();
    match text.rfind('\n') {
        Some(last) => Point { row, column: text.len() - last - 1 },
        None => Point { row, column: from.column + text.len() },
    }
}
