//! Tests that are commands: how they end, what they say, what they are given, which cases they report.

use faultscope_engine::{SessionOptions, find_cases};
use faultscope_model::CampaignKind;
use faultscope_platform::loopback::Test;
use tokio_util::sync::CancellationToken;

use crate::bed::{Bed, close, request, run};
use crate::greeter::{greeter, platform};

const ONE: &str = "name: one\nservices: { back: { command: [back], ports: [8081] } }\n";

#[tokio::test]
async fn commands_end_in_every_way() {
    let platform = platform()
        .program("complains", |test: Test| async move {
            test.print("begun");
            Err::<(), _>("balance 3 != 4")
        })
        .program("panics", |_: Test| async {
            // Never is a type of its own: an exit code must be what the program would have ended with.
            let till: Option<i32> = std::hint::black_box(None);
            till.expect("the till is open")
        })
        .program("hangs", |test: Test| async move {
            test.print("waiting");
            std::future::pending::<i32>().await
        });
    let file = format!(
        r#"{ONE}tests:
  - {{ name: passes, run: [get, "http://back:8081/word"] }}
  - {{ name: complains, run: [complains] }}
  - {{ name: panics, run: [panics] }}
  - {{ name: hangs, run: [hangs], within: 100ms }}
  - {{ name: is missing, run: [no-such-program] }}
"#
    );
    let tested = Bed::new(&file, platform).test(&[]).await;
    assert_eq!(tested.signature(), "complains: exit code 1: balance 3 != 4", "the first one that fails");
    let tests = &tested.run.evidence.tests;
    let endings: Vec<String> = tests
        .iter()
        .map(|test| test.failure.as_ref().map_or(String::new(), |f| f.ending.to_string()))
        .collect();
    assert_eq!(endings, ["", "exit code 1", "exit code 101", "timed out", "exit code 127"]);
    assert_eq!(tested.results()[1].1.trim(), "balance 3 != 4");
    assert_eq!(tests[1].output, "begun\nbalance 3 != 4\n");
    assert_eq!((tests[0].output.as_str(), tests[3].output.as_str()), ("world\n", "waiting\n"));
    assert!(
        tested.results()[4].1.contains("no test program is registered under this name"),
        "{:?}",
        tested.results()[4]
    );
}

#[tokio::test]
async fn a_pattern_chooses_what_the_failure_is() {
    let platform = platform().program("pays", |test: Test| async move {
        for line in ["started at 17", "balance 3 != 4", "done with 99"] {
            test.print(line);
        }
        1
    });
    let file = format!("{ONE}tests: [ {{ name: pay, run: [pays], failure: \"balance .* != .*\" }} ]\n");
    let tested = Bed::new(&file, platform).test(&[]).await;
    assert_eq!(tested.signature(), "pay: exit code 1: balance 3 != 4");
}

#[tokio::test]
async fn commands_find_what_the_file_gives_them() {
    let platform = platform().program("tells", |test: Test| async move {
        test.print(format!("{} {:?}", test.args().join(" "), test.env("GREETING")));
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        test.print(test.args().get(1).map(|path| read(path)).unwrap_or_default());
        0
    });
    let bed = Bed::new(
        &format!(
            "{ONE}tests:
  - {{ name: slot, run: [tells, 'slot ${{slot}}'], env: {{ GREETING: 'hello ${{slot}}' }} }}
  - {{ name: input, run: [tells, read, '{{input}}'], input: orders.txt }}
"
        ),
        platform,
    );
    std::fs::write(bed.folder.path().join("orders.txt"), "ball").unwrap();
    let tested = bed.test(&[]).await;
    assert_eq!(tested.outcome(), "pass");
    let outputs: Vec<_> = tested.run.evidence.tests.iter().map(|test| test.output.as_str()).collect();
    assert_eq!(outputs[0], "slot 0 Some(\"hello 0\")\n\n");
    assert!(outputs[1].ends_with("orders.txt None\nball\n"), "{}", outputs[1]);
}

