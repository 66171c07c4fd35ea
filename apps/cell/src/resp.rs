//! A small client for Redis: RESP2, one connection, bounded replies.

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Duration, timeout};

/// Longest reply that is read.
const MAXIMUM_REPLY: usize = 16 << 20;
/// Most elements of a list.
const MAXIMUM_ELEMENTS: usize = 100_000;
/// Deepest nesting of lists.
const MAXIMUM_DEPTH: usize = 8;
/// Longest line that is not a bulk string.
const MAXIMUM_LINE: usize = 64 << 10;
/// How long a command may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A reply of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Simple(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Array(Vec<Self>),
    Error(String),
    Nothing,
}

/// Why a command has no reply.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RespError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("no answer in time")]
    TimedOut,
    #[error("malformed reply: {0}")]
    Malformed(&'static str),
    #[error("{0}")]
    Server(String),
}

/// A connection that is made when it is first needed, and again after an error.
#[derive(Debug)]
pub(crate) struct Connection {
    address: String,
    open: Mutex<Option<Stream>>,
}

/// The right to use the connection for several commands in a row.
pub(crate) struct Session<'connection> {
    address: &'connection str,
    open: MutexGuard<'connection, Option<Stream>>,
}

#[derive(Debug)]
struct Stream {
    socket: TcpStream,
    buffer: BytesMut,
}

impl Connection {
    /// Reads `redis://host:port`.
    pub(crate) fn new(url: &str) -> Result<Self, String> {
        let rest = url.strip_prefix("redis://").ok_or_else(|| format!("`{url}` is not redis://host:port"))?;
        let host = rest.split('/').next().unwrap_or_default();
        if host.is_empty() || host.contains('@') {
            return Err(format!("`{url}` is not redis://host:port"));
        }
        let address = if host.contains(':') { host.to_owned() } else { format!("{host}:6379") };
        Ok(Self { address, open: Mutex::new(None) })
    }

    /// Waits until no one else uses the connection.
    pub(crate) async fn lock(&self) -> Session<'_> {
        Session { address: &self.address, open: self.open.lock().await }
    }
}

impl Session<'_> {
    /// Sends a command and waits for its reply; after an error the next command connects anew.
    pub(crate) async fn command(&mut self, words: &[&str]) -> Result<Reply, RespError> {
        let exchange = async {
            // The stream is taken out, so an abandoned exchange cannot leave half a reply behind.
            let mut stream = match self.open.take() {
                Some(stream) => stream,
                None => Stream { socket: TcpStream::connect(self.address).await?, buffer: BytesMut::new() },
            };
            stream.socket.write_all(&encode(words)).await?;
            let reply = stream.reply().await?;
            *self.open = Some(stream);
            Ok(reply)
        };
        match timeout(PATIENCE, exchange).await {
            Err(_) => Err(RespError::TimedOut),
            Ok(Err(error)) => Err(error),
            Ok(Ok(Reply::Error(message))) => Err(RespError::Server(message)),
            Ok(Ok(reply)) => Ok(reply),
        }
    }
}

impl Stream {
    async fn reply(&mut self) -> Result<Reply, RespError> {
        loop {
            if let Some((reply, length)) = parse(&self.buffer)? {
                self.buffer.advance(length);
                return Ok(reply);
            }
            if self.buffer.len() > MAXIMUM_REPLY {
                return Err(RespError::Malformed("too long"));
            }
            if self.socket.read_buf(&mut self.buffer).await? == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
            }
        }
    }
}

/// A command as a list of bulk strings.
fn encode(words: &[&str]) -> Vec<u8> {
    let mut encoded = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        encoded.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        encoded.extend_from_slice(word.as_bytes());
        encoded.extend_from_slice(b"\r\n");
    }
    encoded
}

/// The first reply in `bytes` and its length, or `None` if it is not complete.
fn parse(bytes: &[u8]) -> Result<Option<(Reply, usize)>, RespError> {
    let mut at = 0;
    let mut budget = MAXIMUM_ELEMENTS;
    Ok(parse_at(bytes, &mut at, &mut budget, 0)?.map(|reply| (reply, at)))
}

