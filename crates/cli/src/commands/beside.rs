//! The options that show metrics beside the spans of `traces show` and the calls of `runs show`.

use clap::Args;
use faultscope_engine::views::{MetricsWanted, Missing, plain};
use faultscope_model::metrics::SeriesSelector;

use crate::printer::Printer;

#[derive(Debug, Args)]
pub(crate) struct BesideArgs {
    /// Show beside each span what the instance that handled it used when it began.
    #[arg(long)]
    metrics: bool,
    /// Show beside each span a series that the instance told, as of its start; repeat for several. Labels choose among
    /// series of one name: `orders{kind=pay}`.
    #[arg(long = "metric", value_name = "NAME")]
    series: Vec<SeriesSelector>,
}

impl BesideArgs {
    pub(crate) fn wanted(&self) -> MetricsWanted {
        MetricsWanted { usage: self.metrics, series: self.series.clone() }
    }
}

/// Says what was looked for in vain.
pub(super) fn say_missing(missing: &Missing, printer: &Printer) {
    if missing.is_cut {
        printer.warn("more was told around these spans than fits into memory; a part is left out");
    }
    let services = plain(&missing.services.join(", "));
    if missing.usage {
        printer.talk(format!(
            "what instances of {services} used was neither measured nor told when these spans began"
        ));
    }
    for wanted in &missing.series {
        printer.talk(format!(
            "`{wanted}` was not told of the instances of {services} within two minutes before these spans; \
             `faultscope metrics ls` lists what there is"
        ));
    }
}
