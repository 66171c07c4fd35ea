//! What the tool says of itself: help, usage, completions; and `fetch`, which needs no application.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use insta::assert_snapshot;

use crate::tool;

#[test]
fn help() {
    assert_snapshot!(tool().run(["--help"]).exact(), @"
    exit code 0
    --- stdout
    Finds out why a microservice system fails.

    Faultscope deploys an application under a chosen circumstance, runs its tests through a mesh that
    records and steers every call, and stores what happened as runs.

    Usage: faultscope [OPTIONS] <COMMAND>

    Commands:
      demo         Starts a sample system of 45 services and finds out why one of its tests fails
      check        Checks an application file and lists every delta
      init         Writes an application file from Compose files, Kubernetes manifests or a Procfile
      capture      Fills the failing circumstance from a running or recorded system
      up           Starts an application and keeps it running, recording every call, until Ctrl-C
      record       Records the calls to services that are already running, through proxies in front of
                   them, until Ctrl-C
      clone        Copies the data, commands and settings of a running application, without stopping it
                   for long
      replay       Sends recorded requests to fresh copies of the same services, and compares the
                   answers
      debug        Reduces a failing circumstance to the smallest set of deltas that makes the test fail
      resilience   Perturbs passing tests (repeats requests, restarts services, loses responses) and
                   finds every defect
      test         Runs the tests of an application in a fresh deployment
      runs         Lists and shows stored runs
      report       Shows what a debug or resilience campaign found, or writes it as a file
      repro        Reproduces the failure of a bundle on this machine
      serve        Stores what tracers send and answers trace viewers, as Zipkin, Jaeger and an OTLP
                   collector do
      traces       Lists, shows, imports and exports traces that services reported, with the services
                   they called
      services     Lists services that reported spans or were called by one that did
      deps         Shows which services call each other, how often and with how many errors, from
                   reported spans
      metrics      Lists and draws metrics of instances and services over time
      load         Sends requests to a service as many users do, and measures the answers
      causal       Finds causes in tables of measurements, and predicts what happens if a column is set
      watch        Finds anomalies in latency, errors, CPU, memory and network of services, and the
                   traces that led to them
      clean        Removes what a killed faultscope left behind, and old campaigns
      store        Checks and repairs what is stored
      mutate       Makes services faulty on purpose: lists, shows, applies and scores mutants
      faults       Lists and shows known faults of microservice systems, and the operators that imitate
                   them
      bench        Measures the tool against named peers and goals
      fetch        Sends one HTTP request and prints the response; fails if the status is 400 or above
      completions  Prints a completion script for a shell
      help         Print this message or the help of the given subcommand(s)

    Options:
          --json
              Print results as JSON

          --color <WHEN>
              When to use colours; NO_COLOR works too

              [default: auto]
              [possible values: auto, always, never]

      -q, --quiet
              Hide progress

      -v, --verbose...
              Log more; repeat for even more

      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Exit codes:
        0  done, nothing wrong was found
        1  a failure was found (a test failed)
        2  the command line is wrong
        3  the application file is wrong
        4  the platform is unavailable
        5  the trial could not be judged
        6  the environment spoiled trials or changed under them
        7  the budget was used up before the answer was there
        8  the test fails already in the simplest circumstance
        9  a call to a mocked service had no recorded answer
       70  the tool itself broke
      130  interrupted
    ");
}

#[test]
fn help_of_commands_has_examples() {
    let tool = tool();
    for command in [
        "capture",
        "check",
        "debug",
        "init",
        "up",
        "resilience",
        "test",
        "report",
        "repro",
        "bench",
        "completions",
    ] {
        let text = tool.run([command, "--help"]).expect(0).stdout;
        assert!(text.contains("Example: faultscope"), "{command}: {text}");
    }
    assert_snapshot!(tool.run(["test", "--help"]).exact(), @r#"
    exit code 0
    --- stdout
    Runs the tests of an application in a fresh deployment.

    Example: faultscope test --test "pay twice" --set config.order.memory=64MiB --repeat 4 --slots 2

    Usage: faultscope test [OPTIONS] [FILE]

    Arguments:
      [FILE]
              The application file, or the folder it is in

              [default: faultscope.yaml]

    Options:
          --folder <FOLDER>
              The same as FILE, for symmetry with commands that only read the store

          --json
              Print results as JSON

          --color <WHEN>
              When to use colours; NO_COLOR works too

              [default: auto]
              [possible values: auto, always, never]

          --platform <PLATFORM>
              The platform that runs the application

              Possible values:
              - process: Processes on this machine
              - docker:  Containers of a Docker engine on this machine; uses `DOCKER_HOST` if it is set

              [default: process]

          --isolation <ISOLATION>
              How processes are isolated; by default as in the file

              Possible values:
              - auto:  Namespaces where possible, otherwise ports
              - netns: Network, mount and process namespaces
              - ports: Ports of the loopback interface

      -q, --quiet
              Hide progress

          --good <FILE>
              A deployment that works: an application file, a folder, Compose files (repeat for
              overrides), or manifests. Every difference to `--bad` is a delta

      -v, --verbose...
              Log more; repeat for even more

          --bad <FILE>
              A deployment that fails

          --tests <FILE>
              An application file whose tests are used instead of those of `--bad`

          --failing
              Use the failing circumstance of the file instead of the simplest

          --delta <NAME>
              Add one delta, named as `faultscope check` lists it

          --set <SETTING>
              Change one setting: nodes=3, instances.order=2, config.order.memory=64MiB,
              config.order.env.TTL=5, versions.order=v2

          --order <ORDER>
              Impose this order on concurrent calls, unless a delta changes it: "order POST /pay: price
              GET /p, stock PUT /s"

          --record <RECORD>
              How much of each call is recorded

              Possible values:
              - timing:  Names, times, sizes, status
              - headers: Also headers
              - bodies:  Also the first KiB of each body

          --seed <SEED>
              Seed of every random choice

              [default: 1]

          --test <NAME>
              Run only this test; repeat for several

          --repeat <REPEAT>
              Number of trials, each in a fresh deployment

              [default: 1]

          --slots <SLOTS>
              Number of trials at the same time

              [default: 1]

          --fail-fast
              Stop at the first failing trial

          --sentinel-every <TRIALS>
              Repeat a known trial after this many others, to notice changes of the environment

              [default: 0]

      -h, --help
              Print help (see a summary with '-h')
    "#);
}

#[test]
fn version() {
    assert_snapshot!(tool().run(["--version"]).exact(), @"
    exit code 0
    --- stdout
    faultscope 0.1.0
    ");
}

#[test]
fn wrong_usage() {
    let tool = tool();
    assert_snapshot!(tool.run(["tset"]).exact(), @"
    exit code 2
    --- stderr
    error: unrecognized subcommand 'tset'

      tip: a similar subcommand exists: 'test'

    Usage: faultscope [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
    assert_snapshot!(tool.run(["test", "--repeat", "0"]).exact(), @"
    exit code 2
    --- stderr
    error: invalid value '0' for '--repeat <REPEAT>': 0 is not in 1..=10000

    For more information, try '--help'.
    ");
    assert_snapshot!(tool.run(["test", "--failing", "--delta", "x"]).exact(), @"
    exit code 2
    --- stderr
    error: the argument '--failing' cannot be used with '--delta <NAME>'

    Usage: faultscope test --failing [FILE]

    For more information, try '--help'.
    ");
    assert_eq!(tool.run([] as [&str; 0]).code, Some(2));
}

#[test]
fn errors_are_json_where_results_are() {
    let tool = tool();
    let missing = tool.run(["--json", "check"]).expect(3);
    assert_snapshot!(missing.stdout, @r#"
    {
      "error": {
        "causes": [
          "No such file or directory (os error 2)"
        ],
        "exit": 3,
        "hint": "`faultscope init` writes one from a Compose file or a Procfile; `faultscope demo` needs none",
        "lines": [],
        "message": "cannot read faultscope.yaml"
      }
    }
    "#);
    assert!(missing.stderr.starts_with("error: cannot read faultscope.yaml"), "{}", missing.stderr);
    let usage: serde_json::Value =
        serde_json::from_str(&tool.run(["test", "--json", "--repeat", "0"]).expect(2).stdout).unwrap();
    assert_eq!(usage["error"]["exit"], 2);
    assert!(usage["error"]["message"].as_str().is_some_and(|text| text.contains("0 is not in")), "{usage}");
}

#[test]
fn completions() {
    let tool = tool();
    for (shell, sign) in
        [("bash", "complete -F"), ("zsh", "#compdef faultscope"), ("fish", "complete -c faultscope")]
    {
        let text = tool.run(["completions", shell]).expect(0).stdout;
        assert!(text.contains(sign), "{shell}");
        assert!(text.contains("publish-from"), "{shell}");
    }
}

/// Answers one request with these bytes; gives its own address and, at its end, what it was asked.
fn answering(answer: &'static str) -> (String, thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let served = thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") && connection.read(&mut byte).unwrap() > 0 {
            request.push(byte[0]);
        }
        connection.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(request).unwrap()
    });
    (address, served)
}

#[test]
fn fetch_prints_the_answer() {
    let (address, served) = answering("HTTP/1.1 200 OK\r\ncontent-length: 3\r\nx-a: b\r\n\r\nyes");
    let output = tool().run(["fetch", &format!("http://{address}/a?b=c"), "-H", "X-Mine: 1", "-X", "PUT"]);
    assert_snapshot!(output.exact(), @"
    exit code 0
    --- stdout
    yes
    ");
    let asked = served.join().unwrap();
    assert!(asked.starts_with("PUT /a?b=c HTTP/1.1\r\n") && asked.contains("x-mine: 1"), "{asked}");
}

#[test]
fn fetch_as_json_and_with_an_error() {
    let (address, served) = answering("HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno");
    let json = tool().json(["fetch", &format!("http://{address}/"), "-d", "x=1"], 1);
    assert_eq!(
        json,
        serde_json::json!({ "status": 404, "headers": [["content-length", "2"]], "body": "no" })
    );
    served.join().unwrap();
}

#[test]
fn fetch_of_nothing() {
    // A port that was free a moment ago, and that nobody else gets so soon.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_snapshot!(tool().run(["fetch", &format!("http://{closed}/")]).shown(), @"
    exit code 1
    --- stderr
    error: GET http://127.0.0.1:<port>/
      because: Connection refused (os error 111)
    ");
    assert_snapshot!(tool().run(["fetch", "https://localhost/"]).exact(), @"
    exit code 1
    --- stderr
    error: GET https://localhost/
      because: only http URLs can be fetched
    ");
}

#[test]
fn fetch_does_not_wait_for_ever() {
    // The kernel accepts for us; nobody answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    assert_snapshot!(tool().run(["fetch", &format!("http://{address}/"), "--within", "50ms"]).shown(), @"
    exit code 1
    --- stderr
    error: GET http://127.0.0.1:<port>/
      because: no answer in time
    ");
}
