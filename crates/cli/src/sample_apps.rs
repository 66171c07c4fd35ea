//! The sample applications, embedded so that the demo needs no checkout.

use std::io;
use std::path::Path;

/// A sample: its files by path.
#[derive(Debug)]
pub(crate) struct Sample {
    files: &'static [(&'static str, &'static str)],
}

macro_rules! sample {
    ($folder:literal: $($file:literal),+ $(,)?) => {
        Sample { files: &[$(($file, include_str!(concat!("../../../apps/", $folder, "/", $file)))),+] }
    };
}

/// About 40 services modelled on a railway ticketing system.
pub(crate) const TICKETING: Sample = sample!("ticketing":
    "faultscope.yaml", "cells.yaml", "README.md",
    "cases/dd-f1.yaml", "cases/dd-f2.yaml", "cases/dd-f3.yaml", "cases/dd-f4.yaml", "cases/expected.yaml",
    "cases/counter/faultscope.yaml", "cases/counter/cells.yaml", "cases/counter/two-causes.yaml",
    "cases/counter/three-dimensions.yaml", "cases/counter/flaky.yaml", "cases/counter/nodes.yaml",
    "cases/counter/fails-already.yaml", "cases/counter/not-reproduced.yaml", "cases/counter/unresolved.yaml",
    "cases/counter/good.yaml", "cases/counter/bad.yaml",
    "cases/booking/faultscope.yaml", "cases/booking/cells.yaml", "cases/booking/expected.yaml",
    "cases/booking/consumer.yaml", "cases/booking/restart.yaml", "cases/booking/retry.yaml",
    "cases/booking/fallback.yaml", "cases/booking/pair.yaml", "cases/booking/all.yaml");

impl Sample {
    /// Writes the files into a folder. Existing files with other content stay.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        for (name, text) in self.files {
            let path = folder.join(name);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            if std::fs::read_to_string(&path).is_ok_and(|there| there == *text) {
                continue;
            }
            std::fs::write(&path, text)?;
        }
        Ok(())
    }
}
