//! Answers whoever asks for the address of a host that nobody declared: there is none, and a span says who wanted it.
//!
//! Instances know each other, and external hosts, by their hosts file. What they ask a name server for is therefore
//! outside, and the call that was to follow never comes. Questions come over TCP only, each with its length in front.

use std::io;
use std::time::Duration;

use faultscope_model::span::Wire;
use faultscope_model::{CallError, ServiceName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use crate::admit::{Head, admit_note};
use crate::slot::Origin;
use crate::stream::Stream;

/// The longest question that is read; real ones have a tenth of it.
const LONGEST: usize = 1024;
/// How long a connection may be silent.
const PATIENCE: Duration = Duration::from_secs(10);
/// Questions of one connection.
const MAX_QUESTIONS: usize = 10_000;
/// The type of a question for an IPv4 address. Those for other things come beside it.
const ADDRESS: u16 = 1;

/// Answers the questions of one connection.
pub(crate) async fn serve(mut origin: Origin, mut stream: Stream) {
    for _ in 0..MAX_QUESTIONS {
        let Ok(Ok(message)) = tokio::time::timeout(PATIENCE, read(&mut stream)).await else { return };
        let Some(question) = Question::read(&message) else { return };
        if question.kind == ADDRESS {
            // Before the answer: the span is there when the caller gives up.
            leave_span(&mut origin, &question.name);
        }
        if stream.write_all(&question.answer()).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

async fn read(stream: &mut Stream) -> io::Result<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).await?;
    let length = usize::from(u16::from_be_bytes(length));
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

fn leave_span(origin: &mut Origin, host: &str) {
    let slot = origin.slot.clone();
    let route = origin.route();
    // Some programs ask for names of the application without a look at their hosts file.
    let wiring = &route.scene.wiring;
    let is_inside = wiring.endpoints.keys().any(|service| service.as_str().eq_ignore_ascii_case(host))
        || wiring.externals.iter().any(|external| external.host.eq_ignore_ascii_case(host));
    let Ok(callee) = host.parse::<ServiceName>() else { return };
    if is_inside {
        return;
    }
    if !route.scene.trial.note_undeclared(&route.caller, host) {
        return;
    }
    let mut call = admit_note(&slot, route, &Head::of_connection(Wire::Tcp, Instant::now()));
    call.recording.edit(|span| (span.callee, span.port) = (callee, 0));
    call.finish(Some(CallError::UndeclaredHost));
}

/// One question.
#[derive(Debug, PartialEq, Eq)]
struct Question<'m> {
    name: String,
    kind: u16,
    id: [u8; 2],
    is_recursive: bool,
    /// As it was asked, for the answer.
    bytes: &'m [u8],
}

impl<'m> Question<'m> {
    /// Reads a message with one question; whatever else it is, is none.
    fn read(message: &'m [u8]) -> Option<Self> {
        let (head, rest) = message.split_first_chunk::<12>()?;
        let is_answer = head[2] & 0x80 != 0;
        if is_answer || head[4..6] != [0, 1] {
            return None;
        }
        let mut labels: Vec<&str> = Vec::new();
        let mut at = 0;
        loop {
            let length = usize::from(*rest.get(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            // Longer ones refer to other places, which a first name cannot.
            if length > 63 || at > 255 {
                return None;
            }
            labels.push(std::str::from_utf8(rest.get(at..at + length)?).ok()?);
            at += length;
        }
        let kind = u16::from_be_bytes(rest.get(at..at + 2)?.try_into().ok()?);
        let (id, is_recursive) = ([head[0], head[1]], head[2] & 1 != 0);
        Some(Self { name: labels.join("."), kind, id, is_recursive, bytes: rest.get(..at + 4)? })
    }

    /// There is no such name.
    fn answer(&self) -> Vec<u8> {
        let flags = [0x80 | u8::from(self.is_recursive), 0x83];
        let head = [&self.id[..], &flags, &[0, 1, 0, 0, 0, 0, 0, 0]].concat();
        let length = u16::try_from(head.len() + self.bytes.len()).unwrap_or(u16::MAX);
        [&length.to_be_bytes()[..], &head, self.bytes].concat()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const QUESTION: &[u8] =
        b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x08payments\x07example\x00\x00\x01\x00\x01";

    #[test]
    fn a_question_and_its_answer() {
        let question = Question::read(QUESTION).unwrap();
        assert_eq!((question.name.as_str(), question.kind), ("payments.example", ADDRESS));
        let answer = question.answer();
        assert_eq!(&answer[..14], b"\x00\x22\x12\x34\x81\x83\x00\x01\x00\x00\x00\x00\x00\x00");
        assert_eq!(answer[14..], QUESTION[12..]);
        for end in 0..QUESTION.len() {
            assert_eq!(Question::read(&QUESTION[..end]), None);
        }
    }

    proptest! {
        #[test]
        fn anything_may_come(mut message in prop::collection::vec(any::<u8>(), 0..300), is_like_one: bool) {
            if is_like_one && message.len() > 12 {
                message[..12].copy_from_slice(&QUESTION[..12]);
            }
            if let Some(question) = Question::read(&message) {
                prop_assert!(question.name.len() < 320 && question.answer().len() < 340);
            }
        }
    }
}
