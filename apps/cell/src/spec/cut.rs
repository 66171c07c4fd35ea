//! Cuts a spec down to one service before it is parsed.
//!
//! An application of 45 cells reads its spec 45 times when it starts, and parsing is most of a cell's
//! start. Only what a cell needs stays: everything outside `services`, its own service, and the ports of
//! the others. Lines that go are left empty, so that complaints still name the right ones. Whatever does
//! not look as expected is left to the parser: this must never decide what a spec means.

/// The spec with only this service and the other services' ports, or none when the text has another shape.
pub(super) fn cut(text: &str, service: &str) -> Option<String> {
    let mut result = String::with_capacity(text.len() / 4);
    let mut place = Place::Outside;
    let mut child_indent = None;
    for line in text.split_inclusive('\n') {
        let content = line.trim_end();
        let body = content.trim_start();
        let indent = content.len() - body.len();
        if body.is_empty() || body.starts_with('#') {
            result.push('\n');
            continue;
        }
        if indent == 0 {
            place.finish()?;
            place = if content == "services:" { Place::Services } else { Place::Outside };
            child_indent = None;
            result.push_str(line);
            continue;
        }
        if matches!(place, Place::Outside) {
            result.push_str(line);
            continue;
        }
        let child = *child_indent.get_or_insert(indent);
        if indent == child {
            place.finish()?;
            // A name with quotes, an anchor or a flow map behind it is left to the parser.
            let name = body.strip_suffix(':')?;
            place = if name == service { Place::Own } else { Place::Other { indent: None, port: false } };
            result.push_str(line);
            continue;
        }
        match &mut place {
            Place::Own => result.push_str(line),
            Place::Other { indent: own, port } => {
                let level = *own.get_or_insert(indent);
                let is_port = indent == level
                    && body.strip_prefix("port:").is_some_and(|n| n.trim().parse::<u16>().is_ok());
                *port |= is_port;
                result.push_str(if is_port { line } else { "\n" });
            }
            Place::Outside | Place::Services => return None,
        }
    }
    place.finish()?;
    Some(result)
}

enum Place {
    Outside,
    Services,
    Own,
    Other { indent: Option<usize>, port: bool },
}

impl Place {
    /// Ends a block: one without a port on a line of its own cannot be cut.
    fn finish(&self) -> Option<()> {
        match self {
            Self::Other { port: false, .. } => None,
            _ => Some(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str = "version: 1\ncommon:\n  a: &a 1\nservices:\n  # two\n  order:\n    port: 1\n    x: 2\n\n  stock:\n    y:\n      port: 7\n    port: 3\n";

    #[test]
    fn keeps_own_service_ports_and_lines() {
        let cut = cut(SPEC, "order").unwrap();
        let expected = "version: 1\ncommon:\n  a: &a 1\nservices:\n\n  order:\n    port: 1\n    x: 2\n\n  stock:\n\n\n    port: 3\n";
        assert_eq!(cut, expected);
        assert_eq!(cut.lines().count(), SPEC.lines().count());
    }

    #[test]
    fn leaves_other_shapes_alone() {
        for text in [
            "services:\n  a: { port: 1 }\n",
            "services:\n  a:\n    x: 1\n",
            "services:\n  \"a\": &x\n    port: 1\n",
        ] {
            assert_eq!(cut(text, "b"), None, "{text}");
        }
    }
}
