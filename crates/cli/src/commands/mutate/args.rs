//! The arguments of `mutate`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use faultscope_mutate::Operator;

use crate::args::{Target, Under};
use crate::folder::FileArg;

#[derive(Debug, Args)]
pub(crate) struct MutateArgs {
    #[command(subcommand)]
    pub(crate) command: MutateCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MutateCommand {
    /// Lists the places where an operator can make a service faulty.
    ///
    /// Without `--all`, only places in functions that answer requests, in responses and in the application file.
    ///
    /// Example: faultscope mutate ls --operator M1 --service order
    Ls(LsArgs),
    /// Shows a mutant as a diff.
    Show(ShowArgs),
    /// Applies a mutant to a copy of the application, or with `--in-place` to the application itself.
    ///
    /// In place it needs the file to be committed, if it is in a git repository. `faultscope mutate revert` takes the
    /// change back, also after the tool was killed in the middle.
    ///
    /// Example: faultscope mutate apply m1-0f3a9c21bd --into /tmp/slow-order
    Apply(ApplyArgs),
    /// Takes back the mutant that is applied to an application or to a copy.
    Revert(RevertArgs),
    /// Runs the tests of the application against mutants, each in a copy, and says which ones they notice.
    ///
    /// Exit code 0 means that all mutants were killed, 1 that some survived, 8 that the tests fail without a mutant.
    /// Services must run from source: a program that was compiled before does not change with its source.
    ///
    /// Example: faultscope mutate score --budget 20 --seed 7
    Score(Box<ScoreArgs>),
}

/// Which mutants.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Selection {
    /// All places, also in functions that answer no requests.
    #[arg(long)]
    pub(crate) all: bool,
    /// Only this operator, by id or name: M1, consistent-delay; repeat for several.
    #[arg(long = "operator", value_name = "OPERATOR")]
    pub(crate) operators: Vec<Operator>,
    /// Only this service; repeat for several.
    #[arg(long = "service", value_name = "NAME")]
    pub(crate) services: Vec<String>,
    /// Only files whose path ends with this; repeat for several.
    #[arg(long = "file", value_name = "PATH")]
    pub(crate) files: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    pub(crate) file: FileArg,
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// Compile or parse each mutant with the tool of its language.
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The mutant, or the beginning of its id.
    pub(crate) mutant: String,
    #[command(flatten)]
    pub(crate) file: FileArg,
    /// Compile or parse the mutant with the tool of its language.
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// The mutant, or the beginning of its id.
    pub(crate) mutant: String,
    #[command(flatten)]
    pub(crate) file: FileArg,
    /// Where the copy goes: a folder that does not exist yet, or is empty. By default one below `.faultscope`.
    #[arg(long, value_name = "FOLDER", conflicts_with = "in_place")]
    pub(crate) into: Option<PathBuf>,
    /// Change the application itself.
    #[arg(long)]
    pub(crate) in_place: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RevertArgs {
    #[command(flatten)]
    pub(crate) file: FileArg,
    /// Restore the file even if it was changed after the mutant was applied; these changes are lost.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ScoreArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) under: Under,
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// Run only this test; repeat for several.
    #[arg(long = "test", value_name = "NAME")]
    pub(crate) tests: Vec<String>,
    /// Try at most this many mutants, chosen by the seed.
    #[arg(long, value_name = "MUTANTS")]
    pub(crate) budget: Option<usize>,
    /// Keep the verdicts of an interrupted score.
    #[arg(long)]
    pub(crate) resume: bool,
}
