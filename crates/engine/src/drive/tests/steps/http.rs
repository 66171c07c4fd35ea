//! Sends a step as an HTTP/1.1 request.

use bytes::Bytes;
use faultscope_model::application::{Step, StepBody};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;

use super::check::{Answer, AnswerStatus};
use super::values::{Message, Values};
use super::{ANSWER_LIMIT, Client};

impl Client<'_> {
    pub(super) async fn send_http(&self, step: &Step, values: &Values<'_>) -> Result<Answer, Message> {
        let url = values.fill(&step.url);
        let uri: Uri = url
            .parse()
            .map_err(|e| values.message(|fill| format!("`{}` is not a URL: {e}", fill(&step.url))))?;
        let host = uri.host().unwrap_or_default();
        let port = uri.port_u16().unwrap_or(80);
        let (callee, own_port) = self.application.callee(host, port).map_err(|e| e.to_string())?;
        let authority = if port == 80 { host.to_owned() } else { format!("{host}:{port}") };
        let path = uri.path_and_query().map_or("/", |p| p.as_str()).to_owned();
        let mut request = Request::builder().method(step.method.as_str()).uri(path).header("host", authority);
        let body = match &step.body {
            None => String::new(),
            Some(StepBody::Text(text)) => values.fill(text),
            Some(StepBody::Json(json)) => {
                let has_type = |name: &String| values.fill(name).eq_ignore_ascii_case("content-type");
                if !step.headers.keys().any(has_type) {
                    request = request.header("content-type", "application/json");
                }
                values.fill_json(json).to_string()
            }
        };
        for (name, value) in &step.headers {
            request = request.header(values.fill(name), values.fill(value));
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(|e| e.to_string())?;
        let stream = self.mesh.connect(&callee, own_port).map_err(|e| e.to_string())?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
        // The connection lives as long as this step: both are polled here, and dropped together.
        let exchange = async {
            let response = sender.send_request(request).await.map_err(|e| explain(&e))?;
            let status = AnswerStatus::Http(response.status().as_u16());
            let headers = response
                .headers()
                .iter()
                .map(|(name, value)| {
                    (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
                })
                .collect();
            let body = Limited::new(response.into_body(), ANSWER_LIMIT).collect().await;
            let body = body.map_err(|e| format!("the answer broke off: {e}"))?.to_bytes();
            Ok(Answer { status, headers, body: String::from_utf8_lossy(&body).into_owned() })
        };
        tokio::pin!(connection, exchange);
        let answer: Result<Answer, String> = tokio::select! {
            answer = &mut exchange => answer,
            ended = &mut connection => match ended {
                Err(e) => Err(explain(&e)),
                Ok(()) => exchange.await,
            },
        };
        Ok(answer?)
    }
}

pub(super) fn explain(error: &hyper::Error) -> String {
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        return "the connection was closed before an answer".into();
    }
    let mut text = error.to_string();
    if let Some(cause) = std::error::Error::source(error) {
        text = format!("{text}: {cause}");
    }
    text
}