fn parse_at(
    bytes: &[u8],
    at: &mut usize,
    budget: &mut usize,
    depth: usize,
) -> Result<Option<Reply>, RespError> {
    if depth > MAXIMUM_DEPTH {
        return Err(RespError::Malformed("nested too deep"));
    }
    let rest = &bytes[*at..];
    let Some(end) = rest.iter().take(MAXIMUM_LINE).position(|byte| *byte == b'\n') else {
        return if rest.len() >= MAXIMUM_LINE {
            Err(RespError::Malformed("a line is too long"))
        } else {
            Ok(None)
        };
    };
    let line = rest[..end].strip_suffix(b"\r").ok_or(RespError::Malformed("a line ends without \\r"))?;
    let line = std::str::from_utf8(line).map_err(|_| RespError::Malformed("a line is not text"))?;
    *at += end + 1;
    let (kind, content) =
        line.split_at_checked(1).ok_or(RespError::Malformed("an empty line instead of a reply"))?;
    let number = || content.parse::<i64>().map_err(|_| RespError::Malformed("not a number"));
    match kind {
        "+" => Ok(Some(Reply::Simple(content.to_owned()))),
        "-" => Ok(Some(Reply::Error(content.to_owned()))),
        ":" => Ok(Some(Reply::Integer(number()?))),
        "$" => match number()? {
            -1 => Ok(Some(Reply::Nothing)),
            length => {
                let length = bounded(length, MAXIMUM_REPLY)?;
                let rest = &bytes[*at..];
                if rest.len() < length + 2 {
                    return Ok(None);
                }
                if &rest[length..length + 2] != b"\r\n" {
                    return Err(RespError::Malformed("a bulk string has another length"));
                }
                *at += length + 2;
                Ok(Some(Reply::Bulk(rest[..length].to_vec())))
            }
        },
        "*" => match number()? {
            -1 => Ok(Some(Reply::Nothing)),
            length => {
                let length = bounded(length, *budget)?;
                *budget -= length;
                // The length is the server's word: memory grows with what really came.
                let mut replies = Vec::new();
                for _ in 0..length {
                    match parse_at(bytes, at, budget, depth + 1)? {
                        Some(reply) => replies.push(reply),
                        None => return Ok(None),
                    }
                }
                Ok(Some(Reply::Array(replies)))
            }
        },
        _ => Err(RespError::Malformed("unknown kind")),
    }
}

fn bounded(length: i64, maximum: usize) -> Result<usize, RespError> {
    usize::try_from(length)
        .ok()
        .filter(|length| *length <= maximum)
        .ok_or(RespError::Malformed("a length out of bounds"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Connection, Reply, encode, parse};

    fn write(reply: &Reply) -> Vec<u8> {
        match reply {
            Reply::Simple(text) => format!("+{text}\r\n").into_bytes(),
            Reply::Error(text) => format!("-{text}\r\n").into_bytes(),
            Reply::Integer(number) => format!(":{number}\r\n").into_bytes(),
            Reply::Bulk(bytes) => [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat(),
            Reply::Array(replies) => {
                let mut written = format!("*{}\r\n", replies.len()).into_bytes();
                replies.iter().for_each(|reply| written.extend(write(reply)));
                written
            }
            Reply::Nothing => b"$-1\r\n".to_vec(),
        }
    }

    fn replies() -> impl Strategy<Value = Reply> {
        let leaf = prop_oneof![
            "[a-zA-Z ]{0,20}".prop_map(Reply::Simple),
            "[a-zA-Z ]{0,20}".prop_map(Reply::Error),
            any::<i64>().prop_map(Reply::Integer),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(Reply::Bulk),
            Just(Reply::Nothing),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| prop::collection::vec(inner, 0..5).prop_map(Reply::Array))
    }

    #[test]
    fn commands_are_bulk_strings() {
        assert_eq!(encode(&["HGET", "é"]), "*2\r\n$4\r\nHGET\r\n$2\r\né\r\n".as_bytes());
        assert!(Connection::new("redis://host").is_ok());
        assert!(Connection::new("http://host").is_err());
    }

    #[test]
    fn lengths_out_of_bounds_are_refused() {
        for bytes in ["$-2\r\n", "*99999999\r\n", "$99999999999\r\n", "?\r\n", "\r\n", "+a\n", "$1\r\nabc"] {
            assert!(parse(bytes.as_bytes()).is_err(), "{bytes:?}");
        }
        assert!(parse("*1\r\n".repeat(50).as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(reply in replies(), more in prop::collection::vec(any::<u8>(), 0..10)) {
            let mut bytes = write(&reply);
            let length = bytes.len();
            for end in 0..length {
                prop_assert!(parse(&bytes[..end]).unwrap().is_none());
            }
            bytes.extend(more);
            prop_assert_eq!(parse(&bytes).unwrap(), Some((reply, length)));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn bytes_like_replies_are_read_or_refused(text in "[*$:+0-9a\r\n-]{0,60}") {
            let _ = parse(text.as_bytes());
        }
    }
}
