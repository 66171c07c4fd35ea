//! The requests of a load, as a YAML file.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::matrix::{MAX_REQUESTS, Matrix, MatrixError};
use crate::application::placeholders;
use crate::units;
use crate::yaml::parse_options;

/// Requests and the order in which users send them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scenario {
    /// At least one.
    pub requests: Vec<LoadRequest>,
    /// Which follows which.
    pub matrix: Matrix,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadRequest {
    /// Its name in reports.
    pub name: String,
    /// Upper case.
    pub method: String,
    /// Path and query; may contain `${name}`.
    pub path: String,
    /// Headers; values may contain `${name}`.
    pub headers: BTreeMap<String, String>,
    /// The body, if it has one.
    pub body: Option<RequestBody>,
    /// What the answer must look like.
    pub expect: Expected,
    /// Values to save for later requests of the same user, by name: dotted paths into the JSON of the answer.
    pub save: BTreeMap<String, String>,
    /// How long the answer may take; as long as the load says if none.
    #[serde(with = "crate::units::duration::option")]
    pub within: Option<Duration>,
}

/// The body of a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestBody {
    /// Sent as it is, `${name}` filled in.
    Text(String),
    /// Sent as JSON.
    Json(serde_json::Value),
}

/// What an answer must look like.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expected {
    /// One of these; any below 400 if there are none.
    #[serde(deserialize_with = "one_or_more")]
    pub status: Vec<u16>,
    /// A text that the body contains.
    pub contains: Option<String>,
}

/// Why a scenario cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// It is no YAML, or has a key that is not known.
    #[error("{0}")]
    Yaml(String),
    /// A mistake in one request.
    #[error("request {number}: {problem}")]
    Request {
        /// From 1.
        number: usize,
        /// What is wrong.
        problem: String,
    },
    /// A mistake in the matrix.
    #[error("matrix: {0}")]
    Matrix(#[from] MatrixError),
    /// Anything else.
    #[error("{0}")]
    Whole(String),
}

