//! The catalogue of faults: what people met in real systems, and the operators whose mutants look the same.
//!
//! `RR` are the 25 faults of "Replay debugging", Appendix A; `DD` the four cases of the delta debugging paper; `MS`
//! those of the TrainTicket benchmark that MEPFL uses and whose code is known.

mod cases;
mod reported;

use serde::Serialize;

use crate::operator::Operator;

/// Where a fault comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultGroup {
    /// Appendix A of "Replay debugging".
    RecordReplay,
    /// The cases of the delta debugging paper.
    DeltaDebugging,
    /// The TrainTicket benchmark.
    Microservices,
}

/// How a fault is first noticed: the categories of "Replay debugging", section 3.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Symptom {
    /// An error or exception.
    Error,
    /// A delay or time-out.
    Delay,
    /// Unusual use of a resource.
    Resource,
    /// An answer that is wrong.
    Output,
}

impl Symptom {
    /// The word for lists.
    pub fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Delay => "delay",
            Self::Resource => "resource",
            Self::Output => "output",
        }
    }
}

/// A fault that somebody met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// `RR-1` to `RR-25`, `DD-F1` to `DD-F4`, `MS-F1` to `MS-F13` with gaps.
    pub id: &'static str,
    /// Where it comes from.
    pub group: FaultGroup,
    /// How it is noticed.
    pub category: Symptom,
    /// What was seen.
    pub symptom: &'static str,
    /// What was behind it.
    pub cause: &'static str,
    /// Where it is described.
    pub source: &'static str,
    /// Operators whose mutants have the same symptom.
    pub operators: &'static [Operator],
}

/// All faults, in the order of their groups and numbers.
pub fn faults() -> impl Iterator<Item = &'static Fault> {
    reported::FAULTS.iter().chain(&cases::FAULTS)
}

const fn fault(
    id: &'static str,
    group: FaultGroup,
    category: Symptom,
    [symptom, cause, source]: [&'static str; 3],
    operators: &'static [Operator],
) -> Fault {
    Fault { id, group, category, symptom, cause, source, operators }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_catalogue_is_complete() {
        let ids: Vec<&str> = faults().map(|fault| fault.id).collect();
        let unique: BTreeSet<&str> = ids.iter().copied().collect();
        assert_eq!(ids.len(), unique.len());
        let wanted = (1..=25).map(|n| format!("RR-{n}"));
        let wanted = wanted.chain((1..=4).map(|n| format!("DD-F{n}")));
        let wanted = wanted.chain([1, 2, 3, 4, 5, 7, 8, 11, 12, 13].map(|n| format!("MS-F{n}")));
        assert_eq!(ids, wanted.collect::<Vec<_>>());
        for fault in faults() {
            assert!(!fault.operators.is_empty(), "{} has no operator", fault.id);
            for text in [fault.symptom, fault.cause, fault.source] {
                assert!(text.len() > 10 && !text.ends_with('.'), "{}: {text}", fault.id);
            }
            let group = fault.id.split('-').next();
            let prefix = match fault.group {
                FaultGroup::RecordReplay => "RR",
                FaultGroup::DeltaDebugging => "DD",
                FaultGroup::Microservices => "MS",
            };
            assert_eq!(group, Some(prefix));
        }
    }

    #[test]
    fn every_operator_has_a_fault() {
        for operator in Operator::all() {
            assert!(
                faults().any(|fault| fault.operators.contains(&operator)),
                "{operator} stands for no fault"
            );
        }
    }

    /// The last column of Table 3.5.
    #[test]
    fn operators_and_faults_are_matched_as_in_the_paper() {
        let table: [(&str, &[u32]); 15] = [
            ("M1", &[12]),
            ("M2", &[14, 15]),
            ("M3", &[1, 2, 16]),
            ("M4", &[10, 11, 13]),
            ("M5", &[7]),
            ("M6", &[5, 6, 8]),
            ("M7", &[11]),
            ("M8", &[4]),
            ("M9", &[17, 18, 19]),
            ("M10", &[20]),
            ("M11", &[4]),
            ("M12", &[4]),
            ("M13", &[23, 25]),
            ("M14", &[21, 22, 24]),
            ("M15", &[3, 9]),
        ];
        for (operator, numbers) in table {
            let operator: Operator = operator.parse().unwrap();
            let reported = faults().filter(|fault| fault.group == FaultGroup::RecordReplay);
            let matched = reported.filter(|fault| fault.operators.contains(&operator)).map(|fault| fault.id);
            let wanted: Vec<String> = numbers.iter().map(|n| format!("RR-{n}")).collect();
            assert_eq!(matched.collect::<Vec<_>>(), wanted, "{operator}");
        }
    }
}
