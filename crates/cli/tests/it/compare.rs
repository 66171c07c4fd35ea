//! Two deployments side by side: every difference is a delta.

use faultscope_testkit::{Faultscope, cells, nothing_left};
use insta::assert_snapshot;

use crate::{tool, tool_with};

/// The bad side has this many differences to the good one.
const DIFFERENCES: usize = 60;

/// The cells without a failing circumstance, and their file.
fn plain() -> (Faultscope, String) {
    let tool = tool_with(&cells());
    let text = tool.read("faultscope.yaml");
    let (text, _) = text.split_once("failing:\n").unwrap();
    tool.write("faultscope.yaml", text);
    (tool, text.to_owned())
}

/// A good and a bad file: 59 settings that do no harm, and the one that does.
fn sixty() -> Faultscope {
    let (tool, text) = plain();
    for (side, broken) in [("good", "false"), ("bad", "true")] {
        let harmless = |service: &str, count: usize| -> String {
            (0..count).map(|n| format!("{service}_{n}: {side}-{n}, ")).collect()
        };
        let front = format!("    ports: [8080]\n    env: {{ {} }}\n", harmless("FRONT", 30));
        let back = harmless("BACK", DIFFERENCES - 31);
        let back = format!("    ports: [8081]\n    env: {{ {back} BROKEN: \"{broken}\" }}\n");
        let file = text.replace("    ports: [8080]\n", &front).replace("    ports: [8081]\n", &back);
        tool.write(&format!("{side}.yaml"), &file);
    }
    tool
}

#[test]
fn sixty_differences_are_reduced_to_one() {
    let tool = sixty();
    let sides = ["--good", "good.yaml", "--bad", "bad.yaml"];
    let listed = tool.json([&["check"], &sides[..]].concat(), 0);
    assert_eq!(listed["deltas"].as_array().unwrap().len(), DIFFERENCES);
    let wanted = ["debug", "--slots", "2", "--json", "--bundle", "out/repro.tar.gz"];
    let running = tool.start([&wanted[..], &sides[..]].concat());
    let id = running.id();
    let report = running.wait().expect(1).json();
    nothing_left(id, &tool.folder());
    let cause = &report["causes"][0]["deltas"];
    assert_eq!(cause.as_array().unwrap().len(), 1);
    assert_eq!(cause[0]["name"], "config back.env.BROKEN");
    let again = [&["--delta", "config back.env.BROKEN"], &sides[..]].concat();
    tool.tested(again, 1);

    // Both sides are in the bundle, and the failure comes from there alone.
    let elsewhere = crate::tool();
    std::fs::copy(tool.folder().join("out/repro.tar.gz"), elsewhere.folder().join("moved.tar.gz")).unwrap();
    let shown = elsewhere.json(["repro", "moved.tar.gz", "--into", "kept"], 1);
    assert_eq!(shown["reproduced"], true);
    assert_eq!(shown["passing"]["outcome"]["kind"], "pass");
    assert_eq!(shown["manifest"]["compared"]["good"], serde_json::json!(["good.yaml"]));
    let readme = elsewhere.read("kept/README.md");
    let sides =
        "--good 'application/good.yaml' --bad 'application/bad.yaml' --delta 'config back.env.BROKEN'";
    assert!(readme.contains(&format!("faultscope test {sides}")), "{readme}");
    let out = ["kept/application/good.yaml", "kept/application/bad.yaml"];
    elsewhere.run(["test", "--good", out[0], "--bad", out[1], "--delta", "config back.env.BROKEN"]).expect(1);
}

