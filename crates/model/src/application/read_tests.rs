//! Checks the tests of an application file.

use std::collections::BTreeSet;
use std::time::Duration;

use super::expectation::is_below;
use super::raw::{RawInput, RawStep, RawTest};
use super::read::{Reader, SpecError, nearest_hint, one_line_regex};
use super::{
    Application, Expansion, Expectation, GrpcCall, ReportFormat, Step, StepBody, TestBody, TestCase,
    TestCommand, TestInput, Unreachable, fill_placeholders, placeholders,
};
use crate::input::InputFormat;

impl Reader<'_> {
    pub(super) fn test(&self, index: usize, raw: RawTest) -> Result<TestCase, SpecError> {
        self.test_of("tests", index, raw)
    }

    /// A test of a list of the file.
    pub(super) fn test_of(&self, list: &str, index: usize, raw: RawTest) -> Result<TestCase, SpecError> {
        let at = index.to_string();
        let here = |problem: &str| self.error(&[list, &at], problem);
        let command = |run: Vec<String>| TestCommand {
            run,
            env: raw.env.iter().map(|(key, value)| (key.clone(), value.0.clone())).collect(),
            directory: raw.directory.clone().unwrap_or_default(),
        };
        let body = match (raw.discover.as_deref(), raw.run.clone(), raw.http.clone(), raw.steps.clone()) {
            (Some(form), run, None, None) => self.discover(&at, form, run, &raw, command)?,
            (None, ..) if raw.list.is_some() || raw.each.is_some() => {
                return Err(here("`list` and `each` belong to `discover`"));
            }
            (None, Some(run), None, None) if !run.is_empty() => TestBody::Command(command(run)),
            (None, None, Some(step), None) => {
                TestBody::Steps(vec![self.step(&[list, &at, "http"], 1, step)?])
            }
            (None, None, None, Some(steps)) if !steps.is_empty() => {
                let parse = |(number, step): (u32, RawStep)| {
                    self.step(&[list, &at, "steps", &(number - 1).to_string()], number, step)
                };
                TestBody::Steps((1..).zip(steps).map(parse).collect::<Result<_, _>>()?)
            }
            _ => {
                return Err(here("a test has just one of `run`, `http`, `steps`, or `discover`"));
            }
        };
        for (key, pattern) in [("failure", &raw.failure), ("degraded", &raw.degraded)] {
            if let Some(pattern) = pattern {
                regex::Regex::new(pattern).map_err(|e| self.error(&[list, &at, key], one_line_regex(&e)))?;
            }
        }
        let name = match (raw.name, &body) {
            (Some(name), _) => name,
            (None, TestBody::Discover { .. }) => format!("discovered-{}", index + 1),
            (None, _) => return Err(here("a test has a `name`")),
        };
        let input = raw.input.map(|input| self.input(&at, input, &body)).transpose()?;
        if let (None, TestBody::Command(command)) = (&input, &body)
            && command.names_input()
        {
            return Err(here("`{input}` stands for the file that `input` names, and there is none"));
        }
        Ok(TestCase {
            name,
            body,
            failure: raw.failure,
            degraded: raw.degraded,
            input,
            within: raw.within.unwrap_or(Duration::from_secs(60)),
        })
    }

    /// A test that stands for many: all run by one command, or listed by one and each run by another.
    fn discover(
        &self,
        at: &str,
        form: &str,
        run: Option<Vec<String>>,
        raw: &RawTest,
        command: impl Fn(Vec<String>) -> TestCommand,
    ) -> Result<TestBody, SpecError> {
        let here = |problem: &str| self.error(&["tests", at], problem);
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let (format, list, each) = match form {
            "junit" => (ReportFormat::Junit, None, None),
            "cargo" => {
                let list = words(&["cargo", "test", "--quiet", "--", "--list"]);
                let each = words(&["cargo", "test", "--quiet", "--", "--exact", "{case}"]);
                (ReportFormat::Cargo, Some(list), Some(each))
            }
            "pytest" => {
                let list = words(&["python3", "-m", "pytest", "--collect-only", "-q"]);
                let each = words(&["python3", "-m", "pytest", "-q", "{case}"]);
                (ReportFormat::Pytest, Some(list), Some(each))
            }
            "lines" => (ReportFormat::Lines, None, None),
            _ => return Err(here("`discover` is one of `junit`, `cargo`, `pytest`, `lines`")),
        };
        let has = |words: &[String], placeholders: &[&str]| {
            words.iter().any(|word| placeholders.iter().any(|blank| word.contains(blank)))
        };
        if let Some(run) = run {
            if format != ReportFormat::Junit || raw.list.is_some() || raw.each.is_some() {
                return Err(here("`run` is for `discover: junit` alone; others have `list` and `each`"));
            }
            if !has(&run, &["{out}"]) {
                return Err(here("`discover: junit` needs `{out}` in `run`, the file of the report"));
            }
            return Ok(TestBody::Discover { format, command: command(run), each: None, case: None });
        }
        let list = raw.list.clone().or(list).filter(|list| !list.is_empty());
        let each = raw.each.clone().or(each).filter(|each| !each.is_empty());
        let (Some(list), Some(each)) = (list, each) else {
            return Err(here("it needs `list`, which prints the cases, and `each`, which runs one of them"));
        };
        if format == ReportFormat::Junit && !has(&list, &["{out}"]) {
            return Err(here("`discover: junit` needs `{out}` in `list`, the file of the report"));
        }
        if !has(&each, &["{case}", "{name}"]) {
            return Err(here("`each` needs `{case}`, or `{class}` and `{name}`, to run just one"));
        }
        Ok(TestBody::Discover { format, command: command(list), each: Some(each), case: None })
    }

    /// Refuses steps that lead nowhere or have a blank that nothing fills.
    pub(super) fn steps_lead_somewhere(&self, application: &Application) -> Result<(), SpecError> {
        let tests = application.tests.iter().enumerate().map(|(index, test)| ("tests", index, test));
        let invariants =
            application.invariants.iter().enumerate().map(|(index, test)| ("invariants", index, test));
        for (list, index, test) in tests.chain(invariants) {
            let TestBody::Steps(steps) = &test.body else { continue };
            let mut saved: BTreeSet<&str> = Expansion::NAMES.into();
            for (number, step) in steps.iter().enumerate() {
                let (at, number) = (index.to_string(), number.to_string());
                let path = [list, &at, "steps", &number];
                if let Some(name) = step.placeholders().into_iter().find(|name| !saved.contains(name)) {
                    let hint = nearest_hint(name, saved.iter().copied());
                    let problem =
                        format!("no earlier step saves `{name}`; write `$${{{name}}}` to send it as it is");
                    return Err(SpecError { hint, ..self.error(&path, problem) });
                }
                saved.extend(step.save.keys().map(String::as_str));
                if let Some((host, port)) = host_and_port(&step.url)
                    && let Err(Unreachable { problem, hint }) = application.callee(host, port)
                {
                    return Err(SpecError { hint, ..self.error(&path, problem) });
                }
            }
        }
        Ok(())
    }

    fn input(&self, at: &str, raw: RawInput, body: &TestBody) -> Result<TestInput, SpecError> {
        let here = |problem: &str| self.error(&["tests", at, "input"], problem);
        let TestBody::Command(command) = body else {
            return Err(here("only a test with `run` has an `input`; steps are their own"));
        };
        if !command.names_input() {
            return Err(here("`{input}` in `run` or `env` says where the path of the file goes"));
        }
        let (file, format) = match raw {
            RawInput::File(file) => (file, None),
            RawInput::Long { file, format } => (file, format),
        };
        if file.starts_with('/') || file.split('/').any(|part| part == "..") {
            return Err(here(&format!("`{file}` must lie below the folder of the file")));
        }
        let format = format.unwrap_or_else(|| InputFormat::from_file_name(&file));
        Ok(TestInput { file, format, instead: None })
    }

    fn step(&self, path: &[&str], number: u32, raw: RawStep) -> Result<Step, SpecError> {
        let expect: Expectation = raw.expect.clone().unwrap_or_default();
        self.expectation(path, &expect, raw.grpc.is_some())?;
        let expect_error =
            |key: &[&str], problem: String| self.error(&[path, &["expect"], key].concat(), problem);
        if let Some((saved, absent)) = raw.save.values().find_map(|saved| {
            expect.absent.iter().find(|absent| is_below(saved, absent)).map(|absent| (saved, absent))
        }) {
            let problem = format!("`{absent}` is absent, but `save` takes a value from `{saved}`");
            return Err(expect_error(&["absent"], problem));
        }
        let body = match (raw.json.clone(), raw.body.clone()) {
            (Some(_), Some(_)) => return Err(self.error(path, "a step has `json` or `body`, not both")),
            (Some(json), None) => Some(StepBody::Json(json)),
            (None, body) => body.map(StepBody::Text),
        };
        let Request { method, url, name, grpc } = self.request(path, &raw)?;
        if raw.within.is_some_and(|within| within.is_zero()) {
            return Err(self.error(path, "`within` is longer than nothing"));
        }
        let headers = raw.headers.into_iter().chain(raw.metadata);
        Ok(Step {
            number,
            name,
            method: method.to_owned(),
            url,
            grpc,
            within: raw.within,
            headers: headers.map(|(key, value)| (key, value.0)).collect(),
            body,
            expect,
            save: raw.save.into_iter().collect(),
        })
    }

    /// What a step sends, and where.
    fn request(&self, path: &[&str], raw: &RawStep) -> Result<Request, SpecError> {
        let methods = [
            ("GET", &raw.get),
            ("POST", &raw.post),
            ("PUT", &raw.put),
            ("DELETE", &raw.delete),
            ("PATCH", &raw.patch),
            ("HEAD", &raw.head),
            (GRPC, &raw.grpc),
        ];
        let mut given = methods.into_iter().filter_map(|(method, url)| Some((method, url.as_ref()?)));
        let (Some((method, target)), None) = (given.next(), given.next()) else {
            let problem = "a step has one of `get`, `post`, `put`, `delete`, `patch`, `head`, `grpc`";
            return Err(self.error(path, problem));
        };
        if method == GRPC {
            return self.grpc_request(path, raw, target);
        }
        if !target.starts_with("http://") {
            return Err(self.error(path, format!("`{target}` must start with `http://`")));
        }
        if !raw.metadata.is_empty() {
            return Err(self.error(path, "an HTTP request has `headers`; `metadata` belongs to `grpc`"));
        }
        Ok(Request { method, url: target.clone(), name: format!("{method} {target}"), grpc: None })
    }

    fn grpc_request(&self, path: &[&str], raw: &RawStep, target: &str) -> Result<Request, SpecError> {
        let here = |problem: String| self.error(&[path, &["grpc"]].concat(), problem);
        let parts: Vec<&str> = target.split('/').collect();
        let [authority, service, method] = parts.as_slice() else {
            return Err(here(format!("`{target}` must be written `host:port/package.Service/Method`")));
        };
        if [authority, service, method].iter().any(|part| part.is_empty())
            || target.contains(char::is_whitespace)
        {
            return Err(here(format!("`{target}` must be written `host:port/package.Service/Method`")));
        }
        if [service, method].iter().any(|part| part.contains("${")) {
            return Err(here(
                "the method cannot contain `${name}`: it decides what the request is made of".into(),
            ));
        }
        if raw.body.is_some() {
            return Err(self.error(path, "a gRPC call has `json`, which becomes its message, and no `body`"));
        }
        if !raw.headers.is_empty() {
            return Err(self.error(path, "a gRPC call has `metadata` in place of `headers`"));
        }
        Ok(Request {
            method: "POST",
            url: format!("http://{target}"),
            name: format!("grpc {target}"),
            grpc: Some(GrpcCall { method: format!("{service}/{method}"), place: self.place(path) }),
        })
    }

    /// Refuses an expectation that no answer meets, or that belongs to another protocol.
    fn expectation(&self, path: &[&str], expect: &Expectation, is_grpc: bool) -> Result<(), SpecError> {
        let here = |key: &[&str], problem: String| self.error(&[path, &["expect"], key].concat(), problem);
        if let Some(key) = expect.misplaced(is_grpc) {
            return Err(here(
                &key,
                match is_grpc {
                    true => {
                        "a gRPC call is answered with a `code` and a `message`, not with a status and a body"
                            .into()
                    }
                    false => {
                        "`code` and `message` belong to `grpc`; HTTP is answered with `status` and `body`"
                            .into()
                    }
                },
            ));
        }
        if let Some((key, problem)) = expect.contradiction() {
            return Err(here(&key, problem));
        }
        for pattern in expect.patterns() {
            // What an earlier step saves is filled in later, as plain text.
            let pattern = fill_placeholders(pattern, |_| Some("x".into()));
            regex::Regex::new(&pattern).map_err(|e| here(&[], one_line_regex(&e)))?;
        }
        Ok(())
    }
}

