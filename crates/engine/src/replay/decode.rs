//! Makes answers comparable: messages of gRPC as JSON, compressed bodies as what they hold.

use std::io::Read;

use faultscope_model::grpc::{BodySide, Descriptors, decode_body};
use faultscope_model::recording::{Answer, RecordedRequest};
use faultscope_model::span::{Extent, Parentage, Payload, Span, Wire};
use faultscope_model::{InstanceId, NodeId};
use flate2::read::{MultiGzDecoder, ZlibDecoder};

/// The most bytes that a compressed body may become.
const MAX_INFLATED: u64 = 16 << 20;

/// The answer with a body that can be compared.
pub(super) fn readable(request: &RecordedRequest, answer: &Answer, descriptors: &Descriptors) -> Answer {
    let mut answer = answer.clone();
    if request.wire == Wire::Http2 && answer.decoded.is_none() {
        answer.decoded = decode_message(request, &answer, descriptors);
    }
    if answer.is_whole()
        && let Some(body) = inflated(&answer)
    {
        answer.bytes = body.len() as u64;
        answer.body = body;
    }
    answer
}

fn decode_message(request: &RecordedRequest, answer: &Answer, descriptors: &Descriptors) -> Option<String> {
    let call = Span {
        trace: request.trace,
        id: request.span,
        parent: None,
        parentage: Parentage::Root,
        caller: InstanceId::test(),
        caller_node: NodeId::default(),
        callee: request.callee.clone(),
        callee_instance: None,
        callee_node: NodeId::default(),
        port: request.port,
        wire: request.wire,
        method: request.method.clone(),
        path: request.path.clone(),
        start_us: 0,
        duration_us: 0,
        first_byte_us: None,
        request_bytes: request.body.len() as u64,
        response_bytes: answer.bytes,
        status: answer.status,
        grpc_status: answer.grpc_status,
        error: None,
        rules: Vec::new(),
        target: None,
        extent: Extent::default(),
        payload: Some(Box::new(Payload {
            request_headers: request.headers.clone(),
            response_headers: answer.headers.clone(),
            request_body: request.body.clone(),
            response_body: answer.body.clone(),
            decoded: None,
        })),
    };
    decode_body(&call, BodySide::Response, descriptors).map(|body| body.to_string())
}

/// What a compressed body holds; none if it is not compressed, or cannot be read.
fn inflated(answer: &Answer) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    let read = match answer.header("content-encoding")?.trim().to_ascii_lowercase().as_str() {
        "gzip" | "x-gzip" => MultiGzDecoder::new(&answer.body[..]).take(MAX_INFLATED).read_to_end(&mut body),
        "deflate" => ZlibDecoder::new(&answer.body[..]).take(MAX_INFLATED).read_to_end(&mut body),
        _ => return None,
    };
    read.is_ok_and(|length| (length as u64) < MAX_INFLATED).then_some(body)
}
