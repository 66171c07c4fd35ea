//! HTTP requests as an input: those of a file, and the steps of a test.

use serde_json::{Map, Value};

use super::Stage;
use super::body::Body;
use crate::application::Step;

/// A file with more requests than this is an access log rather than the input of a test.
const MAX_REQUESTS: usize = 10_000;

/// A request of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The request line before the query.
    start: String,
    query: Vec<String>,
    /// The protocol at the end of the request line; may be empty.
    version: String,
    headers: Vec<String>,
    pub(super) body: Option<Body>,
}

impl Request {
    /// The number of its headers, query parameters and bodies.
    pub(super) fn parts(&self) -> usize {
        self.query.len() + self.headers.len() + usize::from(self.body.is_some())
    }

    pub(super) fn keep_parts(&self, keeps: &mut dyn FnMut() -> bool) -> Self {
        Self {
            start: self.start.clone(),
            version: self.version.clone(),
            query: self.query.iter().filter(|_| keeps()).cloned().collect(),
            headers: self.headers.iter().filter(|_| keeps()).cloned().collect(),
            body: self.body.clone().filter(|_| keeps()),
        }
    }

    pub(super) fn keep_in_body(&self, stage: Stage, keeps: &mut dyn FnMut() -> bool) -> Self {
        Self { body: self.body.as_ref().map(|body| body.keep(stage, keeps)), ..self.clone() }
    }
}

/// Reads a file of requests: request line, headers, empty line, body; a line `###` separates two.
pub(super) fn read(text: &str) -> Result<Vec<Request>, String> {
    let mut requests = Vec::new();
    let mut block: Vec<&str> = Vec::new();
    for line in text.lines().chain(["###"]) {
        if line.starts_with("###") {
            requests.extend(request(&block)?);
            block.clear();
        } else {
            block.push(line);
        }
        if requests.len() > MAX_REQUESTS {
            return Err(format!("it has more than {MAX_REQUESTS} requests"));
        }
    }
    if requests.is_empty() {
        return Err("it has no request such as `GET http://order:8080/orders`".into());
    }
    Ok(requests)
}

fn request(block: &[&str]) -> Result<Option<Request>, String> {
    let said = |line: &&&str| !line.trim().is_empty() && !line.starts_with('#') && !line.starts_with("//");
    let Some(first) = block.iter().position(|line| said(&line)) else { return Ok(None) };
    let (target, version) = match block[first].trim().rsplit_once(' ') {
        Some((target, version)) if version.starts_with("HTTP/") => (target, version),
        _ => (block[first].trim(), ""),
    };
    if !target.contains(' ') {
        return Err(format!("`{}` is not a request", target.chars().take(80).collect::<String>()));
    }
    let (start, query) = split_query(target);
    let rest = &block[first + 1..];
    let end = rest.iter().position(|line| line.trim().is_empty()).unwrap_or(rest.len());
    let body = rest.get(end + 1..).unwrap_or_default().join("\n");
    let json = body.trim().starts_with(['{', '[']).then(|| Body::json(body.trim()).ok()).flatten();
    let body = if body.trim().is_empty() { None } else { Some(json.unwrap_or(Body::Text(body))) };
    let headers = rest[..end].iter().map(|line| (*line).to_owned()).collect();
    Ok(Some(Request { start, query, version: version.to_owned(), headers, body }))
}

pub(super) fn render(requests: &[Request]) -> String {
    let one = |request: &Request| {
        let mut text = join_query(&request.start, &request.query);
        if !request.version.is_empty() {
            text.push(' ');
            text.push_str(&request.version);
        }
        text.push('\n');
        for header in &request.headers {
            text.push_str(header);
            text.push('\n');
        }
        if let Some(body) = &request.body {
            text.push('\n');
            text.push_str(&body.render());
            text.push('\n');
        }
        text
    };
    requests.iter().map(one).collect::<Vec<_>>().join("\n###\n")
}

fn split_query(target: &str) -> (String, Vec<String>) {
    match target.split_once('?') {
        Some((start, query)) => (start.to_owned(), query.split('&').map(ToOwned::to_owned).collect()),
        None => (target.to_owned(), Vec::new()),
    }
}

fn join_query(start: &str, query: &[String]) -> String {
    if query.is_empty() { start.to_owned() } else { format!("{start}?{}", query.join("&")) }
}

/// Dependencies between steps: one that uses a saved value needs the last step before it that saves it.
pub(super) fn needs(steps: &[Step]) -> Vec<(usize, usize)> {
    let mut needs = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let text = serde_json::to_string(step).unwrap_or_default();
        for name in steps[..index].iter().flat_map(|s| s.save.keys()) {
            if text.contains(&format!("${{{name}}}")) {
                let saver = steps[..index].iter().rposition(|s| s.save.contains_key(name));
                needs.extend(saver.map(|saver| (index, saver)));
            }
        }
    }
    needs.sort_unstable();
    needs.dedup();
    needs
}

pub(super) fn step_parts(step: &Step) -> usize {
    split_query(&step.url).1.len() + step.headers.len() + usize::from(step.body.is_some())
}

pub(super) fn keep_step_parts(step: &Step, keeps: &mut dyn FnMut() -> bool) -> Step {
    let (start, mut query) = split_query(&step.url);
    query.retain(|_| keeps());
    let headers = step.headers.iter().filter(|_| keeps()).map(|(k, v)| (k.clone(), v.clone())).collect();
    let body = step.body.clone().filter(|_| keeps());
    Step { url: join_query(&start, &query), headers, body, ..step.clone() }
}

pub(super) fn keep_in_step_body(step: &Step, stage: Stage, keeps: &mut dyn FnMut() -> bool) -> Step {
    let body = step.body.as_ref().map(|body| Body::from_step(body).keep(stage, keeps).into_step());
    Step { body, ..step.clone() }
}

/// Steps as written in an application file, one per line.
pub(super) fn render_steps(steps: &[Step]) -> String {
    let one = |step: &Step| {
        let mut map = Map::new();
        let (target, headers) = match step.grpc {
            None => ((step.method.to_lowercase(), step.url.as_str()), "headers"),
            Some(_) => {
                let target = step.url.strip_prefix("http://").unwrap_or(&step.url);
                (("grpc".to_owned(), target), "metadata")
            }
        };
        map.insert(target.0, Value::from(target.1));
        if !step.headers.is_empty() {
            map.insert(headers.into(), serde_json::json!(step.headers));
        }
        match step.body.as_ref().map(Body::from_step) {
            Some(Body::Json(json)) => map.insert("json".into(), json),
            Some(Body::Text(text)) => map.insert("body".into(), Value::from(text)),
            None => None,
        };
        if step.expect != crate::application::Expectation::default() {
            map.insert("expect".into(), serde_json::json!(step.expect));
        }
        if !step.save.is_empty() {
            map.insert("save".into(), serde_json::json!(step.save));
        }
        if let Some(within) = step.within {
            map.insert("within".into(), Value::from(within.as_secs_f64()));
        }
        format!("- {}\n", Value::Object(map))
    };
    steps.iter().map(one).collect()
}