/// Stands for the method of a step that calls gRPC.
const GRPC: &str = "grpc";

/// What a step sends, and where.
struct Request {
    method: &'static str,
    url: String,
    name: String,
    grpc: Option<GrpcCall>,
}

impl Step {
    /// The placeholders in it.
    pub(super) fn placeholders(&self) -> BTreeSet<&str> {
        let headers = self.headers.iter().flat_map(|(name, value)| [name, value]);
        let texts = headers.chain([&self.url]).chain(self.save.values()).map(String::as_str);
        let mut found: BTreeSet<&str> = texts.chain(self.expect.texts()).flat_map(placeholders).collect();
        match &self.body {
            Some(StepBody::Text(text)) => found.extend(placeholders(text)),
            Some(StepBody::Json(json)) => placeholders_in_json(json, &mut found),
            None => {}
        }
        found
    }
}

fn placeholders_in_json<'a>(json: &'a serde_json::Value, found: &mut BTreeSet<&'a str>) {
    match json {
        serde_json::Value::String(text) => found.extend(placeholders(text)),
        serde_json::Value::Array(items) => items.iter().for_each(|item| placeholders_in_json(item, found)),
        serde_json::Value::Object(map) => map.iter().for_each(|(key, value)| {
            found.extend(placeholders(key));
            placeholders_in_json(value, found);
        }),
        _ => {}
    }
}

/// Host and port of a URL, where they are known before anything runs.
fn host_and_port(url: &str) -> Option<(&str, u16)> {
    let rest = url.strip_prefix("http://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    if authority.contains("${") {
        return None;
    }
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => Some((host, port.parse().ok()?)),
        _ => Some((authority, 80)),
    }
}
