//! Bundles of applications that are more than a small folder: files elsewhere, files left out, files restored.

use faultscope_testkit::{Faultscope, cells};
use insta::assert_snapshot;

use crate::{tool, tool_with};

const DEBUG: [&str; 7] = ["debug", "ops/case.yaml", "--only", "--flaky", "off", "--bundle", "b.tar.gz"];

/// The cells in `app`, described by files in `ops`, with a part that is made again elsewhere.
fn apart(restore: &str) -> Faultscope {
    let tool = tool_with(&cells());
    let (file, spec) = (tool.read("faultscope.yaml"), tool.read("cells.yaml"));
    std::fs::remove_file(tool.folder().join("faultscope.yaml")).unwrap();
    std::fs::remove_file(tool.folder().join("cells.yaml")).unwrap();
    tool.write("app/cells.yaml", &spec);
    tool.write("app/cells.template", &spec);
    tool.write("app/node_modules/huge.js", "");
    tool.write("app/.gitignore", "node_modules/\n");
    tool.write("ops/base.yaml", &format!("directory: ../app\n{file}"));
    let bundle = format!("bundle: {{ exclude: [cells.yaml, \"*.log\"], restore: {restore} }}\n");
    tool.write("ops/case.yaml", &format!("extends: base.yaml\n{bundle}"));
    tool
}

/// A folder with nothing of the first machine but the bundle.
fn elsewhere(tool: &Faultscope) -> Faultscope {
    let elsewhere = crate::tool();
    std::fs::copy(tool.folder().join("b.tar.gz"), elsewhere.folder().join("b.tar.gz")).unwrap();
    elsewhere
}

#[test]
fn what_is_left_out_is_restored_if_the_user_allows_it() {
    let tool = apart("[cp, cells.template, cells.yaml]");
    let output = tool.run(DEBUG).expect(1);
    assert!(
        output.stdout.contains("Elsewhere with `faultscope repro b.tar.gz --restore` ("),
        "{}",
        output.stdout
    );
    let ignored = "not in the bundle, as .gitignore lists them: node_modules; \
                   `bundle: { exclude: [\"!node_modules\"] }` takes one along";
    assert!(output.stderr.contains(ignored), "{}", output.stderr);

    let other = elsewhere(&tool);
    assert_snapshot!(other.run(["repro", "b.tar.gz"]).shown(), @"
    exit code 2
    --- stderr
    error: the bundle wants to run `cp cells.template cells.yaml` on this machine first

    hint: it restores what the bundle leaves out, outside of any slot, with your rights and the network; look at the bundle with `--into FOLDER`, then say `--restore`, or `--skip-restore` to go on without
    ");
    let restored = other.run(["repro", "b.tar.gz", "--restore", "--into", "kept"]).expect(1);
    assert!(restored.stderr.contains("restoring with `cp cells.template cells.yaml`"), "{}", restored.stderr);
    assert!(restored.stdout.ends_with("reproduced\n"), "{}", restored.stdout);
    let here = tool.folder().display().to_string();
    for file in
        ["kept/README.md", "kept/application/minimal.yaml", "kept/files/base.yaml", "kept/files/case.yaml"]
    {
        assert!(!other.read(file).contains(&here), "{file}");
    }
    assert!(!other.folder().join("kept/application/node_modules").exists());
    // By hand, as the README says.
    assert!(other.read("kept/README.md").contains("    cp cells.template cells.yaml\n"));
    other.run(["test", "kept/application/minimal.yaml", "--failing"]).expect(1);
    // Without it the services have nothing to run.
    assert_eq!(other.run(["repro", "b.tar.gz", "--skip-restore"]).code, Some(5));
}

#[test]
fn a_restore_that_fails_shows_why() {
    let tool = apart("[sh, -c, \"echo no network >&2; exit 3\"]");
    tool.run(DEBUG).expect(1);
    assert_snapshot!(elsewhere(&tool).run(["repro", "b.tar.gz", "--restore"]).shown(), @"
    exit code 6
    --- stderr
    restoring with `sh -c 'echo no network >&2; exit 3'`
    error: what the bundle leaves out cannot be restored
      because: `sh -c 'echo no network >&2; exit 3'` ended with code 3
      | no network

    hint: repair it by hand: `--into FOLDER` keeps what was unpacked, and its README.md says how to go on
    ");
}

#[test]
fn a_pattern_that_is_none_is_known_before_the_search() {
    let tool = tool_with(&cells().more("bundle: { exclude: [\"[z-a]\"] }\n"));
    assert_snapshot!(tool.run(["debug"]).shown(), @"
    exit code 3
    --- stderr
    error: `bundle.exclude`: `[z-a]` is not a pattern: invalid range; 'z' > 'a'

    hint: patterns are those of a `.gitignore` file
    ");
}

#[test]
fn a_bundle_whose_application_lies_elsewhere_is_refused() {
    let victim = tool();
    victim.write("faultscope.yaml", "name: victim\nservices: { a: { command: [a] } }\n");
    let tool = tool_with(&cells());
    tool.run(["debug", "--only", "--flaky", "off", "--bundle", "b.tar.gz"]).expect(1);
    tool.run(["repro", "b.tar.gz", "--into", "kept"]).expect(1);
    let minimal = tool.read("kept/application/minimal.yaml");
    let outside = minimal.replace("directory: .\n", &format!("directory: {}\n", victim.folder().display()));
    assert_ne!(minimal, outside);
    tool.write("kept/application/minimal.yaml", &outside);
    let packed = std::process::Command::new("tar")
        .args(["czf", "hostile.tar.gz", "-C", "kept", "bundle.json", "README.md"])
        .args(["application/minimal.yaml", "application/faultscope.yaml", "application/cells.yaml"])
        .current_dir(tool.folder())
        .status();
    assert!(packed.unwrap().success());
    let refused = tool.run(["repro", "hostile.tar.gz"]).expect(2).stderr;
    assert!(refused.contains("its `directory` leads out of it"), "{refused}");
    assert!(!victim.folder().join(".faultscope").exists());
}
