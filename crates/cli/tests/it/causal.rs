//! `faultscope causal` on a table with known edges.

use std::path::Path;

use faultscope_testkit::cells;

use crate::tool_with;

/// A set of the analysis crate.
fn table() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../analysis/tests/data");
    folder.join("lin13_s2.csv.gz").to_string_lossy().into_owned()
}

#[test]
fn a_graph_is_found_fitted_and_asked() {
    let tool = tool_with(&cells());
    let table = table();
    let found = tool.run([
        "causal",
        "discover",
        &table,
        "--rows",
        "500",
        "--output",
        "graph.json",
        "--svg",
        "graph.svg",
    ]);
    let text = found.exact();
    assert!(
        text.contains("exit code 0") && text.contains("26 edges between 13 columns in 500 rows"),
        "{text}"
    );
    let fitted = tool.run([
        "causal",
        "fit",
        &table,
        "--graph",
        "graph.json",
        "--cut",
        "0.1",
        "--output",
        "model.json",
    ]);
    let text = fitted.exact();
    assert!(text.contains("exit code 0") && text.contains("model of 13 nodes and"), "{text}");
    let asked =
        tool.run(["causal", "query", "model.json", "--set", "x0=5", "--target", "x1", "--json"]).exact();
    assert!(asked.contains("\"mean_interval\""), "{asked}");
    let limit = tool
        .run(["causal", "query", "model.json", "--sweep", "x0=1..3", "--target", "x1", "--above", "1e9"])
        .exact();
    assert!(limit.contains("x1 does not exceed 1000000000 up to x0 = 3"), "{limit}");
    let why = tool.run(["causal", "explain", "model.json", "x1"]).exact();
    assert!(why.contains("x1: observed variance"), "{why}");
}

#[test]
fn what_is_wrong_is_said_with_a_hint() {
    let tool = tool_with(&cells());
    let table = table();
    for (words, part) in [
        (vec!["causal", "discover", "missing.csv"], "cannot use missing.csv"),
        (
            vec!["causal", "discover", &table, "--path", "x0->x1", "--path", "x1->x0"],
            "prior knowledge is cyclic",
        ),
        (vec!["causal", "discover", &table, "--exogenous", "nobody"], "columns: x0, x1"),
        (vec!["causal", "discover", &table, "--rows", "10"], "10 rows are too few for 13 columns"),
        (vec!["causal", "query", &table], "is not the JSON of a model"),
    ] {
        let text = tool.run(words.clone()).exact();
        assert!(text.contains("exit code 2") && text.contains(part), "{words:?}: {text}");
    }
}
