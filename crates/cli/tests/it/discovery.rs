//! Test cases as real commands list them.

use std::path::Path;

use faultscope_engine::{CaseError, Cases, SessionOptions, find_cases};
use faultscope_model::application::{TestBody, TestCase};
use faultscope_model::{Application, CampaignKind};
use faultscope_platform::process::{ProcessOptions, ProcessPlatform, WantedIsolation};
use faultscope_testkit::{cells, left_over, nothing_left, wait_until};
use tempfile::TempDir;

use crate::{tool, tool_with};

async fn found(folder: &Path, tests: &str) -> Result<(Vec<Cases>, Application), CaseError> {
    let text = format!("name: a\nservices: {{ s: {{ command: [s] }} }}\ntests:\n{tests}");
    let mut application = Application::read_alone(&text, "a.yaml").unwrap();
    let program = tool().program().to_owned();
    let options = ProcessOptions { isolation: WantedIsolation::Auto, program: program.clone(), state: None };
    let platform = ProcessPlatform::new(options).unwrap();
    let options = SessionOptions::new(CampaignKind::Test, folder.to_owned(), program);
    Ok((find_cases(&mut application, &platform, &options).await?, application))
}

fn command(test: &TestCase) -> (&str, &[String]) {
    match &test.body {
        TestBody::Command(command) => (&test.name, &command.run),
        other => panic!("{other:?} is no command"),
    }
}

fn commands(application: &Application) -> Vec<(&str, &[String])> {
    application.tests.iter().map(command).collect()
}

fn write(folder: &Path, file: &str, text: &str) {
    let path = folder.join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn cargo_lists_its_tests() {
    let folder = TempDir::new().unwrap();
    write(
        folder.path(),
        "Cargo.toml",
        "[package]\nname = \"shop\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
    );
    let text = "#[cfg(test)]\nmod tests {\n#[test]\nfn opens() {}\n#[test]\nfn closes() { panic!() }\n}\n";
    write(folder.path(), "src/lib.rs", text);
    write(folder.path(), "tests/whole.rs", "#[test]\nfn sells() {}\n");
    let (cases, application) = found(folder.path(), "  - { discover: cargo }\n").await.unwrap();
    let mut names: Vec<_> = application.tests.iter().map(|test| test.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["sells", "tests::closes", "tests::opens"]);
    assert_eq!((cases[0].test.as_str(), cases[0].left_out), ("discovered-1", 0));
    // Each runs alone, and only it: one passes although another one fails.
    for (name, run) in commands(&application) {
        let status = std::process::Command::new(&run[0])
            .args(&run[1..])
            .current_dir(folder.path())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.success(), name != "tests::closes", "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_lists_and_names_that_two_lists_share() {
    let folder = TempDir::new().unwrap();
    let report = "<testsuite><testcase classname='shop.Pay' name='once'/><testcase name='-rf'/>\
                  <testcase classname='shop' name='twice'><failure/></testcase></testsuite>";
    write(folder.path(), "report.xml", report);
    let tests = "  - { name: j, discover: junit, list: [cp, report.xml, '{out}'], each: [run, '{class}#{name}'] }
  - { discover: lines, list: [printf, 'shop.Pay.once\\nb {name}\\n'], each: [sh, -c, 'x $CASE', '{case}'], env: { CASE: '1' } }\n";
    let (cases, application) = found(folder.path(), tests).await.unwrap();
    assert_eq!(cases[0].left_out, 1, "an option");
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let expected = [
        ("shop.Pay.once", words(&["run", "shop.Pay#once"])),
        ("shop.twice", words(&["run", "shop#twice"])),
        ("discovered-2: shop.Pay.once", words(&["sh", "-c", "x $CASE", "shop.Pay.once"])),
        ("b {name}", words(&["sh", "-c", "x $CASE", "b {name}"])),
    ];
    let found: Vec<_> = commands(&application).into_iter().map(|(name, run)| (name, run.to_vec())).collect();
    assert_eq!(found, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_list_commands_are_reported() {
    let folder = TempDir::new().unwrap();
    let told = async |list: &str| {
        let tests = format!("  - {{ name: t, discover: lines, list: {list}, each: [x, '{{case}}'] }}\n");
        found(folder.path(), &tests).await.unwrap_err().to_string()
    };
    assert_eq!(told("[echo]").await, "test `t`: the command that lists its cases printed none");
    assert_eq!(
        told("[sh, -c, 'echo no module >&2; exit 2']").await,
        "test `t`: the command that lists its cases ended with code 2: no module"
    );
    assert_eq!(told("[./missing]").await, "test `t`: cannot start `./missing`, which lists its cases");
    let endless = told("[sh, -c, 'yes | head -c 20000000']").await;
    assert!(endless.contains("more than"), "{endless}");
}

#[tokio::test(flavor = "multi_thread")]
async fn list_commands_have_no_network_and_leave_no_files() {
    let folder = TempDir::new().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!(
        "import os, socket
open('left', 'w').write('x')
open('/tmp/fs-test-left', 'w').write('x')
try: socket.create_connection(('127.0.0.1', {port}), 5); print('connected')
except OSError: print('refused')
print(len(os.listdir('/sys/class/net')))
"
    );
    write(folder.path(), "list.py", &script);
    let tests = "  - { discover: lines, list: [python3, list.py], each: [run, '{case}'] }\n";
    let (_, application) = found(folder.path(), tests).await.unwrap();
    let names: Vec<_> = commands(&application).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names[0], "refused");
    assert!(!folder.path().join("left").exists() && !Path::new("/tmp/fs-test-left").exists());
    assert!(std::fs::read_dir(folder.path().join(".faultscope/slots")).unwrap().next().is_none());
}

/// `check` and `repro` start somebody else's list command before anything else of the file runs.
#[test]
fn a_list_command_ends_with_a_killed_tool() {
    let list = "sh, -c, '(setsid sleep 1000 &); env -i sleep 1000', x";
    let test = format!("tests:\n  - {{ discover: lines, list: [{list}], each: [x, '{{case}}'] }}\n");
    let tool = tool_with(&cells().replace("tests:\n", &test));
    for words in [&["check"][..], &["test", "--isolation", "ports"]] {
        let running = tool.start(words);
        let id = running.id();
        wait_until("it has forked", || {
            left_over(id, &tool.folder()).iter().any(|line| line.contains("sleep 1000"))
        });
        running.kill();
        assert_eq!(running.wait().signal, Some(9));
        faultscope_testkit::no_process_left(id);
        tool.run(["clean"]).expect(0);
        nothing_left(id, &tool.folder());
    }
}
