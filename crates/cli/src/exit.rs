//! Exit codes: one table for all commands.

use std::process::ExitCode;

/// How a command ended. The numbers are part of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success: nothing wrong was found.
    Done = 0,
    /// A failure was found: a test failed, a cause was found, a goal of a benchmark was missed.
    Found = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The application file is wrong.
    Spec = 3,
    /// The platform is not available, a permission or a peer of a benchmark is missing.
    Platform = 4,
    /// The trial could not be judged, or the failure was not reproduced.
    Unresolved = 5,
    /// The environment spoiled trials or measurements, or changed during them.
    Environment = 6,
    /// The budget of time or trials is used up.
    Budget = 7,
    /// The test fails in the simplest circumstance.
    FailsAlready = 8,
    /// A call to a mocked service had no recorded answer.
    MockMissed = 9,
    /// A bug in the tool.
    Internal = 70,
    /// It was interrupted.
    Interrupted = 130,
}

/// The table, for `--help`.
pub(crate) const TABLE: &str = "Exit codes:
    0  done, nothing wrong was found
    1  a failure was found (a test failed)
    2  the command line is wrong
    3  the application file is wrong
    4  the platform is unavailable
    5  the trial could not be judged
    6  the environment spoiled trials or changed under them
    7  the budget was used up before the answer was there
    8  the test fails already in the simplest circumstance
    9  a call to a mocked service had no recorded answer
   70  the tool itself broke
  130  interrupted";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
