//! Labelled series in the format of the Numenta Anomaly Benchmark: CSV files with a timestamp and a value per line,
//! and a JSON file with the windows of the anomalies of each.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use faultscope_engine::read_bounded;

use super::score::Window;
use crate::error::BenchError;

/// The largest file, packed or not. The largest series of the benchmark has 22,695 lines in 760 KB.
const MAX_FILE: u64 = 64 << 20;
/// All series together, so that an archive cannot unpack to more than memory holds.
const MAX_ALL: u64 = 512 << 20;
/// Most series.
const MAX_SERIES: usize = 10_000;
/// Where labels are: as in the repository of the benchmark, or beside the data.
const LABELS: [&str; 2] = ["labels/combined_windows.json", "windows.json"];

/// A labelled series.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LabelledSeries {
    /// Folder and file: `realAWSCloudwatch/grok_asg_anomaly.csv`.
    pub(crate) name: String,
    /// Microseconds since 1970 and values; NaN where a line has no number.
    pub(crate) values: Vec<(u64, f64)>,
    pub(crate) windows: Vec<Window>,
}

/// Windows as they are written: first and last timestamp.
type Labels = BTreeMap<String, Vec<[String; 2]>>;

/// Reads all labelled series below a folder, from `data/` or `data.tar.gz`, by name.
pub(crate) fn read_corpus(folder: &Path) -> Result<Vec<LabelledSeries>, BenchError> {
    let labels = LABELS.iter().map(|name| folder.join(name)).find(|path| path.is_file());
    let labels = labels.ok_or_else(|| {
        BenchError::usage(format!("there are no labels in {}", folder.display()))
            .hint("the folder has data/ or data.tar.gz, and windows.json or labels/combined_windows.json")
    })?;
    let bytes = read_bounded(&labels, MAX_FILE).map_err(|e| unreadable(&labels, e))?;
    let labels: Labels = serde_json::from_slice(&bytes).map_err(|e| unreadable(&labels, e))?;
    let archive = folder.join("data.tar.gz");
    let files =
        if archive.is_file() { unpack(&archive)? } else { read_folder(&folder.join("data"), &labels)? };
    let labelled = files.into_iter().filter_map(|(name, text)| Some((labels.get(&name)?, name, text)));
    let corpus: Result<Vec<_>, _> =
        labelled.map(|(windows, name, text)| LabelledSeries::parse(name, &text, windows)).collect();
    let corpus = corpus?;
    if corpus.is_empty() {
        return Err(BenchError::usage(format!("there are no labelled series in {}", folder.display())));
    }
    Ok(corpus)
}

impl LabelledSeries {
    fn parse(name: String, text: &str, labels: &[[String; 2]]) -> Result<Self, BenchError> {
        let mut times = Vec::new();
        let mut values = Vec::new();
        for line in text.lines().skip(1).filter(|line| !line.trim().is_empty()) {
            let (time, value) = line.split_once(',').unwrap_or((line, ""));
            let Some(at_us) = parse_time(time) else {
                return Err(BenchError::usage(format!("{name}: `{time}` is not a timestamp")));
            };
            times.push(at_us);
            values.push((at_us, value.trim().parse().unwrap_or(f64::NAN)));
        }
        let mut windows = Vec::new();
        for label in labels {
            let [Some(start), Some(end)] = [parse_time(&label[0]), parse_time(&label[1])] else {
                return Err(BenchError::usage(format!("{name}: a label has no timestamps")));
            };
            let first = times.iter().position(|at_us| *at_us >= start);
            let last = times.iter().rposition(|at_us| *at_us <= end);
            match (first, last) {
                (Some(first), Some(last)) if first <= last => windows.push(Window { first, last }),
                _ => return Err(BenchError::usage(format!("{name}: a label is outside of its series"))),
            }
        }
        windows.sort_by_key(|window| window.first);
        if windows.windows(2).any(|pair| pair[0].last >= pair[1].first) {
            return Err(BenchError::usage(format!("{name}: two labels overlap")));
        }
        Ok(Self { name, values, windows })
    }
}