#[test]
fn listed_for_people() {
    let tool = tool_with(&cells());
    let good = tool.read("faultscope.yaml");
    let bad = good.replace("instances: { back: 3 }", "instances: { back: 5 }").replace(
        "tests:\n",
        "  extra: { command: [\"${faultscope}\", \"cell\", \"--spec\", \"cells.yaml\", \"--service\", \"log\"], ports: [8083], ready: { http: /health } }\ntests:\n",
    );
    tool.write("bad.yaml", &bad.replace("memory: 64MiB", "memory: 32MiB"));
    assert_snapshot!(tool.run(["check", "--good", "faultscope.yaml", "--bad", "bad.yaml"]).shown(), @"
    exit code 0
    --- stdout
    cells: 3 services, 1 test, 3 deltas between simplest and failing
    rank  dimension      delta               from    to       cost
    1     instance       instance back       3       5 <time>
    2     instance       service extra       absent  present <time>
    3     configuration  config back.memory  64MiB   32MiB <time>
    ");
}

#[test]
fn folders_with_two_versions_of_a_program() {
    let server = |word: &str| {
        format!(
            "import http.server\n\
             class Handler(http.server.BaseHTTPRequestHandler):\n\
             \x20   def do_GET(self):\n\
             \x20       self.send_response(200); self.end_headers(); self.wfile.write(b'{word}')\n\
             http.server.ThreadingHTTPServer(('', 8080), Handler).serve_forever()\n"
        )
    };
    let file = "name: words\n\
        services:\n\
        \x20 one: { command: [\"python3\", \"server.py\"], directory: one, ports: [8080] }\n\
        \x20 two: { command: [\"python3\", \"server.py\"], directory: two, ports: [8080] }\n\
        tests:\n\
        \x20 - { name: word, http: { get: \"http://one:8080/\", expect: { body: \"^new$|^old$\" } } }\n";
    let tool = tool();
    for side in ["v1", "v2"] {
        tool.write(&format!("{side}/faultscope.yaml"), file);
        tool.write(&format!("{side}/one/server.py"), &server(if side == "v1" { "old" } else { "odd" }));
        tool.write(&format!("{side}/two/server.py"), &server("same"));
    }
    let report = tool.json(["debug", "--good", "v1", "--bad", "v2"], 1);
    let cause = &report["causes"][0]["deltas"];
    assert_eq!(report["deltas"], 1, "the folder of `two` holds the same on both sides");
    assert_eq!(
        (&cause[0]["name"], &cause[0]["from"], &cause[0]["to"]),
        (&"version one".into(), &"v1/one/".into(), &"v2/one/".into())
    );
}

#[test]
fn the_input_of_a_test_is_looked_for_beside_its_own_file() {
    let (tool, text) = plain();
    let (services, _) = text.split_once("tests:\n").unwrap();
    let test = "tests:\n  - { name: import, run: [\"sh\", \"import.sh\", \"{input}\"], input: data/orders.txt, failure: bad }\n";
    let import = "grep -q bad \"$1\" && curl -s http://back:8081/word | grep -q moon && { echo bad >&2; exit 1; }; \
                  grep -q . \"$1\"\n";
    for (side, word) in [("v1", "world"), ("v2", "moon")] {
        let env = format!("    ports: [8081]\n    env: {{ WORD: {word} }}\n");
        let services = services.replace("    ports: [8081]\n", &env);
        tool.write(&format!("{side}/faultscope.yaml"), &format!("{services}{test}"));
        tool.write(&format!("{side}/cells.yaml"), &tool.read("cells.yaml"));
        tool.write(&format!("{side}/import.sh"), import);
        tool.write(&format!("{side}/data/orders.txt"), "good\nbad\ngood\n");
    }
    let sides = ["--good", "v1", "--bad", "v2"];
    let report = tool.json([&["debug", "--input"], &sides[..]].concat(), 1);
    assert_eq!(report["causes"][0]["deltas"][0]["name"], "config back.env.WORD");
    assert_eq!(
        (&report["input"]["text"], &report["input"]["ending"]["kind"]),
        (&"bad".into(), &"minimal".into())
    );
    // Tests of a file of their own have their input beside that one.
    tool.write("tests/faultscope.yaml", &format!("{services}{test}"));
    tool.write("tests/import.sh", import);
    tool.write("tests/data/orders.txt", "bad\n");
    std::fs::remove_dir_all(tool.folder().join("v2/data")).unwrap();
    let words = ["test", "--failing", "--tests", "tests"];
    tool.run(words.iter().chain(&sides)).expect(1);
}

#[test]
fn compose_projects() {
    let tool = tool();
    let file = |tag: &str, extra: &str| {
        format!(
            "services:\n  web:\n    image: shop/web:{tag}\n    ports: [\"80:80\"]\n    environment: {{ TTL: \"30\" }}\n{extra}"
        )
    };
    tool.write("v1/compose.yaml", &file("1.0", ""));
    tool.write(
        "v2/compose.yaml",
        &file("1.1", "    deploy: { replicas: 3, resources: { limits: { memory: 64M } } }\n"),
    );
    tool.write("over.yaml", "services: { web: { environment: { TTL: \"300\" } } }\n");
    let checked = tool.json(["check", "--good", "v1", "--bad", "v2/compose.yaml", "--bad", "over.yaml"], 0);
    let mut deltas: Vec<String> = checked["deltas"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| {
            format!(
                "{}: {} -> {}",
                d["name"].as_str().unwrap(),
                d["from"].as_str().unwrap(),
                d["to"].as_str().unwrap()
            )
        })
        .collect();
    deltas.sort();
    assert_eq!(
        deltas,
        [
            "config web.env.TTL: 30 -> 300",
            "config web.memory: unset -> 64MiB",
            "instance web: 1 -> 3",
            "version web: shop/web:1.0 -> shop/web:1.1",
        ]
    );
}

#[test]
fn what_cannot_be_compared() {
    let tool = tool_with(&cells());
    assert_snapshot!(tool.run(["check", "--good", "faultscope.yaml"]).exact(), @"
    exit code 2
    --- stderr
    error: the following required arguments were not provided:
      --bad <FILE>

    Usage: faultscope check --good <FILE> --bad <FILE> [FILE]

    For more information, try '--help'.
    ");
    tool.write("other.yaml", "services: { a: { command: [a] } }\n");
    assert_snapshot!(tool.run(["check", "--good", "faultscope.yaml", "--bad", "other.yaml"]).exact(), @"
    exit code 3
    --- stderr
    error: the two have no service in common

    hint: compare two deployments of the same application
    ");
    assert_snapshot!(tool.run(["check", "--good", "faultscope.yaml", "--bad", "nothing.yaml"]).exact(), @"
    exit code 3
    --- stderr
    error: cannot read nothing.yaml
      because: No such file or directory (os error 2)

    hint: `faultscope init` writes one from a Compose file or a Procfile; `faultscope demo` needs none
    ");
}
