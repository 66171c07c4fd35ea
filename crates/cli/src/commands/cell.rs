//! The hidden `faultscope cell`: a generic service that behaves as a spec describes.
//!
//! Its arguments are parsed by hand before anything else: 45 cells start at once and each should stay
//! small, of which the parser of the tool's command line alone would be a large part.

use std::ffi::OsString;
use std::path::PathBuf;

use faultscope_cell::CellOptions;

use crate::error::CommandError;
use crate::exit::Exit;

const USAGE: &str = "faultscope cell --spec FILE --service NAME [--port PORT]";

pub(crate) fn run(words: Vec<OsString>) -> Result<Exit, CommandError> {
    faultscope_cell::run(options(words)?)
        .map_err(|e| CommandError::new(Exit::Spec, "the cell cannot run").because(e))?;
    Ok(Exit::Done)
}

fn options(words: Vec<OsString>) -> Result<CellOptions, CommandError> {
    let wrong = || CommandError::usage("a cell needs a spec and a service").hint(USAGE);
    let (mut spec, mut service, mut port) = (None, None, None);
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(wrong)?;
        match word.to_str() {
            Some("--spec") => spec = Some(PathBuf::from(value)),
            Some("--service") => service = value.into_string().ok(),
            Some("--port") => port = Some(value.to_str().and_then(|p| p.parse().ok()).ok_or_else(wrong)?),
            _ => return Err(wrong()),
        }
    }
    Ok(CellOptions { spec: spec.ok_or_else(wrong)?, service: service.ok_or_else(wrong)?, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_its_words() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let options = options(words("--spec a.yaml --service order --port 80")).unwrap();
        assert_eq!((options.service.as_str(), options.port), ("order", Some(80)));
        for bad in
            ["--spec a.yaml", "--spec", "--spec a --service b --port x", "--spec a --service b --what c"]
        {
            assert!(super::options(words(bad)).is_err(), "{bad}");
        }
    }
}
