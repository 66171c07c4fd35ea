//! The operators: what each does, where, and which faults have the same symptom.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// A mutation operator. `M1` to `M15` are those of Table 3.5; the others are the fault types of MEPFL, section 4.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// Sleeps for a fixed time before it answers.
    ConsistentDelay,
    /// Sleeps for a random time before it answers.
    RandomDelay,
    /// Ends the request with an error.
    Abort,
    /// Never answers.
    Timeout,
    /// Edits an environment variable.
    Environment,
    /// Inverts a flag.
    Flag,
    /// Shortens a time-out or changes what happens at a restart.
    RestartOrTimeout,
    /// Reduces the number of instances.
    FewerReplicas,
    /// Keeps memory for ever.
    MemoryLeak,
    /// Lowers the memory limit.
    LessMemory,
    /// Computes for nothing.
    HighCpu,
    /// Lowers the CPU limit.
    LessCpu,
    /// Leaves a field out of a response.
    IncompleteResponse,
    /// Goes on without waiting for an asynchronous call.
    OutOfOrder,
    /// Changes the type or the name of a field of a response.
    FieldChange,
    /// Keeps shared state in the memory of one instance.
    LocalState,
    /// Needs much memory or CPU for every request.
    ResourceHungry,
    /// Makes two successive calls at the same time.
    ConcurrentCalls,
}

/// The groups of Table 3.5, and the fault types of MEPFL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Network mutations.
    Network,
    /// Configuration mutations.
    Configuration,
    /// Resource mutations.
    Resource,
    /// Response mutations.
    Response,
    /// MEPFL: state differs between instances.
    MultiInstance,
    /// MEPFL: resources and limits do not fit.
    ResourceConfiguration,
    /// MEPFL: the order of asynchronous calls is not controlled.
    AsynchronousInteraction,
}

/// What an operator changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// The source of a service.
    Code,
    /// The application file.
    ApplicationFile,
}

struct Row {
    operator: Operator,
    id: &'static str,
    name: &'static str,
    category: Category,
    target: Target,
    deterministic: bool,
    summary: &'static str,
}

const fn row(
    operator: Operator,
    id: &'static str,
    name: &'static str,
    category: Category,
    target: Target,
    deterministic: bool,
    summary: &'static str,
) -> Row {
    Row { operator, id, name, category, target, deterministic, summary }
}

use Category as C;
use Operator as O;
use Target::{ApplicationFile, Code};

#[rustfmt::skip]
const TABLE: [Row; 18] = [
    row(O::ConsistentDelay, "M1", "consistent-delay", C::Network, Code, true, "sleeps 200 ms before it answers"),
    row(O::RandomDelay, "M2", "random-delay", C::Network, Code, false, "sleeps up to 1 s before it answers"),
    row(O::Abort, "M3", "abort", C::Network, Code, true, "ends the request with an error"),
    row(O::Timeout, "M4", "timeout", C::Network, Code, true, "never answers"),
    row(O::Environment, "M5", "environment", C::Configuration, ApplicationFile, true, "edits an environment variable"),
    row(O::Flag, "M6", "flag", C::Configuration, ApplicationFile, true, "inverts a flag"),
    row(O::RestartOrTimeout, "M7", "restart-or-timeout", C::Configuration, ApplicationFile, false, "shortens a time-out, or resets where state was kept and the other way round"),
    row(O::FewerReplicas, "M8", "fewer-replicas", C::Configuration, ApplicationFile, false, "starts one instance instead of several"),
    row(O::MemoryLeak, "M9", "memory-leak", C::Resource, Code, true, "keeps 8 MiB for ever at each call"),
    row(O::LessMemory, "M10", "less-memory", C::Resource, ApplicationFile, false, "gives a tenth of the memory"),
    row(O::HighCpu, "M11", "high-cpu", C::Resource, Code, true, "computes for nothing at each call"),
    row(O::LessCpu, "M12", "less-cpu", C::Resource, ApplicationFile, false, "gives a tenth of the CPU"),
    row(O::IncompleteResponse, "M13", "incomplete-response", C::Response, Code, true, "leaves a field out of a response"),
    row(O::OutOfOrder, "M14", "out-of-order", C::Response, Code, false, "goes on without waiting for an asynchronous call"),
    row(O::FieldChange, "M15", "field-change", C::Response, Code, true, "changes the type or the name of a field of a response"),
    row(O::LocalState, "MI", "local-state", C::MultiInstance, Code, false, "keeps shared state in the memory of one instance"),
    row(O::ResourceHungry, "CF", "resource-hungry", C::ResourceConfiguration, Code, false, "needs 128 MiB or much CPU at each call"),
    row(O::ConcurrentCalls, "AI", "concurrent-calls", C::AsynchronousInteraction, Code, false, "makes two successive calls at the same time"),
];

impl Operator {
    /// All operators, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.operator)
    }

    // The table has the order of the enum; a test says so.
    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// `M1` to `M15` as in the paper; `MI`, `CF` and `AI` for multi-instance, configuration and asynchronous
    /// interaction faults.
    pub fn id(self) -> &'static str {
        self.row().id
    }

    /// The name for people.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The group it is listed in.
    pub fn category(self) -> Category {
        self.row().category
    }

    /// What it changes.
    pub fn target(self) -> Target {
        self.row().target
    }

    /// Whether its symptom comes at every execution, as Table 3.5 says.
    pub fn is_deterministic(self) -> bool {
        self.row().deterministic
    }

    /// What the mutated service does.
    pub fn summary(self) -> &'static str {
        self.row().summary
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

impl Serialize for Operator {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

/// A text that names no operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no operator `{0}`")]
pub struct UnknownOperator(String);

impl FromStr for Operator {
    type Err = UnknownOperator;

    fn from_str(text: &str) -> Result<Self, UnknownOperator> {
        let matches = |row: &&Row| row.id.eq_ignore_ascii_case(text) || row.name.eq_ignore_ascii_case(text);
        TABLE.iter().find(matches).map(|row| row.operator).ok_or_else(|| UnknownOperator(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_order_of_the_enum() {
        for operator in Operator::all() {
            assert_eq!(operator.row().operator, operator);
            assert_eq!(operator.id().parse(), Ok(operator));
            assert_eq!(operator.name().parse(), Ok(operator));
        }
        assert!("M16".parse::<Operator>().is_err());
    }
}
