//! What may be sent to a terminal. Services, files and other machines write what they like; none of it may move the
//! cursor, change the title, clear the screen or turn the direction of a line.

use std::borrow::Cow;

/// Whether a character only shows itself.
pub fn is_printable(letter: char) -> bool {
    !letter.is_control()
        && !matches!(
            letter,
            // Marks that turn the direction of what follows.
            '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Line ends that only some programs know.
            | '\u{2028}' | '\u{2029}'
            // Invisible: tags, and interlinear annotations.
            | '\u{e0000}'..='\u{e007f}' | '\u{fff9}'..='\u{fffb}' | '\u{feff}'
        )
}

/// A text for one line of a terminal: everything that does not just show itself becomes a space.
///
/// Everything that comes from services goes through here before a terminal sees it.
pub fn neutralize_line(text: &str) -> Cow<'_, str> {
    neutralize(text, is_printable)
}

/// The same for a text of several lines, which keeps its line ends and tabs. A carriage return would let a line hide
/// the one before it.
pub fn neutralize_lines(text: &str) -> Cow<'_, str> {
    neutralize(text, |letter| is_printable(letter) || matches!(letter, '\n' | '\t'))
}

fn neutralize(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    // Printable ASCII is most of what is ever printed.
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) || text.chars().all(&stays) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|letter| if stays(letter) { letter } else { ' ' }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_the_terminal() {
        for (text, line) in [
            ("plain é 你好 🙂 ─▶", "plain é 你好 🙂 ─▶"),
            ("\u{1b}[2J\u{1b}]0;title\u{7}x", " [2J ]0;title x"),
            ("\u{9b}31m\u{9d}0;t\u{9c}", " 31m 0;t "),
            ("ok\rERROR\u{8}\u{7f}", "ok ERROR  "),
            ("a\nb\tc", "a b c"),
            ("\u{202e}txt.exe\u{2066}\u{2029}", " txt.exe  "),
            ("\u{1b}P+q\u{1b}\\", " P+q \\"),
        ] {
            assert_eq!(neutralize_line(text), line);
        }
        assert_eq!(neutralize_lines("a\n\tb\r\u{1b}[8m"), "a\n\tb  [8m");
        assert!(matches!(neutralize_lines("a\n\tb é"), Cow::Borrowed(_)));
    }
}
