//! A server that is killed again and again loses nothing that it acknowledged.

use crate::tool;

/// A hundred times with `FAULTSCOPE_TEST_KILLS=100`.
#[test]
fn what_was_acknowledged_survives_kills() {
    let times = std::env::var("FAULTSCOPE_TEST_KILLS").unwrap_or_else(|_| "12".to_owned());
    let report = tool().json(["bench", "ingest", "--report-only", "--kills", &times], 0);
    let figure = |name: &str| {
        let figures = report["figures"].as_array().unwrap();
        figures.iter().find(|f| f["name"] == name).unwrap()["measured"].as_f64().unwrap()
    };
    assert_eq!(figure("kills").to_string(), times);
    assert_eq!(figure("acknowledged spans lost"), 0.0);
    assert!(figure("spans acknowledged") >= 100.0 * figure("kills"), "{report}");
    assert!(figure("spans found in all") >= figure("spans acknowledged"));
}