/// Unpacks the CSV files of an archive into memory, by their names below `data/`.
fn unpack(path: &Path) -> Result<BTreeMap<String, String>, BenchError> {
    let packed = read_bounded(path, MAX_FILE).map_err(|e| unreadable(path, e))?;
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed.as_slice()).take(MAX_ALL));
    let mut files = BTreeMap::new();
    for entry in archive.entries().map_err(|e| unreadable(path, e))? {
        let entry = entry.map_err(|e| unreadable(path, e))?;
        let inside: PathBuf = entry.path().map_err(|e| unreadable(path, e))?.into_owned();
        let Some(name) = inside.strip_prefix("data").ok().and_then(Path::to_str).filter(|name| is_csv(name))
        else {
            continue;
        };
        let name = name.to_owned();
        if files.len() == MAX_SERIES {
            return Err(BenchError::usage(format!("{} has more than {MAX_SERIES} series", path.display())));
        }
        let mut text = String::new();
        entry.take(MAX_FILE).read_to_string(&mut text).map_err(|e| unreadable(path, e))?;
        files.insert(name, text);
    }
    Ok(files)
}

/// Reads the labelled CSV files of a folder.
fn read_folder(data: &Path, labels: &Labels) -> Result<BTreeMap<String, String>, BenchError> {
    let mut files = BTreeMap::new();
    // Names come from a file: none of them may lead out of the folder.
    let inside = |name: &str| name.split('/').all(|part| !part.is_empty() && part != ".." && part != ".");
    for name in labels.keys().filter(|name| is_csv(name) && inside(name)).take(MAX_SERIES) {
        let path = data.join(name);
        if path.is_file() {
            let bytes = read_bounded(&path, MAX_FILE).map_err(|e| unreadable(&path, e))?;
            files.insert(name.clone(), String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    Ok(files)
}

fn is_csv(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "csv")
}

fn unreadable(path: &Path, cause: impl std::error::Error + Send + Sync + 'static) -> BenchError {
    BenchError::usage(format!("cannot read {}", path.display())).because(cause)
}

/// Parses `2014-04-10 07:15:00`, with or without a fraction, into microseconds since 1970.
fn parse_time(text: &str) -> Option<u64> {
    let text = text.trim().get(..19)?;
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years that begin with March, so that the leap day is their last one.
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let days = days.checked_sub(DAYS_TO_1970)?;
    Some(((days * 24 + hour) * 60 + minute) * 60_000_000 + second * 1_000_000)
}

/// From the first of March of the year 0 to 1970.
const DAYS_TO_1970: u64 = 719_468;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_those_of_the_calendar() {
        assert_eq!(parse_time("1970-01-01 00:00:00"), Some(0));
        assert_eq!(parse_time("2014-04-10 07:15:00.000000"), Some(1_397_114_100_000_000));
        assert_eq!(parse_time("2000-02-29 23:59:59"), Some(951_868_799_000_000));
        for bad in ["", "yesterday", "2014-13-01 00:00:00", "1900-01-01 00:00:00"] {
            assert_eq!(parse_time(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_folder_and_an_archive_hold_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let csv = "timestamp,value\n2014-01-01 00:00:00,1\n2014-01-01 00:05:00,\n2014-01-01 00:10:00,3.5\n";
        std::fs::create_dir_all(folder.path().join("data/a")).unwrap();
        std::fs::write(folder.path().join("data/a/b.csv"), csv).unwrap();
        let labels = r#"{"a/b.csv": [["2014-01-01 00:05:00.000000", "2014-01-01 00:10:00.000000"]],
            "../out.csv": [], "a/missing.csv": []}"#;
        std::fs::write(folder.path().join("windows.json"), labels).unwrap();
        let plain = read_corpus(folder.path()).unwrap();
        assert_eq!(plain[0].windows, [Window { first: 1, last: 2 }]);
        assert!(plain[0].values[1].1.is_nan());
        let file = std::fs::File::create(folder.path().join("data.tar.gz")).unwrap();
        let mut builder =
            tar::Builder::new(flate2::write::GzEncoder::new(file, flate2::Compression::default()));
        builder.append_path_with_name(folder.path().join("data/a/b.csv"), "data/a/b.csv").unwrap();
        builder.into_inner().unwrap().finish().unwrap();
        let packed = read_corpus(folder.path()).unwrap();
        assert_eq!((packed.len(), &packed[0].name), (1, &plain[0].name));
        assert_eq!(packed[0].windows, plain[0].windows);
    }

    #[test]
    fn labels_outside_of_their_series_are_refused() {
        let labels = ["2015-01-01 00:00:00".to_owned(), "2015-01-02 00:00:00".to_owned()];
        let text = "timestamp,value\n2014-01-01 00:00:00,1\n";
        let error = LabelledSeries::parse("x.csv".into(), text, &[labels]).unwrap_err();
        assert!(error.message.contains("outside"), "{}", error.message);
        assert!(read_corpus(Path::new("/nowhere")).is_err());
    }
}
