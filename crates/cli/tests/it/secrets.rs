//! Secrets: none in any file of the store and none in anything the tool says; older stores lose theirs.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use faultscope_testkit::{Faultscope, Fixture, python};

use crate::{tool, tool_with};

/// A service that is told secrets in every way, tells some back, logs them, and fails its second test.
fn telling() -> Fixture {
    let service = r#"
import http.server, json, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def answer(self):
        length = int(self.headers.get("content-length") or 0)
        asked = self.rfile.read(length).decode()
        print("login with", self.headers["authorization"], asked, file=sys.stderr, flush=True)
        body = json.dumps({"user": "ann", "access_token": "QSECRET-answer", "you": self.headers["x-api-key"]}).encode()
        self.send_response(200)
        self.send_header("Set-Cookie", "sid=QSECRET-setcookie; Path=/")
        self.send_header("Location", "http://u:QSECRET-location@order/x?token=QSECRET-locquery")
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_POST = answer
http.server.ThreadingHTTPServer(("0.0.0.0", 8080), Handler).serve_forever()
"#;
    let file = r#"
name: telling
services:
  order: { command: ["python3", "telling.py"], ports: [8080] }
tests:
  - name: tell
    http:
      post: "http://order:8080/pay?token=QSECRET-query&page=2"
      headers: { Authorization: "Bearer QSECRET-bearer", Cookie: "sid=QSECRET-cookie", X-Api-Key: "QSECRET-apikey", X-Tenant: "QSECRET-tenant" }
      body: '{"user": "ann", "password": "QSECRET-field", "card": {"number": "QSECRET-path"}}'
      expect: { status: 200 }
  - name: fail
    http:
      get: "http://order:8080/pay?token=QSECRET-query"
      headers: { x-api-key: "QSECRET-apikey" }
      expect: { status: 418 }
record: { secrets: { headers: [x-tenant], fields: ["$.card.number"] } }
"#;
    python().file("telling.py", service).application(file)
}

/// Files below a folder that hold a text.
fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            found.extend(files_with(&entry.path(), text));
        } else if fs::read(entry.path()).unwrap().windows(text.len()).any(|w| w == text.as_bytes()) {
            found.push(entry.path().display().to_string());
        }
    }
    found
}

fn says_nothing(tool: &Faultscope, words: &[&str]) -> String {
    let output = tool.run(words.iter().copied());
    let said = format!("{}{}", output.stdout, output.stderr);
    assert!(!said.contains("QSECRET"), "{words:?} says\n{said}");
    output.stdout
}

#[test]
fn nothing_stored_or_printed_contains_a_secret() {
    let tool = tool_with(&telling());
    says_nothing(&tool, &["test", "--seed", "5"]);
    let state = tool.folder().join(".faultscope");
    assert_eq!(files_with(&state, "QSECRET"), [""; 0]);
    assert_eq!(files_with(&state, "/pay"), [""; 0], "what is no secret is sealed, too");
    let shown = says_nothing(&tool, &["runs", "show", "--json"]);
    assert!(shown.contains("[redacted]"));
    let run: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let call = &run["spans"][0];
    assert_eq!(call["path"], "/pay?token=[redacted]&page=2");
    let trace = call["trace"].as_str().unwrap().to_owned();
    for words in [
        &["runs", "show"][..],
        &["runs", "ls", "--json"],
        &["runs", "show", "--trace", &trace],
        &["traces", "show", &trace],
        &["traces", "show", &trace, "--json"],
        &["traces", "export", &trace],
        &["traces", "export", &trace, "--format", "otlp"],
    ] {
        says_nothing(&tool, words);
    }
    let key = tool.data().join("faultscope/secrets.key");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(files_with(&tool.data(), "QSECRET"), [""; 0]);
}

#[test]
fn dropped_secrets_and_plain_values_need_no_key() {
    let tool = tool_with(
        &telling()
            .replace("record: { secrets: { headers", "record: { plain: true, secrets: { drop: true, headers"),
    );
    says_nothing(&tool, &["test"]);
    assert_eq!(files_with(&tool.folder().join(".faultscope"), "QSECRET"), [""; 0]);
    assert!(!tool.data().join("faultscope").exists());
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let tool = tool_with(&telling());
    let key = tool.data().join("faultscope/secrets.key");
    fs::create_dir_all(key.parent().unwrap()).unwrap();
    fs::write(&key, "x").unwrap();
    let said = tool.run(["test"]).stderr;
    assert!(said.contains("cannot use the key") && said.contains("`chmod 600` it"), "{said}");
    let campaigns = fs::read_dir(tool.folder().join(".faultscope/campaigns")).unwrap().count();
    assert_eq!(campaigns, 0, "nothing is begun that cannot be recorded as it should");
}

#[test]
fn imported_spans_lose_their_secrets() {
    let tool = tool();
    let spans = r#"[{"traceId":"00000000000000aa","id":"00000000000000a1","name":"get /x?token=QSECRET-name","timestamp":1700000000000000,
      "duration":1000,"localEndpoint":{"serviceName":"front"},"annotations":[{"timestamp":1700000000000001,"value":"sent Bearer QSECRET-1234"}],
      "tags":{"http.request.header.authorization":"[\"Bearer QSECRET-tag\"]","url.full":"http://u:QSECRET-user@h/x?a=1&api_key=QSECRET-key",
      "req":"{\"password\":\"QSECRET-req\"}","http.request.header.cookie":"sid=QSECRET-cookie"}}]"#;
    tool.write("spans.json", spans);
    says_nothing(&tool, &["traces", "import", "spans.json"]);
    assert_eq!(files_with(&tool.folder().join(".faultscope"), "QSECRET"), [""; 0]);
    for words in [
        &["traces", "show", "aa"][..],
        &["traces", "show", "aa", "--json"],
        &["traces", "export", "aa", "--format", "ndjson"],
        &["services", "--json"],
    ] {
        says_nothing(&tool, words);
    }
}

