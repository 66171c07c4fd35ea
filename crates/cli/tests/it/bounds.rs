//! Files without end, and output that nobody reads.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::tool;

#[test]
fn application_files_without_end_are_refused() {
    let tool = tool();
    let made = Command::new("mkfifo").arg(tool.folder().join("pipe.yaml")).status().unwrap();
    assert!(made.success());
    tool.write("zero.yaml", "extends: /dev/zero\n").write("waits.yaml", "extends: pipe.yaml\n");
    for file in ["zero.yaml", "waits.yaml", "pipe.yaml"] {
        let shown = tool.run(["check", file]).shown();
        assert!(shown.contains("it is a device, pipe or socket, not a regular file"), "{file}: {shown}");
    }
}

/// The first message that the span writer cannot write must not be its last.
#[test]
fn a_server_whose_output_nobody_reads_goes_on() {
    let tool = tool();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut server = Command::new(tool.program())
        .current_dir(tool.folder())
        .env("XDG_DATA_HOME", tool.data())
        .args(["serve", "--listen", "127.0.0.1:0", "--otlp", "off", "--grpc", "off"])
        .stdin(Stdio::null())
        .stdout(writer.try_clone().unwrap())
        .stderr(writer)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(reader).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("Zipkin and Jaeger clients")).expect("an address");
    let address = line.rsplit("http://").next().unwrap().trim().to_owned();
    // As `serve 2>&1 | head -1` does.
    drop(lines);
    let send = |method: &str, path: &str, body: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.get(9..12).unwrap_or_default().to_owned()
    };
    // More time series than a slice has room for, which the writer warns of.
    let metric =
        |n| format!(r#"{{"name":"m{n}","gauge":{{"dataPoints":[{{"timeUnixNano":"1000","asInt":"1"}}]}}}}"#);
    let metrics: Vec<_> = (0..20_050).map(metric).collect();
    let body =
        format!(r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{}]}}]}}]}}"#, metrics.join(","));
    assert_eq!(send("POST", "/v1/metrics", &body), "200");
    for id in 1..=3 {
        assert_eq!(send("POST", "/api/v2/spans", &format!(r#"[{{"traceId":"{id}","id":"{id}"}}]"#)), "202");
    }
    assert_eq!(send("GET", "/health", ""), "200");
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn traces_without_end_are_not_imported() {
    let tool = tool();
    let made = Command::new("mkfifo").arg(tool.folder().join("pipe.json")).status().unwrap();
    assert!(made.success());
    for file in ["/dev/zero", "pipe.json"] {
        let shown = tool.run(["traces", "import", file]).shown();
        assert!(shown.contains("it is a device, pipe or socket, not a regular file"), "{file}: {shown}");
    }
}

/// A service that writes without end is killed, and the run says why; the machine's disk stays free.
#[test]
fn a_trial_that_fills_the_disk_is_ended() {
    let tool = tool().env("FAULTSCOPE_TRIAL_DISK", "32MiB");
    tool.write(
        "faultscope.yaml",
        "services:\n  writer: { command: [sh, -c, \"head -c 64M /dev/zero > data; exec sleep 600\"] }\n\
         tests:\n  - { name: waits, run: [sh, -c, \"exec sleep 600\"], within: 6s }\n",
    );
    let shown = tool.run(["test"]).shown();
    assert!(shown.contains("killed: its trial wrote more than 32MiB to disk"), "{shown}");
}

#[test]
fn credentials_of_the_shell_do_not_reach_tests() {
    let tool = tool()
        .env("AWS_SECRET_ACCESS_KEY", "planted-1")
        .env("SHOP_TOKEN", "planted-2")
        .env("KEPT_TOKEN", "wanted")
        .env("SHOP_COLOR", "blue")
        .env("FAULTSCOPE_INHERIT", "KEPT_TOKEN");
    tool.write(
        "faultscope.yaml",
        "services: {}\ntests:\n  - name: environment\n    run: [sh, -c, \"test \\\"$SHOP_COLOR\\\" = blue && test \\\"$KEPT_TOKEN\\\" = wanted \
         && test -z \\\"$AWS_SECRET_ACCESS_KEY$SHOP_TOKEN\\\"\"]\n",
    );
    let output = tool.run(["test"]);
    assert_eq!(output.code, Some(0), "{}", output.shown());
}