/// A runner that writes a report of three cases, or none.
async fn suite(test: Test) -> Result<(), String> {
    let [suite, out] = test.args() else { return Err("no suite today".into()) };
    let report = format!(
        "<testsuite><testcase classname='{suite}' name='opens' time='0.25'/>\
         <testcase classname='{suite}' name='closes'><failure message='still open at 12:30:00'>trace</failure></testcase>\
         <testcase classname='{suite}' name='sleeps'><skipped/></testcase></testsuite>"
    );
    std::fs::write(out, report).map_err(|error| error.to_string())?;
    Err("1 of 2 failed".into())
}

#[tokio::test]
async fn reported_cases_are_tests_of_their_own() {
    let of = |tests: &str| Bed::new(&format!("{ONE}tests:\n{tests}"), platform().program("suite", suite));
    let tested = of("  - { discover: junit, run: [suite, shop, '{out}'] }\n").test(&[]).await;
    assert_eq!(tested.results(), [("shop.opens", ""), ("shop.closes", "still open at 12:30:00")]);
    assert_eq!(tested.signature(), "shop.closes: failed: still open at <time>");
    assert_eq!(tested.run.evidence.tests[0].took, std::time::Duration::from_millis(250));
    // A runner that reports nothing has failed as a whole.
    let tested = of("  - { discover: junit, run: [suite, '{out}'] }\n").test(&[]).await;
    let [("discovered-1", said)] = tested.results()[..] else { panic!("{:?}", tested.results()) };
    assert!(said.starts_with("no report: ") && said.contains("no suite today"), "{said}");
    // Cases of two suites have the names of their suites.
    let two = "  - { name: one, discover: junit, run: [suite, shop, '{out}'] }\n  \
               - { name: two, discover: junit, run: [suite, shop, '{out}'] }\n";
    let tested = of(two).test(&[]).await;
    let names: Vec<_> = tested.results().into_iter().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(names, ["one: shop.opens", "one: shop.closes", "two: shop.opens", "two: shop.closes"]);
}

#[tokio::test]
async fn calls_of_commands_are_seen() {
    let tested = greeter(
        r#"tests:
  - { name: by name, run: [get, "http://front:8080/hello"] }
  - { name: nobody, run: [get, "http://nobody:8080/"] }
"#,
    )
    .test(&[])
    .await;
    assert_eq!(tested.results()[1], ("nobody", "test-1 has no route to nobody:8080\n"));
    assert_eq!(
        tested.calls(),
        ["test-1 -> front-1 GET /hello 200 root", "front-1 -> back-1 GET /word 200 propagated"]
    );
}

#[tokio::test]
async fn listed_cases_run_alone_whatever_lists_them() {
    let runner = |test: Test| async move {
        let case = &test.args()[0];
        if case.ends_with("sells[two 2]") { Err(format!("no {case}")) } else { Ok(()) }
    };
    for (kind, form) in [("lines", "%s"), ("cargo", "shop::%s: test"), ("pytest", "tests/shop.py::%s")] {
        let list = form.replace("%s", "opens") + "\\n" + &form.replace("%s", "sells[two 2]") + "\\n";
        let file = format!(
            "{ONE}tests: [ {{ discover: {kind}, list: [printf, \"{list}\"], each: [runner, '{{case}}'] }} ]\n",
            list = list.replace('\\', "\\\\")
        );
        let printf = |test: Test| async move {
            test.print(test.args()[0].replace("\\n", "\n").trim_end());
            0
        };
        let bed = Bed::new(&file, platform().program("runner", runner).program("printf", printf));
        let mut application = bed.application();
        let options =
            SessionOptions::new(CampaignKind::Test, bed.folder.path().to_owned(), "faultscope".into());
        find_cases(&mut application, bed.platform.as_ref(), &options).await.unwrap();
        let session = bed.open_for(application, CampaignKind::Test, None).await;
        let done = run(&session, vec![request(&session, &[])], &CancellationToken::new()).await;
        let tests = &done.runs[0].evidence.tests;
        let results: Vec<_> = tests.iter().map(|test| (test.test.as_str(), test.failure.is_some())).collect();
        let name = |case: &str| form.trim_end_matches(": test").replace("%s", case);
        assert_eq!(
            results,
            [(name("opens").as_str(), false), (name("sells[two 2]").as_str(), true)],
            "{kind}"
        );
        close(session).await;
    }
}
