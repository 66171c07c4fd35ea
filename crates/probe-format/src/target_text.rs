//! The text of a target, for people, for options and for the files of adapters.
//!
//! Calls read `order POST /pay > stock PUT /items/{} #2`, messages `order.Pay/stock.Reserve#2`. A call of gRPC may be
//! written as `order shop.Orders/Get` for `order POST /shop.Orders/Get`. What a service does by itself begins with
//! `(service)`, a service from its second call on is `stock at call 2`, what was cut off is `~` and its digest, and `+`
//! stands behind a step that was duplicated. Names that would be misread are in double quotes. Every target reads back
//! from its text.

use crate::operation::grpc_path;
use crate::target::{Origin, PathDigest, Sent, Step, TargetId};

/// Between a call and what it caused.
const THEN: &str = " > ";

/// Before the number of a call, whatever it asks for.
const AT_CALL: &str = "at call ";

pub(crate) fn write(target: &TargetId) -> String {
    let (origin, steps) = target.parts();
    let plain = join(origin, &steps, |part| part.to_owned());
    let is_simple = matches!(origin, Origin::Test) && steps.iter().all(|step| is_plain(step));
    if is_simple || read(&plain) == *target { plain } else { join(origin, &steps, quote) }
}

pub(crate) fn read(text: &str) -> TargetId {
    parse(text).unwrap_or_else(|| TargetId::whole(text))
}

/// Whether a step needs no quotes, whatever stands beside it. Most do not, and then nothing must be read back.
fn is_plain(step: &Step) -> bool {
    let is_word = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b':'))
    };
    match &step.sent {
        Sent::Message(message) => is_word(&step.receiver) && is_word(message),
        Sent::Call(operation) => {
            let is_path = |b: u8| b.is_ascii_alphanumeric() || b"/_-.:{} ".contains(&b);
            is_word(&step.receiver)
                && operation.bytes().all(is_path)
                && operation.trim() == &**operation
                && grpc_path(operation).is_none()
                && !operation.is_empty()
                && any_call_number(operation).is_none()
        }
        Sent::Whole | Sent::AnyCall => false,
    }
}

fn join(origin: &Origin, steps: &[&Step], name: impl Fn(&str) -> String) -> String {
    let mut text = match origin {
        Origin::Test => String::new(),
        Origin::Service(service) => format!("({})", name(service)),
        Origin::Cut { digest, is_of_test: true } => format!("~{digest}"),
        Origin::Cut { digest, is_of_test: false } => format!("(~{digest})"),
    };
    let mut before: Option<&Step> = None;
    for step in steps {
        let is_message = |step: &Step| matches!(step.sent, Sent::Message(_));
        match before {
            Some(before) if is_message(before) && is_message(step) => text.push('/'),
            None if text.is_empty() => {}
            _ => text.push_str(THEN),
        }
        text.push_str(&name(&step.receiver));
        let number = match &step.sent {
            Sent::Call(operation) => {
                text.push(' ');
                text.push_str(&name(operation));
                " #"
            }
            Sent::Message(message) => {
                text.push('.');
                text.push_str(&name(message));
                "#"
            }
            Sent::Whole => " #",
            Sent::AnyCall => {
                text.push_str(&format!(" {AT_CALL}{}", step.ordinal));
                ""
            }
        };
        if step.ordinal > 1 && !number.is_empty() {
            text.push_str(&format!("{number}{}", step.ordinal));
        }
        if step.is_again {
            text.push('+');
        }
        before = Some(step);
    }
    text
}

fn quote(name: &str) -> String {
    // A text can always be written as JSON.
    serde_json::to_string(name).unwrap_or_default()
}

fn parse(text: &str) -> Option<TargetId> {
    if text.is_empty() {
        return Some(TargetId::root());
    }
    let mut segments = split_outside_quotes(text, THEN).into_iter().peekable();
    let origin = segments.peek().and_then(|first| parse_origin(first));
    let mut target = match origin {
        Some(origin) => {
            segments.next();
            TargetId::new(origin)
        }
        None => TargetId::root(),
    };
    for segment in segments {
        for step in parse_segment(segment)? {
            target = target.push(step);
        }
    }
    Some(target)
}

