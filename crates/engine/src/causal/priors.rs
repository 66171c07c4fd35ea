//! Prior knowledge from CSV files: one fact in a line, or a matrix as the package `lingam` takes it.

use std::path::Path;

use faultscope_analysis::causal::Prior;

use super::files::{FileError, FileProblem, read_unpacked};

/// Reads prior knowledge about these columns.
///
/// The first form begins with the line `kind,from,to`, and kinds are `path`, `no-path`, `required-edge`,
/// `forbidden-edge` and `exogenous` (the column is in `to`). The second has a line for each column, with a number for
/// each possible cause: 1 for a path, 0 for no path, -1 for neither.
pub fn read_priors(path: &Path, columns: &[String]) -> Result<Vec<Prior>, FileError> {
    let bytes = read_unpacked(path)?;
    parse_priors(&bytes, columns).map_err(|problem| problem.of(path))
}

fn parse_priors(bytes: &[u8], columns: &[String]) -> Result<Vec<Prior>, FileProblem> {
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).trim(csv::Trim::All).from_reader(bytes);
    let mut records = Vec::new();
    for record in reader.records() {
        records.push(record.map_err(FileProblem::NotCsv)?);
    }
    match records.first() {
        None => Ok(Vec::new()),
        Some(first) if first.iter().eq(["kind", "from", "to"]) => {
            records[1..].iter().map(parse_fact).collect()
        }
        Some(_) => parse_matrix(&records, columns),
    }
}

fn parse_fact(record: &csv::StringRecord) -> Result<Prior, FileProblem> {
    let line = record.position().map_or(0, csv::Position::line);
    let [kind, from, to] = [0, 1, 2].map(|at| record.get(at).unwrap_or_default().to_owned());
    let wrong = |problem: String| FileProblem::BadPrior { line, problem };
    let is_exogenous = kind == "exogenous";
    if to.is_empty() || (from.is_empty() != is_exogenous) || record.len() > 3 {
        return Err(wrong("a line is `kind,from,to`, and `exogenous,,column` has no `from`".into()));
    }
    match kind.as_str() {
        "path" => Ok(Prior::Path { from, to }),
        "no-path" => Ok(Prior::NoPath { from, to }),
        "required-edge" => Ok(Prior::RequiredEdge { from, to }),
        "forbidden-edge" => Ok(Prior::ForbiddenEdge { from, to }),
        "exogenous" => Ok(Prior::Exogenous { column: to }),
        other => Err(wrong(format!(
            "`{other}` is none of path, no-path, required-edge, forbidden-edge, exogenous"
        ))),
    }
}

fn parse_matrix(records: &[csv::StringRecord], columns: &[String]) -> Result<Vec<Prior>, FileProblem> {
    let mut priors = Vec::new();
    if records.len() != columns.len() {
        let problem = format!("a matrix for {} columns has {} lines", columns.len(), records.len());
        return Err(FileProblem::BadPrior { line: 1, problem });
    }
    for (to, record) in records.iter().enumerate() {
        let line = record.position().map_or(0, csv::Position::line);
        if record.len() != columns.len() {
            return Err(FileProblem::Ragged { line, cells: record.len(), columns: columns.len() });
        }
        for (from, cell) in record.iter().enumerate().filter(|(from, _)| *from != to) {
            let [from, to] = [from, to].map(|at| columns[at].clone());
            match cell {
                "1" => priors.push(Prior::Path { from, to }),
                "0" => priors.push(Prior::NoPath { from, to }),
                "-1" => {}
                other => {
                    let problem =
                        format!("`{}` is none of 1, 0, -1", other.chars().take(20).collect::<String>());
                    return Err(FileProblem::BadPrior { line, problem });
                }
            }
        }
    }
    Ok(priors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<String>, String> {
        let columns = ["a", "b"].map(str::to_owned);
        let priors = parse_priors(text.as_bytes(), &columns).map_err(|problem| problem.to_string())?;
        Ok(priors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn facts_and_matrices_are_understood() {
        let facts =
            "kind,from,to\npath,a,b\nno-path,b,a\nrequired-edge,a,b\nforbidden-edge,b,a\nexogenous,,a\n";
        assert_eq!(
            parse(facts).unwrap(),
            ["path a -> b", "no path b -> a", "required edge a -> b", "forbidden edge b -> a", "exogenous a"]
        );
        assert_eq!(parse("-1,0\n1,-1\n").unwrap(), ["no path b -> a", "path a -> b"]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        assert!(
            parse("kind,from,to\nmaybe,a,b\n").unwrap_err().starts_with("line 2: `maybe` is none of path")
        );
        assert!(parse("kind,from,to\npath,,b\n").unwrap_err().starts_with("line 2: a line is"));
        assert_eq!(parse("-1,0\n").unwrap_err(), "line 1: a matrix for 2 columns has 1 lines");
        assert_eq!(parse("-1,0\n2,-1\n").unwrap_err(), "line 2: `2` is none of 1, 0, -1");
    }
}
