//! `faultscope load` on a system that `up` runs.

use faultscope_testkit::free_port;

use crate::{published, tool, tool_with};

#[test]
fn users_send_the_requests_of_a_scenario() {
    let port = free_port();
    let tool = tool_with(&published(port));
    let mut running = tool.start(["up"]);
    running.wait_for_line("Ctrl-C ends it");
    tool.write(
        "shop.yaml",
        "requests:\n  - { name: hello, get: /hello, expect: { status: 200, contains: world }, save: { by: by } }\n  \
         - { name: again, get: '/hello?by=${by}' }\n",
    );
    let url = format!("http://localhost:{port}");
    let words = ["load", &url, "--scenario", "shop.yaml", "--users", "2", "--duration", "1s", "--json"];
    let output = tool.run(words.into_iter().chain(["--csv", "seconds.csv", "--threshold", "errors<1%"]));
    // A busy machine makes figures invalid, and this test must not depend on it.
    assert!([Some(0), Some(6)].contains(&output.code), "{}", output.shown());
    let report = output.json();
    let names: Vec<&str> =
        report["requests"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["hello", "again"]);
    assert!(report["counts"]["requests"].as_u64().unwrap() > 2, "{report}");
    assert_eq!(report["counts"]["failed"], serde_json::json!({}), "{report}");
    assert_eq!(report["thresholds"][0]["is_kept"], true);
    assert!(tool.read("seconds.csv").starts_with("end_s,users,requests,failed,"));
    running.interrupt();
    running.wait().expect(0);
    let calls = tool.last_run().calls();
    assert!(calls.iter().any(|call| call.starts_with("user-1 -> front-1 GET /hello")), "they are recorded");
}

#[test]
fn what_cannot_be_loaded_is_said_at_once() {
    let tool = tool();
    tool.write("bad.yaml", "requests: [{ get: items }]");
    let check = |words: &[&str], code, part: &str| {
        let output = tool.run([&["load"], words].concat()).expect(code);
        assert!(output.stderr.contains(part), "`{part}` is not in:\n{}", output.stderr);
    };
    let local = "http://localhost:1";
    check(&[], 2, "<URL>");
    check(&["localhost:8080"], 2, "does not begin with `http://`");
    check(&["https://localhost"], 2, "needs TLS");
    check(&["http://192.0.2.1"], 2, "192.0.2.1:80 is on another machine");
    check(&[local, "--scenario", "bad.yaml"], 3, "`items` must begin with `/`");
    check(&[local, "--scenario", "/dev/zero"], 2, "not a regular file");
    check(&[local, "--request", "items"], 2, "`items` is no request");
    check(&[local, "--threshold", "p95"], 2, "is no threshold");
    check(&[local, "--rate", "0"], 2, "must be above 0");
    check(
        &[local, "--users", "100", "--spawn-rate", "1", "--duration", "5s"],
        2,
        "nothing would be left to count",
    );
}
