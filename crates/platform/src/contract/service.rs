//! A service small enough to start by the dozen, with the handful of behaviours the contract looks at.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use tokio::time::Instant;

/// Runs the service: `PORT [say TEXT] [exit CODE] [eat BYTES] [flood BYTES]`, done in this order; then it
/// listens on all addresses, unless the port is 0.
///
/// It answers `/health`, `/name`, `/append/FILE`, `/size/FILE`, `/burn/MILLISECONDS`, and `/peer/PATH`, for which it asks the
/// host and port that the variable `PEER` names.
pub fn service_main(args: Vec<OsString>) -> ExitCode {
    match serve(&args) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(io::stderr(), "service: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(args: &[OsString]) -> io::Result<ExitCode> {
    let words: Vec<&str> = args.iter().filter_map(|a| a.to_str()).collect();
    let Some((port, orders)) = words.split_first() else {
        return Ok(ExitCode::from(64));
    };
    let number = |text: &str| text.parse::<usize>().map_err(io::Error::other);
    let mut eaten: Vec<Vec<u8>> = Vec::new();
    for order in orders.chunks(2) {
        match order {
            ["say", text] => writeln!(io::stdout(), "{text}")?,
            ["exit", code] => return Ok(ExitCode::from(number(code)? as u8)),
            ["eat", bytes] => {
                // In pieces that are written to, so that every page counts.
                for _ in 0..number(bytes)? >> 20 {
                    eaten.push(vec![1; 1 << 20]);
                }
            }
            ["flood", bytes] => {
                let line = [&b"x".repeat(79)[..], b"\n"].concat().repeat(800);
                for _ in 0..number(bytes)? / line.len() {
                    io::stdout().write_all(&line)?;
                }
            }
            _ => return Ok(ExitCode::from(64)),
        }
    }
    if *port == "0" {
        loop {
            std::thread::park();
        }
    }
    let listener = TcpListener::bind(("0.0.0.0", port.parse().map_err(io::Error::other)?))?;
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || handle(stream));
    }
    Ok(ExitCode::SUCCESS)
}

fn handle(stream: TcpStream) {
    let mut reader = BufReader::new(&stream);
    let mut request = String::new();
    if reader.read_line(&mut request).is_err() {
        return;
    }
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|n| n > 2) {
        line.clear();
    }
    let path = request.split(' ').nth(1).unwrap_or("/");
    let (status, body) = match answer(path) {
        Ok(body) => ("200 OK", body),
        Err(error) => ("500 Trouble", error.to_string()),
    };
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    let _ = (&stream).write_all(format!("{head}{body}").as_bytes());
}

fn answer(path: &str) -> io::Result<String> {
    let parts: Vec<&str> = path.trim_start_matches('/').splitn(2, '/').collect();
    match parts.as_slice() {
        ["health"] => Ok("ok".into()),
        ["name"] => fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned()),
        ["append", file] => {
            let mut file = fs::File::options().create(true).append(true).open(file)?;
            file.write_all(b"x")?;
            Ok(file.metadata()?.len().to_string())
        }
        ["burn", millis] => {
            let millis = millis.parse().map_err(io::Error::other)?;
            let until = Instant::now() + Duration::from_millis(millis);
            let mut turns: u64 = 0;
            while Instant::now() < until {
                turns = turns.wrapping_add(1);
            }
            Ok(turns.to_string())
        }
        ["size", file] => Ok(fs::metadata(file).map_or(0, |m| m.len()).to_string()),
        ["peer", path] => {
            let peer = std::env::var("PEER").map_err(io::Error::other)?;
            call(TcpStream::connect(peer)?, &format!("/{path}"))
        }
        _ => Err(io::Error::other("no such path")),
    }
}

fn call(mut stream: TcpStream, path: &str) -> io::Result<String> {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| io::Error::other("no answer"))?;
    if !head.starts_with("HTTP/1.1 200") {
        return Err(io::Error::other(body.to_owned()));
    }
    Ok(body.to_owned())
}
