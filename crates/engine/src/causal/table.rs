//! Tables of numbers from CSV files, plain or compressed with gzip.

use std::path::Path;

use faultscope_analysis::causal::{CausalError, Observations};

use super::files::{FileError, FileProblem, read_unpacked};

/// Characters of a wrong cell that are quoted.
const QUOTED: usize = 40;

/// What stands for a missing value in files of common tools.
const NO_VALUE: [&str; 6] = ["", "na", "n/a", "nan", "null", "none"];

/// Which part of a table is read.
#[derive(Debug, Clone, Default)]
pub struct TableOptions {
    /// Only these columns; all if there are none.
    pub only: Vec<String>,
    /// Not these columns.
    pub without: Vec<String>,
    /// What happens to rows with a missing value.
    pub missing: Missing,
    /// At most this many rows.
    pub rows: Option<usize>,
}

/// What happens to rows with a missing value in a column that is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Missing {
    /// They are an error.
    #[default]
    Refuse,
    /// They are skipped and counted.
    Skip,
}

/// A table that was read.
#[derive(Debug, Clone)]
pub struct Table {
    /// Its columns.
    pub observations: Observations,
    /// Rows that were skipped because a value was missing.
    pub skipped_rows: usize,
}

/// Reads a table.
pub fn read_table(path: &Path, options: &TableOptions) -> Result<Table, FileError> {
    let bytes = read_unpacked(path)?;
    parse_table(&bytes, options).map_err(|problem| problem.of(path))
}

fn parse_table(bytes: &[u8], options: &TableOptions) -> Result<Table, FileProblem> {
    // Spreadsheets write a mark of the byte order that would become part of the first name.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut reader = csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(bytes);
    let names: Vec<String> =
        reader.headers().map_err(FileProblem::NotCsv)?.iter().map(str::to_owned).collect();
    if names.is_empty() || names.iter().any(String::is_empty) {
        return Err(FileProblem::NoNames);
    }
    let chosen = choose_columns(&names, options)?;
    let mut columns: Vec<Vec<f64>> = vec![Vec::new(); chosen.len()];
    let mut skipped_rows = 0;
    let mut record = csv::StringRecord::new();
    let most = options.rows.unwrap_or(usize::MAX);
    while columns.first().is_some_and(|column| column.len() < most)
        && reader.read_record(&mut record).map_err(FileProblem::NotCsv)?
    {
        let line = record.position().map_or(0, csv::Position::line);
        if record.len() != names.len() {
            return Err(FileProblem::Ragged { line, cells: record.len(), columns: names.len() });
        }
        let row: Result<Vec<f64>, FileProblem> =
            chosen.iter().map(|&at| parse_cell(&record[at], line, &names[at])).collect();
        match row {
            Ok(row) => columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value)),
            Err(FileProblem::MissingValue { .. }) if options.missing == Missing::Skip => skipped_rows += 1,
            Err(problem) => return Err(problem),
        }
    }
    let names = chosen.iter().map(|&at| names[at].clone()).collect();
    Ok(Table { observations: Observations::new(names, columns)?, skipped_rows })
}

fn choose_columns(names: &[String], options: &TableOptions) -> Result<Vec<usize>, FileProblem> {
    for wanted in options.only.iter().chain(&options.without) {
        if !names.contains(wanted) {
            return Err(CausalError::UnknownColumn(wanted.clone()).into());
        }
    }
    let is_chosen = |at: &usize| {
        let name = &names[*at];
        (options.only.is_empty() || options.only.contains(name)) && !options.without.contains(name)
    };
    Ok((0..names.len()).filter(is_chosen).collect())
}

fn parse_cell(cell: &str, line: u64, column: &str) -> Result<f64, FileProblem> {
    match cell.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ if NO_VALUE.contains(&cell.to_ascii_lowercase().as_str()) => {
            Err(FileProblem::MissingValue { line, column: column.to_owned() })
        }
        _ => {
            let text = cell.chars().take(QUOTED).collect();
            Err(FileProblem::NotANumber { line, column: column.to_owned(), text })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn parse(text: &str) -> Result<Table, String> {
        parse_table(text.as_bytes(), &TableOptions::default()).map_err(|problem| problem.to_string())
    }

    #[test]
    fn wrong_cells_are_named_with_line_and_column() {
        assert_eq!(
            parse("a,b\n1,2\n3,x y\n").unwrap_err(),
            "line 3, column `b`: `x y` is not a finite number"
        );
        assert_eq!(parse("a,b\n1,\n").unwrap_err(), "line 2, column `b`: there is no value");
        assert_eq!(parse("a,b\n1,NaN\n").unwrap_err(), "line 2, column `b`: there is no value");
        assert_eq!(parse("a,b\n1,inf\n").unwrap_err(), "line 2, column `b`: `inf` is not a finite number");
        assert_eq!(parse("a,b\n1\n").unwrap_err(), "line 2 has 1 cells, and there are 2 columns");
        assert_eq!(parse("").unwrap_err(), "its first line has no names of columns");
        assert_eq!(parse("a,,b\n").unwrap_err(), "its first line has no names of columns");
        assert_eq!(parse("a,b\n").unwrap_err(), "there are no rows");
        assert_eq!(parse("a,a\n1,2\n").unwrap_err(), "two columns are named `a`");
    }

    #[test]
    fn columns_are_chosen_and_rows_without_values_skipped() {
        let options = TableOptions {
            without: vec!["name".into()],
            missing: Missing::Skip,
            rows: Some(2),
            ..TableOptions::default()
        };
        let text = "\u{feff}name, a ,b\nx,1,2\ny,,3\nz,5,6\nw,7,8\n";
        let table = parse_table(text.as_bytes(), &options).unwrap();
        assert_eq!(table.observations.names(), ["a", "b"]);
        assert_eq!(table.observations.columns(), [vec![1.0, 5.0], vec![2.0, 6.0]]);
        assert_eq!(table.skipped_rows, 1);
    }

    #[test]
    fn compressed_files_are_read_and_bombs_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, pieces: usize, piece: &[u8]| {
            let path = folder.path().join(name);
            let file = std::fs::File::create(&path).unwrap();
            let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
            (0..pieces).for_each(|_| encoder.write_all(piece).unwrap());
            encoder.finish().unwrap();
            path
        };
        let small = read_table(&write("small.csv.gz", 1, b"a,b\n1,2\n"), &TableOptions::default()).unwrap();
        assert_eq!(small.observations.rows(), 1);
        let bomb = write("bomb.csv.gz", 129, &vec![b'1'; 1 << 20]);
        let error = read_table(&bomb, &TableOptions::default()).unwrap_err();
        assert!(matches!(*error.problem, FileProblem::TooLarge), "{error:?}");
    }

    proptest::proptest! {
        #[test]
        fn anything_may_be_in_a_file(bytes in proptest::collection::vec(0u8..=255, 0..200)) {
            // An error or a table, never a panic.
            if let Ok(table) = parse_table(&bytes, &TableOptions::default()) {
                proptest::prop_assert!(table.observations.rows() > 0);
            }
        }
    }
}
