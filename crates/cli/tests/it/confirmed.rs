//! What `faultscope resilience` does to be sure of what it found.

use faultscope_testkit::Faultscope;

use crate::resilience::{PROCESS, defects};
use crate::tool;

const DEFECT: &str = r#"if ("duplicate", "b") in bad:"#;

fn process(mode: &str, defect: &str) -> Faultscope {
    let tool = tool();
    let count = tool.temporary().join("count").to_string_lossy().into_owned();
    let text = PROCESS.replace("MODE", mode).replace(DEFECT, defect).replace("COUNT", &count);
    tool.write("process.py", &text);
    tool
}

const RUN: [&str; 3] = ["resilience", "--command", "python3 process.py"];

#[test]
fn a_test_that_fails_by_itself_makes_no_defects() {
    // The two runs without perturbations pass; then one in four fails, whatever is done.
    let chance = r#"
count = int(open("COUNT").read()) if os.path.exists("COUNT") else 0
open("COUNT", "w").write(str(count + 1))
if count % 4 == 2: sys.exit("by chance")
"#;
    let report = process(chance, "if False:").json(RUN, 0);
    assert_eq!(defects(&report), [""; 0], "{report}");
    assert!(report["tests"][0]["flaky"]["failed"].as_u64().is_some(), "it was noticed: {report}");
    // What is really wrong is still found.
    let report = process(chance, DEFECT).json(RUN, 1);
    assert_eq!(defects(&report), ["duplicate a.Go/b.Go"]);
}

#[test]
fn a_failure_that_does_not_come_again_is_told_but_no_defect() {
    // The third run fails, never again.
    let once = r#"
count = int(open("COUNT").read()) if os.path.exists("COUNT") else 0
open("COUNT", "w").write(str(count + 1))
if count in (2, 3): sys.exit("once")
"#;
    let report = process(once, "if False:").json([&RUN[..], &["--kinds", "restart"]].concat(), 0);
    assert_eq!(defects(&report), [""; 0]);
    let notes = report["tests"][0]["notes"].to_string();
    let found = report["tests"][0]["flaky"].is_object() || notes.contains("failed once and passed again");
    assert!(found, "{report}");
}

#[test]
fn others_at_the_same_receiver_are_told_with_a_defect() {
    let more = "send(4, 1, \"b\", a + \"#2\")\nsend(5, 1, \"b\", a + \"#3\")";
    let defect =
        r#"if any(p["target"] in ("a.Go/b.Go", "a.Go#2/b.Go") for p in asked if p["kind"] == "duplicate"):"#;
    let report = process(more, defect).json(RUN, 1);
    let test = &report["tests"][0];
    let found = &test["defects"][0];
    let mut names = vec![found["perturbations"][0]["target"].clone(), found["also"][0][0]["target"].clone()];
    names.sort_by_key(ToString::to_string);
    assert_eq!(names, ["a.Go#2/b.Go", "a.Go/b.Go"], "{test}");
    assert_eq!((test["defects"].as_array().unwrap().len(), found["also"].as_array().unwrap().len()), (1, 1));
}

#[test]
fn what_had_no_chance_beside_others_is_tried_alone() {
    // A restart is carried out only when nothing else is asked for.
    let shy = r#"
if len(asked) > 1:
    lines = [line for line in open(os.environ["FAULTSCOPE_TRACE"]) if '"restart"' not in line]
    open(os.environ["FAULTSCOPE_TRACE"], "w").writelines(lines)
    bad = [b for b in bad if b[0] != "restart"]
"#;
    let more = format!("{shy}\n");
    let tool = process(&more, r#"if ("restart", "c") in bad:"#);
    let report = tool.json(RUN, 1);
    assert_eq!(defects(&report), ["restart a.Go/c.Go"], "{report}");
    assert!(report["tests"][0]["missed"].is_null());
}
