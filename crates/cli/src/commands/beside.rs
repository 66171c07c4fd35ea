//! The options that show metrics next to the spans of `traces show` and the calls of `runs show`.

use clap::Args;
use faultscope_engine::views::{MetricsWanted, Missing, plain};
use faultscope_model::metrics::SeriesSelector;

use crate::printer::Printer;

#[derive(Debug, Args)]
pub(crate) struct BesideArgs {
    /// Show next to each span what its instance used when the span began.
    #[arg(long)]
    metrics: bool,
    /// Show next to each span a time series that its instance exports; repeat for several. Labels choose among
    /// series of one name: `orders{kind=pay}`.
    #[arg(long = "metric", value_name = "NAME")]
    series: Vec<SeriesSelector>,
}

impl BesideArgs {
    pub(crate) fn requested(&self) -> MetricsWanted {
        MetricsWanted { usage: self.metrics, series: self.series.clone() }
    }
}

/// Prints a message for every metric that was requested but not found.
pub(super) fn warn_of_missing(missing: &Missing, printer: &Printer) {
    if missing.is_cut {
        printer.warn("too many metrics were exported around these spans; some are missing here");
    }
    let services = plain(&missing.services.join(", "));
    if missing.usage {
        printer
            .talk(format!("no resource usage of {services} was measured or exported when these spans began"));
    }
    for wanted in &missing.series {
        printer.talk(format!(
            "no instance of {services} exported `{wanted}` within two minutes before these spans; \
             `faultscope metrics ls` lists all metrics"
        ));
    }
}
