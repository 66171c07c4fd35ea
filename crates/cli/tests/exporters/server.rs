//! The built tool as a server, on ports of its own.

use faultscope_testkit::{Faultscope, Output, Running, wait_until};
use serde_json::Value;

use crate::http::{self, Answer};

pub(crate) struct Server {
    pub(crate) tool: Faultscope,
    running: Running,
    /// Where Zipkin's and Jaeger's clients find it.
    pub(crate) zipkin: String,
    pub(crate) otlp: String,
    pub(crate) grpc: String,
}

impl Server {
    #[track_caller]
    pub(crate) fn start(more: &[&str]) -> Self {
        let tool = Faultscope::new(env!("CARGO_BIN_EXE_faultscope"));
        let any = "127.0.0.1:0";
        let words = ["serve", "--json", "--listen", any, "--otlp", any, "--grpc", any];
        let mut running = tool.start(words.iter().chain(more));
        // JSON is printed over several lines, or on one.
        let mut text = running.wait_for_line(r"^\{");
        while !text.trim_end().ends_with('}') {
            text += &running.wait_for_line("");
        }
        let listening: Value = serde_json::from_str(&text).unwrap();
        let address = |name: &str| listening[name].as_str().unwrap().to_owned();
        let (zipkin, otlp, grpc) = (address("zipkin"), address("otlp"), address("grpc"));
        Self { tool, running, zipkin, otlp, grpc }
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Answer {
        http::get(&self.zipkin, path)
    }

    /// Stores spans of Zipkin v2 JSON.
    #[track_caller]
    pub(crate) fn put(&self, spans: &Value) {
        let body = spans.to_string();
        let answer = http::post(&self.zipkin, "/api/v2/spans", &[], body.as_bytes());
        assert_eq!(answer.status, 202, "{}", answer.text());
    }

    /// One of the figures of `/metrics`.
    #[track_caller]
    pub(crate) fn figure(&self, name: &str) -> u64 {
        self.get("/metrics").json()[name].as_u64().unwrap_or_else(|| panic!("no figure {name}"))
    }

    /// Waits until a figure has a value.
    #[track_caller]
    pub(crate) fn wait_for(&self, name: &str, value: u64) {
        wait_until(&format!("{name} is {value}"), || self.figure(name) == value);
    }

    /// What the tool says of a trace.
    #[track_caller]
    pub(crate) fn shown(&self, trace: &str) -> Value {
        self.tool.json(["traces", "show", trace], 0)
    }

    /// Ends it as Ctrl-C does.
    #[track_caller]
    pub(crate) fn stop(self) -> (Faultscope, Output) {
        self.running.interrupt();
        (self.tool, self.running.wait().expect(0))
    }
}
