//! Test cases as real commands list them.

use std::path::Path;

use faultscope_engine::{CaseError, Cases, find_cases};
use faultscope_model::Application;
use faultscope_model::application::{TestBody, TestCase};
use tempfile::TempDir;

async fn found(folder: &Path, tests: &str) -> Result<(Vec<Cases>, Application), CaseError> {
    let text = format!("name: a\nservices: {{ s: {{ command: [s] }} }}\ntests:\n{tests}");
    let mut application = Application::read_alone(&text, "a.yaml").unwrap();
    Ok((find_cases(&mut application, folder).await?, application))
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

#[tokio::test]
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

#[tokio::test]
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

#[tokio::test]
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
