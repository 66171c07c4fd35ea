//! Sends a step as a call of gRPC.

use std::io;
use std::time::Duration;

use faultscope_model::application::{GrpcCall, Step, encode_messages};
use faultscope_model::grpc::{GrpcCode, Method, Reflection, split_frames};
use faultscope_model::units::show_duration;
use faultscope_model::{InstanceId, ServiceName};
use hyper::Uri;
use serde_json::Value;

use super::super::STEP_WITHIN;
use super::Client;
use super::check::{Answer, AnswerStatus};
use super::grpc_call::{GrpcAnswer, GrpcRequest, send_call};
use super::values::{Message, Values};
use crate::reflection::describe;

const DEADLINE_EXCEEDED: GrpcCode = GrpcCode(4);
/// How long a service may take to describe itself; one that is up answers within milliseconds.
const ASK_WITHIN: Duration = Duration::from_secs(5);

impl Client<'_> {
    pub(super) async fn send_grpc(
        &self,
        step: &Step,
        call: &GrpcCall,
        values: &Values<'_>,
    ) -> Result<Answer, Message> {
        let url = values.fill(&step.url);
        let uri: Uri = url
            .parse()
            .map_err(|e| values.message(|fill| format!("`{}` is not a URL: {e}", fill(&step.url))))?;
        let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
        let host = uri.host().unwrap_or_default();
        let (callee, port) =
            self.application.callee(host, uri.port_u16().unwrap_or(80)).map_err(|e| e.to_string())?;
        let method = self.find_method(&callee, port, &call.method).await?;
        let messages = encode_messages(&method, step.body.as_ref(), |json| values.fill_json(json))?;
        let timeout = step.within.unwrap_or(STEP_WITHIN);
        let request = GrpcRequest {
            authority,
            path: uri.path(),
            metadata: step
                .headers
                .iter()
                .map(|(name, value)| (values.fill(name), values.fill(value)))
                .collect(),
            timeout,
            messages,
        };
        let stream = self.mesh.connect(&callee, port).map_err(|e| e.to_string())?;
        match tokio::time::timeout(timeout, send_call(stream, request)).await {
            Ok(answer) => Ok(read_answer(&method, answer?)?),
            // As every client of gRPC says it, whether or not the callee has noticed.
            Err(_) => Ok(Answer {
                status: AnswerStatus::Grpc {
                    code: DEADLINE_EXCEEDED,
                    message: format!("no answer within {}", show_duration(timeout)),
                },
                headers: Default::default(),
                body: String::new(),
            }),
        }
    }

    /// What a method takes and returns, by `protos` or else by the service itself.
    async fn find_method(&self, callee: &ServiceName, port: u16, name: &str) -> Result<Method, String> {
        if let Some(method) = self.store.descriptors().method(name) {
            return Ok(method);
        }
        // Services at ports that are declared as gRPC were asked when the trial began.
        let service = name.rsplit_once('/').map_or(name, |(service, _)| service);
        let asking = async {
            let instance = InstanceId::new(callee.clone(), 1);
            let stream = self.platform.dial(self.slot, &instance, port).await?;
            describe(stream, callee, Reflection::of_service(service)).await
        };
        let asked = tokio::time::timeout(ASK_WITHIN, asking).await;
        let asked = asked.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let descriptors = asked.map_err(|problem| {
            format!(
                "the messages of `{name}` are unknown: name its .proto file under `protos`, or have {callee} \
                 serve gRPC reflection ({problem})"
            )
        })?;
        let found = descriptors.method(name);
        self.store.describe_messages(descriptors).map_err(|e| e.to_string())?;
        found.ok_or_else(|| format!("{callee} has no method `{name}`"))
    }
}

fn read_answer(method: &Method, answer: GrpcAnswer) -> Result<Answer, String> {
    let GrpcAnswer { code, message, metadata, body } = answer;
    let damaged = || "the answer cannot be read as gRPC".to_owned();
    let frames =
        split_frames(&body, metadata.get("grpc-encoding").map(String::as_str)).ok_or_else(damaged)?;
    if frames.is_cut {
        return Err("the answer broke off".into());
    }
    let mut messages = Vec::new();
    for frame in frames.frames {
        messages.push(method.output.decode_with_defaults(&frame.message).map_err(|e| e.to_string())?);
    }
    let body = match (method.server_streaming, messages.pop()) {
        (true, last) => Value::Array(messages.into_iter().chain(last).collect()).to_string(),
        (false, Some(only)) => only.to_string(),
        (false, None) => String::new(),
    };
    Ok(Answer { status: AnswerStatus::Grpc { code, message }, headers: metadata, body })
}
