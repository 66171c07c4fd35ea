//! Answers on HTTP/1 in the place of a service that is not there.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use faultscope_model::CallError;
use faultscope_model::span::Wire;

use super::request::Request;
use super::{Connection, Next, head};
use crate::call::Part;
use crate::mocks::{MAX_REQUEST, MockAnswer, MockReply, MockRequest, Mocks};
use crate::rules::Headers;

impl Connection {
    /// Reads a request to its end and gives the reply of the mocks.
    pub(super) async fn answer_mocked(&mut self, mut request: Request, mocks: &Arc<dyn Mocks>) -> Next {
        if request.expects_continue {
            self.to_down.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            if !self.write_down().await {
                request.call.finish(Some(CallError::CallerGone));
                return Next::Reset;
            }
        }
        let body = match self.read_body(&mut request).await {
            Ok(body) => body,
            Err(error) => {
                request.call.finish(Some(error));
                return Next::Reset;
            }
        };
        let words = request.call.recording.read(|span| (span.method.clone(), span.path.clone()));
        let (method, path) = words.unwrap_or_default();
        let reply = mocks.reply(&MockRequest {
            trace: request.call.trace,
            callee: &request.call.route.callee,
            wire: Wire::Http1,
            is_grpc: false,
            is_export: request.call.part == Part::Export,
            method: &method,
            path: &path,
            body: &body,
        });
        let (answer, error) = match reply {
            MockReply::Answer(answer) => (answer, None),
            MockReply::Miss(answer) => (answer, Some(CallError::MockMissed)),
            MockReply::Reset => {
                request.call.finish(Some(CallError::ResetByCallee));
                return Next::Reset;
            }
        };
        if !answer.after.is_zero() {
            tokio::time::sleep(answer.after).await;
        }
        self.write_mocked(&mut request, &answer);
        if !self.write_down().await {
            request.call.finish(Some(CallError::CallerGone));
            return Next::Reset;
        }
        request.call.finish(error);
        if request.close { Next::Close } else { Next::Again }
    }

    async fn read_body(&mut self, request: &mut Request) -> Result<BytesMut, CallError> {
        let mut body = BytesMut::new();
        while !request.framing.is_done() {
            if self.down.input.is_empty() {
                match poll_fn(|cx| self.down.stream.poll_fill(cx, &mut self.down.input)).await {
                    Ok(count) if count > 0 => {}
                    _ => return Err(CallError::CallerGone),
                }
            }
            let piece = request.framing.take(&self.down.input).map_err(|_| CallError::MalformedRequest)?;
            let payload = &self.down.input[piece.payload];
            request.call.sent(payload);
            let room = MAX_REQUEST.saturating_sub(body.len()).min(payload.len());
            body.extend_from_slice(&payload[..room]);
            self.down.input.advance(piece.raw);
        }
        Ok(body)
    }

    fn write_mocked(&mut self, request: &mut Request, answer: &MockAnswer) {
        let call = &mut request.call;
        let headers: Vec<_> = answer
            .own_headers()
            .map(|(name, value)| httparse::Header { name, value: value.as_bytes() })
            .collect();
        call.first_byte();
        call.answer_is(Some(answer.status), None);
        call.response_headers(Headers::Http1(&headers));
        let has_body = !(request.asked.head_only || matches!(answer.status, 100..200 | 204 | 304));
        let length = answer.body.len().to_string();
        let declared = if has_body { Some(length.as_str()) } else { answer.declared_length() };
        head::write_head(&mut self.to_down, answer.status, &headers, declared, request.close);
        if has_body {
            call.received(&answer.body);
            self.to_down.extend_from_slice(&answer.body);
        }
    }

    /// Writes what waits for the caller; false if it is gone.
    async fn write_down(&mut self) -> bool {
        while !self.to_down.is_empty() {
            let written = poll_fn(|cx| self.down.stream.poll_push(cx, &self.to_down)).await;
            match written {
                Ok(written) if written > 0 => self.to_down.advance(written),
                _ => return false,
            }
        }
        true
    }
}
