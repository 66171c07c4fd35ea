//! `faultscope store`: what is damaged is named, the rest is shown, and what can be saved is.

use std::fs;

use faultscope_testkit::cells;

use crate::tool_with;

#[test]
fn a_damaged_campaign_is_named_and_the_others_are_shown() {
    let tool = tool_with(&cells());
    tool.run(["test"]).expect(0);
    tool.run(["test"]).expect(0);
    let ids = || -> Vec<String> {
        let listed = tool.json(["runs", "ls"], 0);
        let campaigns = listed.as_array().unwrap().iter();
        campaigns.map(|listed| listed["campaign"]["id"].as_str().unwrap().to_owned()).collect()
    };
    let [newest, older] = &ids()[..] else { panic!("two campaigns") };
    tool.run(["store", "check"]).expect(0);
    let state = tool.folder().join(".faultscope");
    fs::write(state.join(format!("campaigns/{newest}/store.sqlite")), "not a database ".repeat(100)).unwrap();

    assert_eq!(ids(), vec![older.to_owned()]);
    let output = tool.run(["runs", "show"]).expect(0);
    assert!(output.stderr.contains(newest) && output.stderr.contains("store check"), "{}", output.stderr);
    let parts = tool.json(["store", "check"], 1);
    let state_of = |id: &String| {
        let parts = parts.as_array().unwrap();
        parts.iter().find(|part| part["name"] == **id).unwrap()["state"].clone()
    };
    assert_eq!((state_of(newest), state_of(older)), ("damaged".into(), "ok".into()));
    let said = tool.run(["store", "repair"]).expect(0).stdout;
    assert!(said.contains(&format!("campaign {newest}: moved to")), "{said}");
    assert!(state.join(format!("damaged/campaigns-{newest}/campaign.json")).exists(), "nothing is deleted");
    tool.run(["store", "check"]).expect(0);
    assert_eq!(tool.run(["store", "repair"]).expect(0).stdout, "nothing needs a repair\n");
}

/// By default SIGXFSZ ends a process that writes beyond the limit.
#[test]
fn a_limit_of_file_sizes_is_an_error() {
    let tool = tool_with(&cells()).file_size(64 << 10);
    let output = tool.run(["test"]);
    assert!(output.code.is_some(), "no signal ended it");
    assert!(output.stderr.contains("cannot"), "{}", output.stderr);
}
