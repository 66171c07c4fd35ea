//! Placeholders in the steps of a test: `${name}` stands for a value that an earlier step saved.

/// A piece of a text with placeholders.
pub(crate) enum Part<'a> {
    Text(&'a str),
    Blank(&'a str),
}

/// Splits a text at its placeholders; `$${` is an escaped `${`.
pub(crate) fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, after) = (&rest[..at], &rest[at + 2..]);
        if let Some(before) = before.strip_suffix('$') {
            parts.extend([Part::Text(before), Part::Text("${")]);
            rest = after;
        } else if let Some(end) = after.find('}') {
            parts.extend([Part::Text(before), Part::Blank(&after[..end])]);
            rest = &after[end + 1..];
        } else {
            break;
        }
    }
    parts.push(Part::Text(rest));
    parts
}

/// The names of the placeholders in a text.
///
/// ```
/// use faultscope_model::application::placeholders;
/// assert_eq!(placeholders("/orders/${order}?by=${user}&price=$${sum}"), ["order", "user"]);
/// ```
pub fn placeholders(text: &str) -> Vec<&str> {
    let name = |part| match part {
        Part::Blank(name) => Some(name),
        Part::Text(_) => None,
    };
    parts(text).into_iter().filter_map(name).collect()
}

/// Fills in placeholders; those without a value stay as they are.
///
/// ```
/// use faultscope_model::application::fill_placeholders;
/// let value = |name: &str| (name == "a").then(|| "1".to_owned());
/// assert_eq!(fill_placeholders("${a} ${b} $${a}", value), "1 ${b} ${a}");
/// ```
pub fn fill_placeholders(text: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let fill = |part| match part {
        Part::Text(text) => text.to_owned(),
        Part::Blank(name) => value(name).unwrap_or_else(|| format!("${{{name}}}")),
    };
    parts(text).into_iter().map(fill).collect()
}

/// The segments of a dotted path with its placeholders filled in. A value is part of one segment, even if it
/// contains dots.
///
/// ```
/// use faultscope_model::application::fill_path;
/// let value = |_: &str| Some("a.b".to_owned());
/// assert_eq!(fill_path("items.${id}.0", value), ["items", "a.b", "0"]);
/// ```
pub fn fill_path(path: &str, value: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut segments = vec![String::new()];
    for part in parts(path) {
        match part {
            Part::Text(text) => {
                let mut pieces = text.split('.');
                push_to_last(&mut segments, pieces.next().unwrap_or_default());
                segments.extend(pieces.map(ToOwned::to_owned));
            }
            Part::Blank(name) => {
                let filled = value(name).unwrap_or_else(|| format!("${{{name}}}"));
                push_to_last(&mut segments, &filled);
            }
        }
    }
    segments.retain(|segment| !segment.is_empty());
    segments
}

fn push_to_last(segments: &mut [String], text: &str) {
    if let Some(last) = segments.last_mut() {
        last.push_str(text);
    }
}
