//! Runs the steps of a test through the mesh, as the caller `test`.

mod check;
mod grpc;
mod grpc_call;
mod http;
mod values;

use faultscope_mesh::MeshSlot;
use faultscope_model::application::{Expansion, Step};
use faultscope_model::grpc::GrpcCode;
use faultscope_model::{Application, SlotId};
use faultscope_platform::Platform;
use faultscope_store::Campaign;
use serde_json::Value;

use super::STEP_WITHIN;
use crate::session::now_us;
use check::{Answer, AnswerStatus, check_answer, check_status, text_of};
use values::{Message, Values};

/// The largest response that is read.
const ANSWER_LIMIT: usize = 4 << 20;
/// The most characters of a response that are kept.
const SHOWN: usize = 2_000;

/// Sends steps through the slot's mesh.
pub(super) struct Client<'a> {
    pub(super) application: &'a Application,
    pub(super) mesh: &'a MeshSlot,
    pub(super) expansion: &'a Expansion,
    pub(super) platform: &'a dyn Platform,
    pub(super) slot: SlotId,
    /// Knows what messages of gRPC are made of, for the whole campaign: a trial in which a service is broken must fail
    /// by its call, not because its messages are unknown.
    pub(super) store: &'a Campaign,
}

/// A step whose response was not as expected.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Broken {
    /// From 1.
    pub(super) number: u32,
    /// What was wrong, for people.
    pub(super) message: String,
    /// The same with `${name}` in place of saved values.
    pub(super) unfilled: String,
    /// The body of the response, shortened.
    pub(super) answer: String,
    /// The status of the response, if that was wrong.
    pub(super) status: Option<u16>,
    /// The code of gRPC, if that was wrong.
    pub(super) code: Option<GrpcCode>,
    /// When it was sent, in microseconds since 1970.
    pub(super) since_us: u64,
}

impl Broken {
    fn new(step: &Step, problem: Message, values: &Values<'_>, since_us: u64) -> Self {
        // Named as in the file: a reduced input must not look like another failure.
        let name = values.message(|fill| fill(&step.name));
        Self {
            number: step.number,
            message: format!("{}: {}", name.shown, problem.shown),
            unfilled: format!("{}: {}", name.unfilled, problem.unfilled),
            answer: String::new(),
            status: None,
            code: None,
            since_us,
        }
    }
}

impl Client<'_> {
    /// Runs all steps; returns the last response.
    pub(super) async fn run(&self, steps: &[Step]) -> Result<String, Broken> {
        let mut values = Values::new(self.expansion);
        let mut last = String::new();
        for step in steps {
            let since_us = now_us();
            let broken = |problem: Message| Broken::new(step, problem, &values, since_us);
            let answer = self.send(step, &values).await.map_err(broken)?;
            last = answer.body.chars().take(SHOWN).collect();
            if let Some(problem) = check_status(&step.expect, &answer.status) {
                let (status, code) = match answer.status {
                    AnswerStatus::Http(status) => (Some(status), None),
                    AnswerStatus::Grpc { code, .. } => (None, Some(code)),
                };
                return Err(Broken { answer: last, status, code, ..broken(problem.into()) });
            }
            if let Err(problem) = check_answer(&step.expect, &answer, &values) {
                return Err(Broken { answer: last, ..broken(problem) });
            }
            let json: Option<Value> = serde_json::from_str(&answer.body).ok();
            let mut saved = Vec::new();
            for (key, path) in &step.save {
                let Some(found) = json.as_ref().and_then(|json| values.look_up(json, path, answer.keys()))
                else {
                    let problem =
                        values.message(|fill| format!("the answer has no `{}` to save", fill(path)));
                    return Err(Broken { answer: last, ..broken(problem) });
                };
                saved.push((key, text_of(found)));
            }
            saved.into_iter().for_each(|(key, value)| values.save(key, value));
        }
        Ok(last)
    }

    async fn send(&self, step: &Step, values: &Values<'_>) -> Result<Answer, Message> {
        if let Some(call) = &step.grpc {
            return self.send_grpc(step, call, values).await;
        }
        let within = step.within.unwrap_or(STEP_WITHIN);
        let sent = tokio::time::timeout(within, self.send_http(step, values)).await;
        sent.unwrap_or_else(|_| Err("no answer in time".to_owned().into()))
    }
}
