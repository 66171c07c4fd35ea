//! A small HTTP client: one request on each connection, everything of the answer.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON, whatever the status; text that is no JSON stays a text.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| Value::from(self.text()))
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    }
}

#[track_caller]
pub(crate) fn get(base: &str, path: &str) -> Answer {
    send(base, "GET", path, &[], b"")
}

#[track_caller]
pub(crate) fn post(base: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    send(base, "POST", path, headers, body)
}

#[track_caller]
fn send(base: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let answer = try_send(base, method, path, headers, body);
    answer.unwrap_or_else(|error| panic!("{method} {base}{path}: {error}"))
}

pub(crate) fn try_send(
    base: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> std::io::Result<Answer> {
    let address = base.strip_prefix("http://").expect("an http:// address");
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if method == "POST" {
        head += &format!("content-length: {}\r\n", body.len());
    }
    stream.write_all(&[head.as_bytes(), b"\r\n", body].concat())?;
    // Not every server closes the connection when it is asked to: the answer itself says where it ends.
    let mut all = Vec::new();
    loop {
        let answer = whole(&all);
        if let Some(answer) = answer {
            return Ok(answer);
        }
        let mut more = [0; 64 << 10];
        match stream.read(&mut more)? {
            0 => return Err(std::io::Error::other("the answer is cut off")),
            n => all.extend(&more[..n]),
        }
    }
}

/// The answer, when all of it is here.
fn whole(all: &[u8]) -> Option<Answer> {
    let end = all.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&all[..end]).into_owned();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let mut answer = Answer { status, head, body: all[end + 4..].to_vec() };
    if answer.header("transfer-encoding").is_some_and(|value| value.contains("chunked")) {
        answer.body = dechunked(&answer.body)?;
    } else {
        let length: usize = answer.header("content-length").map_or(Some(0), |length| length.parse().ok())?;
        answer.body = answer.body.get(..length)?.to_vec();
    }
    Some(answer)
}

fn dechunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let size = std::str::from_utf8(&rest[..end]).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(out);
        }
        out.extend(rest.get(end + 2..end + 2 + size)?);
        rest = rest.get(end + 4 + size..)?;
    }
}