fn parse_origin(segment: &str) -> Option<Origin> {
    let cut = |text: &str| text.strip_prefix('~').and_then(PathDigest::parse);
    if let Some(digest) = cut(segment) {
        return Some(Origin::Cut { digest, is_of_test: true });
    }
    let inner = segment.strip_prefix('(')?.strip_suffix(')')?;
    if let Some(digest) = cut(inner) {
        return Some(Origin::Cut { digest, is_of_test: false });
    }
    Some(Origin::Service(unquote(inner)?.as_str().into()))
}

/// A call, messages one after another, or one quoted name.
fn parse_segment(segment: &str) -> Option<Vec<Step>> {
    let (rest, is_again) = strip_again(segment);
    if let Some((receiver, operation)) = split_call(rest) {
        if let Some(number) = any_call_number(operation) {
            let step = Step::new(&unquote(receiver)?, Sent::AnyCall, number);
            return Some(vec![Step { is_again, ..step }]);
        }
        let (operation, ordinal) = strip_ordinal(operation, " #");
        let step = match operation {
            "" => Step::new(&unquote(receiver)?, Sent::Whole, ordinal),
            operation => {
                let operation = match grpc_path(operation) {
                    Some(path) => format!("POST {path}"),
                    None => unquote(operation)?,
                };
                Step::call(&unquote(receiver)?, &operation, ordinal)
            }
        };
        return Some(vec![Step { is_again, ..step }]);
    }
    if rest.starts_with('"') && closing_quote(rest) == Some(rest.len() - 1) {
        return Some(vec![Step { is_again, ..Step::new(&unquote(rest)?, Sent::Whole, 1) }]);
    }
    let mut steps = Vec::new();
    let mut pending = String::new();
    for piece in split_outside_quotes(segment, "/") {
        // A name may have slashes in it, as paths of actors do: it goes on until a dot ends it.
        pending.push_str(piece);
        let (message, is_again) = strip_again(&pending);
        let (message, ordinal) = strip_ordinal(message, "#");
        match split_outside_quotes(message, ".").as_slice() {
            [_] => pending.push('/'),
            [.., name] => {
                let receiver = &message[..message.len() - name.len() - 1];
                steps.push(Step { is_again, ..Step::message(&unquote(receiver)?, &unquote(name)?, ordinal) });
                pending.clear();
            }
            [] => return None,
        }
    }
    (pending.is_empty() && !steps.is_empty()).then_some(steps)
}

/// Receiver and operation: what is before and behind the first space.
fn split_call(segment: &str) -> Option<(&str, &str)> {
    let end = if segment.starts_with('"') { closing_quote(segment)? + 1 } else { segment.find(' ')? };
    let rest = segment[end..].strip_prefix(' ')?;
    // The number of a receiver as a whole has no operation before it.
    let rest = if rest.starts_with('#') { &segment[end..] } else { rest };
    Some((&segment[..end], rest))
}

/// The number in `at call 2`.
fn any_call_number(operation: &str) -> Option<u32> {
    let number = operation.strip_prefix(AT_CALL)?;
    let is_number = number.bytes().all(|b| b.is_ascii_digit()) && !number.starts_with('0');
    number.parse().ok().filter(|_| is_number)
}

fn strip_again(text: &str) -> (&str, bool) {
    text.strip_suffix('+').map_or((text, false), |rest| (rest, true))
}

fn strip_ordinal<'t>(text: &'t str, mark: &str) -> (&'t str, u32) {
    let found = text.rsplit_once(mark).and_then(|(rest, number)| {
        // The first has no number, so what reads `#1` is part of a name.
        let is_number =
            number.bytes().all(|b| b.is_ascii_digit()) && !number.starts_with('0') && number != "1";
        Some((rest, number.parse().ok().filter(|_| is_number)?))
    });
    found.unwrap_or((text, 1))
}

/// A name as it is, or out of its quotes; none where it is empty or half quoted.
fn unquote(name: &str) -> Option<String> {
    match name.starts_with('"') {
        true => serde_json::from_str(name).ok(),
        false => (!name.is_empty() && !name.contains('"')).then(|| name.to_owned()),
    }
}

/// Where the quoted name at the start of a text ends.
fn closing_quote(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (place, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return Some(place),
            _ => {}
        }
    }
    None
}

fn split_outside_quotes<'t>(text: &'t str, separator: &str) -> Vec<&'t str> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with('"')
            && let Some(end) = closing_quote(rest)
        {
            at += end + 1;
        } else if rest.starts_with(separator) {
            parts.push(&text[start..at]);
            at += separator.len();
            start = at;
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    parts.push(&text[start..]);
    parts
}
