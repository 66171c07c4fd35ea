//! Pages as text: an error page says what is wrong somewhere behind its head, and its first line is a declaration.

/// Tags whose content is not for readers.
const HIDDEN: [&str; 4] = ["script", "style", "svg", "noscript"];
/// Tags within a line: text before and after them belongs together.
const INLINE: [&str; 9] = ["a", "b", "code", "em", "i", "small", "span", "strong", "u"];

/// The text of an answer: of an HTML page what a reader would see, of everything else the answer itself.
pub fn readable_text(body: &str) -> String {
    if is_page(body) { page_text(body) } else { body.to_owned() }
}

fn is_page(body: &str) -> bool {
    let start: String = body.trim_start().chars().take(14).collect::<String>().to_ascii_lowercase();
    start.starts_with("<!doctype html") || start.starts_with("<html")
}

fn page_text(page: &str) -> String {
    let mut text = String::new();
    let mut rest = page;
    while let Some(open) = rest.find('<') {
        text.push_str(&rest[..open]);
        rest = &rest[open..];
        if let Some(comment) = rest.strip_prefix("<!--") {
            rest = comment.split_once("-->").map_or("", |(_, after)| after);
            continue;
        }
        let Some(close) = rest.find('>') else {
            // A page that was cut in the middle of a tag.
            rest = "";
            break;
        };
        let name = tag_name(&rest[1..close]);
        rest = &rest[close + 1..];
        if HIDDEN.contains(&name.as_str()) {
            rest = behind_end(rest, &name);
        }
        if !INLINE.contains(&name.trim_start_matches('/')) {
            text.push('\n');
        }
    }
    text.push_str(rest);
    let lines = text.lines().map(|line| decode(line).split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

fn tag_name(inside: &str) -> String {
    let end = inside.find(|c: char| c.is_whitespace()).unwrap_or(inside.len());
    inside[..end].trim_end_matches('/').to_ascii_lowercase()
}

/// What follows the end of a tag whose content is skipped.
fn behind_end<'a>(rest: &'a str, name: &str) -> &'a str {
    let end = format!("</{name}");
    let found = rest.char_indices().find(|(at, _)| {
        rest.as_bytes()[*at..].get(..end.len()).is_some_and(|here| here.eq_ignore_ascii_case(end.as_bytes()))
    });
    let Some((at, _)) = found else { return "" };
    rest[at..].split_once('>').map_or("", |(_, after)| after)
}

fn decode(line: &str) -> String {
    let known = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&nbsp;", " ")];
    let decoded = known.iter().fold(line.to_owned(), |text, (from, to)| text.replace(from, to));
    // Last, so that `&amp;lt;` stays what its author wrote.
    decoded.replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_page_is_shown_by_its_text() {
        let page = "<!DOCTYPE html>\n<html lang=\"en\"><head><title>Oops</title><style>p { color: red }</style>\
            <SCRIPT>if (a < b) alert('x')</SCRIPT></head>\n<body><!-- <p>not this</p> --><h1>Internal   Server Error</h1>\
            <p>no column <code>price</code> in &quot;items&quot; &amp;lt;</p></body></html>";
        let text = "Oops\nInternal Server Error\nno column price in \"items\" &lt;";
        assert_eq!(readable_text(page), text);
        assert_eq!(readable_text(&page.replace("<!DOCTYPE html>\n", "  ")), text);
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        for body in ["", "{\"a\": \"<html>\"}", "<?xml version=\"1.0\"?><a/>", "plain < text"] {
            assert_eq!(readable_text(body), body);
        }
        assert_eq!(readable_text("<html><p>cut in the mid<di"), "cut in the mid");
    }

    proptest! {
        #[test]
        fn no_page_breaks_it(rest in "(?s)[<>/!a-zé&;\\- \n]{0,200}") {
            readable_text(&format!("<html>{rest}"));
        }
    }
}