/// The largest scenario file.
const MAX_SCENARIO_BYTES: usize = 4 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScenario {
    requests: Vec<RawRequest>,
    matrix: Option<Vec<Vec<f64>>>,
    mix: Option<RawMix>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RawMix {
    Uniform,
    Balanced,
    Favour { request: String, probability: f64 },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRequest {
    name: Option<String>,
    get: Option<String>,
    post: Option<String>,
    put: Option<String>,
    delete: Option<String>,
    patch: Option<String>,
    head: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    json: Option<serde_json::Value>,
    body: Option<String>,
    #[serde(default)]
    expect: Expected,
    #[serde(default)]
    save: BTreeMap<String, String>,
    #[serde(default, with = "units::duration::option")]
    within: Option<Duration>,
}

impl Scenario {
    /// Reads a file; `seed` is for a mix that is drawn.
    pub fn read(text: &str, seed: u64) -> Result<Self, ScenarioError> {
        if text.len() > MAX_SCENARIO_BYTES {
            return Err(ScenarioError::Whole(format!("it has more than {MAX_SCENARIO_BYTES} bytes")));
        }
        let options = parse_options(MAX_SCENARIO_BYTES, 64, 1);
        let raw: RawScenario = serde_saphyr::from_str_with_options(text, options)
            .map_err(|e| ScenarioError::Yaml(e.to_string()))?;
        if raw.requests.is_empty() || raw.requests.len() > MAX_REQUESTS {
            let problem = format!("a scenario has 1 to {MAX_REQUESTS} `requests`");
            return Err(ScenarioError::Whole(problem));
        }
        let in_request = |(number, raw): (usize, RawRequest)| {
            LoadRequest::try_from(raw).map_err(|problem| ScenarioError::Request { number, problem })
        };
        let requests = (1..).zip(raw.requests).map(in_request).collect::<Result<Vec<_>, _>>()?;
        let names: BTreeSet<&str> = requests.iter().map(|request| request.name.as_str()).collect();
        if names.len() < requests.len() {
            return Err(ScenarioError::Whole("two requests have the same `name`".to_owned()));
        }
        check_placeholders(&requests)?;
        let matrix = read_matrix(raw.matrix, raw.mix, &requests, seed)?;
        Ok(Self { requests, matrix })
    }

    /// One request, again and again.
    pub fn single(request: LoadRequest) -> Self {
        Self { requests: vec![request], matrix: Matrix::in_turn(1) }
    }
}

impl LoadRequest {
    /// A request without body and headers.
    pub fn new(method: &str, path: &str) -> Self {
        Self {
            name: format!("{method} {path}"),
            method: method.to_owned(),
            path: path.to_owned(),
            headers: BTreeMap::new(),
            body: None,
            expect: Expected::default(),
            save: BTreeMap::new(),
            within: None,
        }
    }

    /// The names of saved values that it needs.
    fn placeholders(&self) -> BTreeSet<String> {
        let mut texts: Vec<&str> = vec![&self.path];
        texts.extend(self.headers.values().map(String::as_str));
        texts.extend(self.expect.contains.as_deref());
        let json;
        match &self.body {
            Some(RequestBody::Text(text)) => texts.push(text),
            Some(RequestBody::Json(value)) => {
                json = value.to_string();
                texts.push(&json);
            }
            None => {}
        }
        texts.into_iter().flat_map(placeholders).map(str::to_owned).collect()
    }
}

impl TryFrom<RawRequest> for LoadRequest {
    type Error = String;

    fn try_from(raw: RawRequest) -> Result<Self, String> {
        let methods = [
            ("GET", &raw.get),
            ("POST", &raw.post),
            ("PUT", &raw.put),
            ("DELETE", &raw.delete),
            ("PATCH", &raw.patch),
            ("HEAD", &raw.head),
        ];
        let mut given = methods.into_iter().filter_map(|(method, path)| Some((method, path.clone()?)));
        let (Some((method, path)), None) = (given.next(), given.next()) else {
            return Err("it has one of `get`, `post`, `put`, `delete`, `patch`, `head`".to_owned());
        };
        if !path.starts_with('/') {
            return Err(format!("`{path}` must begin with `/`: the target gives the host"));
        }
        let body = match (raw.json, raw.body) {
            (Some(_), Some(_)) => return Err("it has `json` or `body`, not both".to_owned()),
            (Some(json), None) => Some(RequestBody::Json(json)),
            (None, body) => body.map(RequestBody::Text),
        };
        if raw.within.is_some_and(|within| within.is_zero()) {
            return Err("`within` is longer than nothing".to_owned());
        }
        Ok(Self {
            name: raw.name.unwrap_or_else(|| format!("{method} {path}")),
            method: method.to_owned(),
            path,
            headers: raw.headers,
            body,
            expect: raw.expect,
            save: raw.save,
            within: raw.within,
        })
    }
}

fn check_placeholders(requests: &[LoadRequest]) -> Result<(), ScenarioError> {
    let saved: BTreeSet<&str> =
        requests.iter().flat_map(|request| request.save.keys().map(String::as_str)).collect();
    for (number, request) in (1..).zip(requests) {
        if let Some(name) = request.placeholders().into_iter().find(|name| !saved.contains(name.as_str())) {
            let problem = format!("no request saves `{name}`; write `$${{{name}}}` to send it as it is");
            return Err(ScenarioError::Request { number, problem });
        }
    }
    Ok(())
}

fn read_matrix(
    matrix: Option<Vec<Vec<f64>>>,
    mix: Option<RawMix>,
    requests: &[LoadRequest],
    seed: u64,
) -> Result<Matrix, ScenarioError> {
    let size = requests.len();
    match (matrix, mix) {
        (Some(_), Some(_)) => Err(ScenarioError::Whole("it has `matrix` or `mix`, not both".to_owned())),
        (Some(rows), None) if rows.len() != size => {
            let problem = format!("the matrix has {} rows for {size} requests", rows.len());
            Err(ScenarioError::Whole(problem))
        }
        (Some(rows), None) => Ok(Matrix::new(rows)?),
        (None, None | Some(RawMix::Uniform)) => Ok(Matrix::in_turn(size)),
        (None, Some(RawMix::Balanced)) => Ok(Matrix::randomly_balanced(size, seed)),
        (None, Some(RawMix::Favour { request, probability })) => {
            let favoured = requests.iter().position(|one| one.name == request);
            let favoured = favoured.ok_or_else(|| {
                ScenarioError::Whole(format!("`mix` favours `{request}`, which is no request"))
            })?;
            if !(0.0..=1.0).contains(&probability) {
                return Err(ScenarioError::Whole(format!("`{probability}` is no probability")));
            }
            Ok(Matrix::favouring(size, favoured, probability))
        }
    }
}

fn one_or_more<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<u16>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Statuses {
        One(u16),
        More(Vec<u16>),
    }
    Ok(match Statuses::deserialize(deserializer)? {
        Statuses::One(status) => vec![status],
        Statuses::More(all) => all,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOP: &str = "
requests:
  - { name: list, get: /items, expect: { status: 200 }, save: { item: items.0.id } }
  - { name: buy, post: /buy, json: { item: \"${item}\" }, expect: { status: [200, 201], contains: ok }, within: 2s }
";

    #[test]
    fn requests_are_read_with_what_they_save() {
        let scenario = Scenario::read(SHOP, 1).unwrap();
        let [list, buy] = scenario.requests.as_slice() else { panic!("{scenario:?}") };
        assert_eq!((list.method.as_str(), list.path.as_str()), ("GET", "/items"));
        assert_eq!(list.save["item"], "items.0.id");
        assert_eq!(buy.expect.status, [200, 201]);
        assert_eq!(buy.within, Some(Duration::from_secs(2)));
        assert_eq!(scenario.matrix, Matrix::in_turn(2));
    }

    #[test]
    fn mixes_are_read() {
        let with = |rest: &str| Scenario::read(&format!("{SHOP}{rest}\n"), 1).unwrap().matrix;
        assert_eq!(with("mix: uniform"), Matrix::in_turn(2));
        assert_eq!(with("mix: balanced"), Matrix::randomly_balanced(2, 1));
        assert_eq!(with("mix: { favour: { request: buy, probability: 0.9 } }"), Matrix::favouring(2, 1, 0.9));
        assert_eq!(with("matrix: [[0.5, 0.5], [1, 0]]").probability(1, 0), 1.0);
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| Scenario::read(text, 1).unwrap_err().to_string();
        assert_eq!(error("requests: []"), "a scenario has 1 to 1000 `requests`");
        assert_eq!(
            error("requests: [{ get: items }]"),
            "request 1: `items` must begin with `/`: the target gives the host"
        );
        assert_eq!(
            error("requests: [{ get: /, put: / }]"),
            "request 1: it has one of `get`, `post`, `put`, `delete`, `patch`, `head`"
        );
        assert_eq!(
            error("requests: [{ get: /, json: 1, body: x }]"),
            "request 1: it has `json` or `body`, not both"
        );
        assert_eq!(
            error("requests: [{ get: '/${id}' }]"),
            "request 1: no request saves `id`; write `$${id}` to send it as it is"
        );
        assert_eq!(error("requests: [{ get: / }, { get: / }]"), "two requests have the same `name`");
        assert_eq!(
            error("requests: [{ get: / }]\nmatrix: [[0.5]]"),
            "matrix: the probabilities of row 1 add up to 0.5, not to 1"
        );
        assert_eq!(
            error("requests: [{ get: / }]\nmatrix: [[1], [1]]"),
            "the matrix has 2 rows for 1 requests"
        );
        assert!(error("requests: [{ gett: / }]").contains("gett"));
    }
}