/// A store that version 1 wrote, with secrets in a call and in a reported span.
fn old_store(tool: &Faultscope) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/tests/fixtures/format-1");
    let campaign = tool.folder().join(".faultscope/campaigns/0d19-66058708e3a77-1043");
    let spans = tool.folder().join(".faultscope/spans");
    for (name, to) in [
        ("campaign.json", &campaign),
        ("events.jsonl", &campaign),
        ("store.sqlite.gz", &campaign),
        ("catalogue.json", &spans),
        ("000001.sqlite.gz", &spans),
    ] {
        fs::create_dir_all(to).unwrap();
        let mut bytes = fs::read(from.join(name)).unwrap();
        if name.ends_with(".gz") {
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(bytes.as_slice()).read_to_end(&mut plain).unwrap();
            bytes = plain;
        }
        fs::write(to.join(name.trim_end_matches(".gz")), bytes).unwrap();
    }
}

#[test]
fn a_store_of_the_first_format_is_brought_up_and_loses_its_secrets() {
    let tool = tool();
    old_store(&tool);
    let state = tool.folder().join(".faultscope");
    assert_eq!(files_with(&state, "-secret-1").len(), 2, "the old format kept secrets as they came");
    // Two at once: one of them brings it up, the other one waits.
    let both = [tool.start(["runs", "show", "--json"]), tool.start(["runs", "show", "--json"])];
    for running in both {
        let output = running.wait();
        let run = output.expect(0).json();
        assert_eq!(run["spans"][0]["path"], "/orders?token=[redacted]&page=2");
        assert_eq!(run["run"]["outcome"]["kind"], "pass");
    }
    let trace = tool.json(["traces", "show", "aa"], 0);
    assert_eq!(trace[0]["tags"]["url.full"], "http://[redacted]@front/x?token=[redacted]&a=1");
    assert_eq!(trace[1]["tags"]["k"], "v");
    assert_eq!(files_with(&state, "-secret-1"), [""; 0]);
    assert_eq!(files_with(&state, "hunter2"), [""; 0]);
    assert!(tool.data().join("faultscope/secrets.key").exists(), "they are kept sealed");
}

#[test]
fn a_store_of_a_later_format_is_refused_and_left_alone() {
    let tool = tool();
    old_store(&tool);
    let database = tool.folder().join(".faultscope/campaigns/0d19-66058708e3a77-1043/store.sqlite");
    let slice = tool.folder().join(".faultscope/spans/000001.sqlite");
    for path in [&database, &slice] {
        // The version of a database stands at byte 60 of its head.
        let mut bytes = fs::read(path).unwrap();
        bytes[60..64].copy_from_slice(&99u32.to_be_bytes());
        fs::write(path, bytes).unwrap();
    }
    let before = [fs::read(&database).unwrap(), fs::read(&slice).unwrap()];
    for words in [["runs", "show"], ["traces", "ls"]] {
        let said = tool.run(words).stderr;
        assert!(said.contains("it has format 99, this version of faultscope reads up to"), "{said}");
    }
    assert_eq!(before, [fs::read(&database).unwrap(), fs::read(&slice).unwrap()]);
}

#[test]
fn settings_with_secret_names_are_not_shown() {
    let file = r#"
name: settings
services:
  order: { command: ["python3", "-m", "http.server", "8080"], ports: [8080] }
tests: [ { name: ask, http: { get: "http://order:8080/", expect: { status: 418 } } } ]
simplest: { config: { order: { env.DB_PASSWORD: QSECRET-a, env.MODE: slow } } }
failing: { config: { order: { env.DB_PASSWORD: QSECRET-b, env.MODE: fast, env.DSN: "pg://u:QSECRET-c@db/x" } } }
"#;
    let tool = tool_with(&python().application(file));
    let shown = says_nothing(&tool, &["check"]);
    assert!(shown.contains("[redacted]") && shown.contains("fast"), "{shown}");
    for words in [
        &["check", "--json"][..],
        &["test", "--failing"],
        &["test", "--failing", "--json"],
        &["runs", "show"],
        &["runs", "show", "--json"],
        &["runs", "ls", "--json"],
    ] {
        says_nothing(&tool, words);
    }
    assert!(says_nothing(&tool, &["runs", "show"]).contains("config order.env.DB_PASSWORD=[redacted]"));
}

#[test]
fn a_token_is_read_from_a_file_and_must_be_good() {
    let tool = tool();
    tool.write("short", "abc\n").write("odd", "0123456789 abcdef\n").write("good", "0123456789abcdef\n");
    let serve = |file: &str| {
        let words = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--otlp",
            "off",
            "--grpc",
            "off",
            "--for",
            "1ms",
            "--token-file",
            file,
        ];
        tool.run(words)
    };
    for file in ["short", "odd"] {
        let said = serve(file).expect(2).stderr.clone();
        assert!(said.contains("at least 16 printable characters"), "{said}");
        assert!(!said.contains("abc"), "{said}");
    }
    serve("missing").expect(2);
    serve("good").expect(0);
}
