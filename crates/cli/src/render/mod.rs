//! Terminal output. No meaning depends on colour alone.

mod branches;
pub(crate) mod causal;
pub(crate) mod clone;
pub(crate) mod deeper;
pub(crate) mod load;
pub(crate) mod log;
pub(crate) mod map;
pub(crate) mod mocks;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod resilience;
pub(crate) mod run;
pub(crate) mod spark;
pub(crate) mod table;
pub(crate) mod time;
pub(crate) mod timeline;
pub(crate) mod tree;
pub(crate) mod usage;
pub(crate) mod waterfall;
