//! What users say about fields: ignore it, it only has to be there, it matches, it is near.

use std::fmt;
use std::str::FromStr;

use regex::Regex;

use super::{Difference, PathPattern, Place};

/// A place that a rule is about.
#[derive(Debug, Clone)]
enum Subject {
    Status,
    Header(String),
    Body,
    Fields(PathPattern),
}

/// What a rule requires of the replayed value.
#[derive(Debug, Clone)]
pub enum Requirement {
    /// Nothing.
    Ignore,
    /// It is there.
    Present,
    /// It matches a regular expression.
    Matches(Regex),
    /// A number at most this share of the recorded one away from it.
    Near(f64),
}

/// A rule about places of answers.
#[derive(Debug, Clone)]
pub struct FieldRule {
    subject: Subject,
    requirement: Requirement,
}

/// All rules of a comparison; the first that is about a place counts.
#[derive(Debug, Clone, Default)]
pub struct FieldRules(Vec<FieldRule>);

/// Why a text is no rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleError(String);

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RuleError {}

impl FieldRules {
    /// These rules, in order.
    pub fn new(rules: Vec<FieldRule>) -> Self {
        Self(rules)
    }

    /// Whether a rule allows a difference; none if no rule is about its place.
    pub(super) fn allow(&self, difference: &Difference) -> Option<bool> {
        let rule = self.0.iter().find(|rule| rule.is_about(&difference.place))?;
        let replayed = difference.replayed.as_deref();
        Some(match &rule.requirement {
            Requirement::Ignore => true,
            Requirement::Present => replayed.is_some(),
            Requirement::Matches(regex) => replayed.is_some_and(|value| regex.is_match(unquoted(value))),
            Requirement::Near(share) => {
                let number = |value: Option<&str>| unquoted(value?).parse::<f64>().ok();
                match (number(difference.recorded.as_deref()), number(replayed)) {
                    (Some(recorded), Some(replayed)) => (recorded - replayed).abs() <= share * recorded.abs(),
                    _ => false,
                }
            }
        })
    }
}

/// A text of JSON without its quotes.
fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
}

impl FieldRule {
    fn is_about(&self, place: &Place) -> bool {
        match (&self.subject, place) {
            (Subject::Status, Place::Status) | (Subject::Body, Place::Body) => true,
            (Subject::Header(wanted), Place::Header(name)) => wanted == name,
            (Subject::Fields(pattern), Place::Field(path)) => pattern.covers(path),
            _ => false,
        }
    }
}

/// `PLACE`, or `PLACE ~ REGEX`, `PLACE +- 10%`, `PLACE present`.
impl FromStr for FieldRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let split = |mark: &str| text.split_once(mark).map(|(place, rest)| (place.trim(), rest.trim()));
        let (place, requirement) = if let Some((place, regex)) = split(" ~ ") {
            let regex = Regex::new(regex)
                .map_err(|e| RuleError(format!("`{regex}` is no regular expression: {e}")))?;
            (place, Requirement::Matches(regex))
        } else if let Some((place, share)) = split(" +- ") {
            let number = share.strip_suffix('%').unwrap_or(share).trim().parse::<f64>().ok();
            let number = number.filter(|number| number.is_finite() && *number >= 0.0);
            let number = number.ok_or_else(|| RuleError(format!("`{share}` is no share; write `10%`")))?;
            (place, Requirement::Near(number / 100.0))
        } else if let Some(place) = text.trim().strip_suffix(" present") {
            (place.trim(), Requirement::Present)
        } else {
            (text.trim(), Requirement::Ignore)
        };
        let subject = match place {
            "status" => Subject::Status,
            "body" => Subject::Body,
            place => match place.strip_prefix("header ") {
                Some(name) => Subject::Header(name.trim().to_ascii_lowercase()),
                None => {
                    Subject::Fields(place.parse().map_err(|e: super::PathError| RuleError(e.to_string()))?)
                }
            },
        };
        Ok(Self { subject, requirement })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allow(rule: &str, place: Place, recorded: Option<&str>, replayed: Option<&str>) -> Option<bool> {
        let rules = FieldRules::new(vec![rule.parse().unwrap()]);
        rules.allow(&Difference {
            place,
            recorded: recorded.map(Into::into),
            replayed: replayed.map(Into::into),
        })
    }

    #[test]
    fn rules_allow_what_they_say() {
        let field = || Place::Field(serde_json::from_str("\"$.a[1].took\"").unwrap());
        assert_eq!(allow("$.a[*].took", field(), Some("1"), Some("9")), Some(true));
        assert_eq!(allow("$.b", field(), Some("1"), Some("9")), None);
        assert_eq!(allow("$.a present", field(), Some("1"), None), Some(false));
        assert_eq!(allow("$.a present", field(), Some("1"), Some("null")), Some(true));
        assert_eq!(allow("$.a ~ ^[0-9a-f]+$", field(), Some("\"1\""), Some("\"beef\"")), Some(true));
        assert_eq!(allow("$.a ~ ^[0-9a-f]+$", field(), Some("\"1\""), Some("\"no\"")), Some(false));
        assert_eq!(allow("$.a +- 10%", field(), Some("100"), Some("109.5")), Some(true));
        assert_eq!(allow("$.a +- 10%", field(), Some("100"), Some("111")), Some(false));
        assert_eq!(allow("header ETag", Place::Header("etag".into()), Some("1"), Some("2")), Some(true));
        assert_eq!(allow("status", Place::Status, Some("200"), Some("500")), Some(true));
    }

    #[test]
    fn bad_rules_say_what_is_wrong() {
        let error = |text: &str| text.parse::<FieldRule>().unwrap_err().to_string();
        assert_eq!(error("$..x"), "`$..x` is no path of a field; write it as `$.items[*].id`");
        assert_eq!(error("$.x +- much"), "`much` is no share; write `10%`");
        assert!(error("$.x ~ (").starts_with("`(` is no regular expression"));
    }
}
