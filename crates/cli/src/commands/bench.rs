//! `faultscope bench`: forwards to the yardsticks, prints their report and maps it to an exit code.

use faultscope_bench::{BenchArgs, BenchPartArgs, Conclusion, Host};

use crate::campaign::interrupted;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project;
use crate::samples::TICKETING;

pub(crate) async fn run(args: &BenchArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let talk = |text: &str| printer.talk(text);
    let host = Host {
        program: project::own_program()?,
        write_sample: |folder| TICKETING.write(folder),
        talk: &talk,
        stop: interrupted(),
    };
    let report = faultscope_bench::run(args, &host).await?;
    if printer.json {
        printer.result(&report)?;
    } else {
        printer.line(&report);
    }
    Ok(exit_of(report.conclusion(), args.is_report_only()))
}

/// A process that a yardstick measures from outside.
pub(crate) async fn run_part(args: &BenchPartArgs) -> Result<Exit, CommandError> {
    faultscope_bench::run_part(args).await?;
    Ok(Exit::Done)
}

fn exit_of(conclusion: Conclusion, report_only: bool) -> Exit {
    match conclusion {
        _ if report_only => Exit::Done,
        Conclusion::Reached => Exit::Done,
        Conclusion::Missed => Exit::Found,
        Conclusion::Invalid => Exit::Environment,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_reflects_missed_goals_and_invalid_figures() {
        assert_eq!(exit_of(Conclusion::Reached, false), Exit::Done);
        assert_eq!(exit_of(Conclusion::Missed, false), Exit::Found);
        assert_eq!(exit_of(Conclusion::Invalid, false), Exit::Environment);
        for conclusion in [Conclusion::Reached, Conclusion::Missed, Conclusion::Invalid] {
            assert_eq!(exit_of(conclusion, true), Exit::Done);
        }
    }
}
