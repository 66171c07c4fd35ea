//! The options of `faultscope causal`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use faultscope_analysis::causal::{Method, Prior, Setting};
use faultscope_engine::causal::{Missing, TableOptions};

#[derive(Debug, Args)]
pub(crate) struct CausalArgs {
    #[command(subcommand)]
    pub(crate) command: CausalCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CausalCommand {
    /// Finds which columns of a CSV file influence which.
    ///
    /// Example: faultscope causal discover runs.csv --exogenous users,load --output graph.json --svg graph.svg
    Discover(DiscoverArgs),
    /// Learns how each column follows from its causes, and writes a model for queries.
    ///
    /// Without --graph the graph is discovered first.
    ///
    /// Example: faultscope causal fit runs.csv --graph graph.json --cut 0.1 --output model.json
    Fit(FitArgs),
    /// Predicts columns if others are set, or finds the level at which one exceeds a threshold.
    ///
    /// Example: faultscope causal query model.json --set users=20 --set load=0 --target RT_s0,CPU_s0
    /// Example: faultscope causal query model.json --set load=0 --sweep users=1..30 --target RT_s0 --above 250
    Query(QueryArgs),
    /// Says which causal paths, and which service itself, explain a column.
    ///
    /// With --from and --to it explains the change between two situations, otherwise the observed variance.
    ///
    /// Example: faultscope causal explain model.json RT_s0 --from users=1 --to users=20
    Explain(ExplainArgs),
}

/// A table and what is known about it.
#[derive(Debug, Args)]
pub(crate) struct DataArgs {
    /// A CSV file with names in its first line and a number in every cell; may be compressed with gzip.
    pub(crate) data: PathBuf,
    /// Use only these columns.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) columns: Vec<String>,
    /// Leave these columns out.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) without: Vec<String>,
    /// Use only the first rows.
    #[arg(long, value_name = "COUNT")]
    pub(crate) rows: Option<usize>,
    /// What to do with rows in which a value is missing.
    #[arg(long, value_enum, default_value_t = MissingArg::Refuse)]
    pub(crate) missing: MissingArg,
    /// Columns that were set from outside, so that nothing influences them.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) exogenous: Vec<String>,
    /// The first comes before the second; whether there is an edge is left to the data. Repeatable.
    #[arg(long, value_name = "FROM->TO")]
    pub(crate) path: Vec<Pair>,
    /// The first never influences the second, so the second comes first. Repeatable.
    #[arg(long, value_name = "FROM->TO")]
    pub(crate) no_path: Vec<Pair>,
    /// This edge exists and is never pruned. Repeatable.
    #[arg(long, value_name = "FROM->TO")]
    pub(crate) require: Vec<Pair>,
    /// This edge does not exist; the order stays open. Repeatable.
    #[arg(long, value_name = "FROM->TO")]
    pub(crate) forbid: Vec<Pair>,
    /// More prior knowledge from a CSV file: lines `kind,from,to`, or a matrix of 1, 0 and -1.
    #[arg(long, value_name = "FILE")]
    pub(crate) prior: Option<PathBuf>,
    /// How the graph is found. The last two take minutes for a dozen columns.
    #[arg(long, value_enum, default_value_t = MethodArg::DirectLingam)]
    pub(crate) method: MethodArg,
    /// Seed of every random choice.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Files with a picture of the graph.
#[derive(Debug, Args)]
pub(crate) struct PictureArgs {
    /// Draw the graph into this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Write the graph for Graphviz into this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) dot: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DiscoverArgs {
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Write the graph as JSON into this file.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) picture: PictureArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FitArgs {
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// A graph that `discover` wrote.
    #[arg(long, value_name = "FILE")]
    pub(crate) graph: Option<PathBuf>,
    /// Cut edges that explain less than this share of their effect's variance, and fit again: 0.1 or 0.3.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub(crate) cut: Option<f64>,
    /// Columns whose values are categories, not amounts: each value gets mechanisms of its own.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) categories: Vec<String>,
    /// Write the model as JSON into this file.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) picture: PictureArgs,
}

#[derive(Debug, Args)]
pub(crate) struct QueryArgs {
    /// A model that `fit` wrote.
    pub(crate) model: PathBuf,
    /// Set a column; repeatable.
    #[arg(long = "set", value_name = "COLUMN=VALUE")]
    pub(crate) set: Vec<Assignment>,
    /// Columns to predict; all that were not set by default.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) target: Vec<String>,
    /// Raise a column in steps of 1, or of another size: users=1..30, rate=0..2/0.1.
    #[arg(long, value_name = "COLUMN=FROM..TO", requires_all = ["above", "target"])]
    pub(crate) sweep: Option<SweepArg>,
    /// The threshold whose first crossing is sought.
    #[arg(long, value_name = "VALUE", requires = "sweep", allow_negative_numbers = true)]
    pub(crate) above: Option<f64>,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// A model that `fit` wrote.
    pub(crate) model: PathBuf,
    /// The column to explain.
    pub(crate) target: String,
    /// A column and its value before; repeatable.
    #[arg(long, value_name = "COLUMN=VALUE", requires = "to")]
    pub(crate) from: Vec<Assignment>,
    /// A column and its value after; repeatable.
    #[arg(long, value_name = "COLUMN=VALUE", requires = "from")]
    pub(crate) to: Vec<Assignment>,
    #[command(flatten)]
    pub(crate) picture: PictureArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MethodArg {
    /// DirectLiNGAM: linear effects, noise that is not normal.
    DirectLingam,
    /// DAGMA with linear effects; depends on the scale of the columns.
    DagmaLinear,
    /// DAGMA with neural networks; slow.
    DagmaMlp,
    /// A graph neural network; slow.
    DagGnn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MissingArg {
    /// They are an error.
    Refuse,
    /// They are skipped and counted.
    Skip,
}

/// Two columns, `a->b`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    from: String,
    to: String,
}

/// A column and a value, `users=20`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Assignment(pub(crate) Setting);

/// A column and its levels, `users=1..30`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SweepArg {
    pub(crate) column: String,
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) step: f64,
}

// === impl DataArgs ===

impl DataArgs {
    pub(crate) fn table_options(&self) -> TableOptions {
        TableOptions {
            only: self.columns.clone(),
            without: self.without.clone(),
            missing: match self.missing {
                MissingArg::Refuse => Missing::Refuse,
                MissingArg::Skip => Missing::Skip,
            },
            rows: self.rows,
        }
    }

