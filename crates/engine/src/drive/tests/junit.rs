//! Parses JUnit XML as pytest, Maven, Gradle, go-junit-report and others write it.

use std::time::Duration;

use faultscope_model::outcome::{Ending, Failure, TestResult};

/// The most test cases of a report.
const MAX_CASES: usize = 20_000;
/// The most characters of a message.
const MAX_MESSAGE: usize = 8_000;

/// One test case of a report.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Case {
    name: String,
    /// Class and name as in the report.
    pub(super) parts: (String, String),
    took: Duration,
    failure: Option<String>,
}

impl Case {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn into_result(self) -> TestResult {
        TestResult {
            test: self.name,
            failure: self.failure.map(|message| Failure::new(Ending::Case, message)),
            took: self.took,
            output: String::new(),
        }
    }
}

/// The cases of a report; skipped ones are left out, since they show nothing.
pub(super) fn parse(text: &str) -> Result<Vec<Case>, String> {
    let options =
        roxmltree::ParsingOptions { allow_dtd: false, nodes_limit: 2_000_000, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(text, options).map_err(|e| e.to_string())?;
    let mut cases: Vec<Case> = Vec::new();
    for node in document.descendants().filter(|n| n.has_tag_name("testcase")).take(MAX_CASES) {
        if node.children().any(|c| c.has_tag_name("skipped")) {
            continue;
        }
        let name = node.attribute("name").unwrap_or("unnamed");
        let class = node.attribute("classname").unwrap_or_default();
        let mut full = if class.is_empty() { name.to_owned() } else { format!("{class}.{name}") };
        // Parametrised cases may share a name, but a name must mean one test.
        let same = cases.iter().filter(|c| c.name == full || c.name.starts_with(&format!("{full}#"))).count();
        if same > 0 {
            full = format!("{full}#{}", same + 1);
        }
        let broken = node.children().find(|c| c.has_tag_name("failure") || c.has_tag_name("error"));
        let failure = broken.map(|b| {
            let message = b.attribute("message").unwrap_or_default();
            let detail = b.text().unwrap_or_default();
            let said = if message.is_empty() { detail } else { message };
            said.chars().take(MAX_MESSAGE).collect()
        });
        let seconds: f64 =
            node.attribute("time").and_then(|t| t.replace(',', "").parse().ok()).unwrap_or_default();
        let took = Duration::try_from_secs_f64(seconds.clamp(0.0, 1e6)).unwrap_or_default();
        let parts = (class.to_owned(), name.to_owned());
        cases.push(Case { name: full, parts, took, failure });
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_runners_write() {
        let text = r#"<?xml version="1.0"?><testsuites><testsuite name="s" tests="4">
            <testcase classname="t.Pay" name="once" time="0.5"/>
            <testcase classname="t.Pay" name="twice" time="1,000.25"><failure message="3 != 4">trace</failure></testcase>
            <testcase name="boom"><error>it broke</error></testcase>
            <testcase name="later"><skipped/></testcase>
            <testcase name="boom"/>
        </testsuite></testsuites>"#;
        let cases = parse(text).unwrap();
        let shown: Vec<_> = cases.iter().map(|c| (c.name.as_str(), c.failure.as_deref())).collect();
        assert_eq!(
            shown,
            [
                ("t.Pay.once", None),
                ("t.Pay.twice", Some("3 != 4")),
                ("boom", Some("it broke")),
                ("boom#2", None)
            ]
        );
        assert_eq!(cases[1].took, Duration::from_millis(1_000_250));
    }

    #[test]
    fn refuses_entities() {
        let bomb = r#"<!DOCTYPE a [<!ENTITY b "x">]><testsuite><testcase name="&b;"/></testsuite>"#;
        assert!(parse(bomb).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "(?s)[<>/=\"&; a-z0-9]{0,400}") {
            let _ = parse(&text);
        }
    }
}