    pub(crate) fn method(&self) -> Method {
        match self.method {
            MethodArg::DirectLingam => Method::DirectLingam,
            MethodArg::DagmaLinear => Method::DagmaLinear,
            MethodArg::DagmaMlp => Method::DagmaMlp,
            MethodArg::DagGnn => Method::DagGnn,
        }
    }

    /// Prior knowledge of the command line.
    pub(crate) fn priors(&self) -> Vec<Prior> {
        let make = |pairs: &[Pair], prior: fn(String, String) -> Prior| -> Vec<Prior> {
            pairs.iter().map(|pair| prior(pair.from.clone(), pair.to.clone())).collect()
        };
        let exogenous = self.exogenous.iter().map(|column| Prior::Exogenous { column: column.clone() });
        exogenous
            .chain(make(&self.path, |from, to| Prior::Path { from, to }))
            .chain(make(&self.no_path, |from, to| Prior::NoPath { from, to }))
            .chain(make(&self.require, |from, to| Prior::RequiredEdge { from, to }))
            .chain(make(&self.forbid, |from, to| Prior::ForbiddenEdge { from, to }))
            .collect()
    }
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once("->").map(|(from, to)| (from.trim(), to.trim())) {
            Some((from, to)) if !from.is_empty() && !to.is_empty() => {
                Ok(Self { from: from.to_owned(), to: to.to_owned() })
            }
            _ => Err("two columns are written `from->to`".into()),
        }
    }
}

impl FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (column, value) = text.rsplit_once('=').ok_or("a setting is written `column=value`")?;
        let column = column.trim().to_owned();
        Ok(Self(Setting { column, value: parse_number(value)? }))
    }
}

impl FromStr for SweepArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = "a sweep is written `column=from..to` or `column=from..to/step`";
        let (column, range) = text.rsplit_once('=').ok_or(wrong)?;
        let (range, step) = range.split_once('/').unwrap_or((range, "1"));
        let (from, to) = range.split_once("..").ok_or(wrong)?;
        let column = column.trim().to_owned();
        Ok(Self { column, from: parse_number(from)?, to: parse_number(to)?, step: parse_number(step)? })
    }
}

fn parse_number(text: &str) -> Result<f64, String> {
    let number: f64 = text.trim().parse().map_err(|_| format!("`{text}` is not a number"))?;
    if number.is_finite() { Ok(number) } else { Err(format!("`{text}` is not a finite number")) }
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share = parse_number(text)?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("a share is from 0 to 1".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_settings_and_sweeps_are_understood() {
        let pair: Pair = "users -> RT_s0".parse().unwrap();
        assert_eq!((pair.from.as_str(), pair.to.as_str()), ("users", "RT_s0"));
        assert!("users".parse::<Pair>().is_err() && "->a".parse::<Pair>().is_err());
        let Assignment(setting) = "users=20".parse().unwrap();
        assert_eq!(setting, Setting { column: "users".into(), value: 20.0 });
        assert!("users=many".parse::<Assignment>().is_err() && "users=inf".parse::<Assignment>().is_err());
        let sweep: SweepArg = "rate=0..2/0.5".parse().unwrap();
        assert_eq!((sweep.from, sweep.to, sweep.step), (0.0, 2.0, 0.5));
        assert_eq!("users=1..30".parse::<SweepArg>().unwrap().step, 1.0);
        assert!("users=1-30".parse::<SweepArg>().is_err());
    }
}
