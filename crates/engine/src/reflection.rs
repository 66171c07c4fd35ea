//! Asks services of gRPC to describe their messages, where no file of the application does.
//!
//! The instance is dialled by the platform, past the mesh, so that a question is never a recorded call. Each service is
//! asked once in a campaign. Nothing depends on the answer: without it messages are shown by the numbers of their fields.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use faultscope_model::application::Service;
use faultscope_model::grpc::{Descriptors, REFLECTION_PATHS, Reflection, frame_message, split_frames};
use faultscope_model::{InstanceId, Protocol, ServiceName};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, TE};
use hyper::{Method, Request, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::session::{Lease, Session};

/// How long all questions of a trial may take together. A service that is up answers within milliseconds.
const ASK_WITHIN: Duration = Duration::from_secs(1);
/// The largest answer to one question.
const ANSWER_LIMIT: usize = 16 << 20;

/// Which services of a campaign were asked, and which called services nobody has described.
#[derive(Debug, Default)]
pub(crate) struct AskedServices {
    asked: Mutex<BTreeSet<Question>>,
}

/// One question, which is asked once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Question {
    /// All that a service of the application offers at a port.
    Port(ServiceName, u16),
    /// A service of gRPC, by its full name.
    Name(String),
}

/// A called service of gRPC, and an instance that answers for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CalledService {
    /// The full name, such as `shop.Orders`.
    pub(crate) name: String,
    pub(crate) instance: InstanceId,
    pub(crate) port: u16,
}

impl AskedServices {
    /// Whether this is the first time.
    fn begin(&self, question: Question) -> bool {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(question)
    }
}

impl Session {
    /// Asks the instances of a new deployment that offer gRPC by declaration, before the first call: then secret fields
    /// are known by name when the first call is written.
    pub(crate) async fn ask_declared_services(&self, lease: &Lease) {
        let mut questions = Vec::new();
        for (name, service) in &self.application.services {
            for port in grpc_ports(service) {
                if self.asked.begin(Question::Port(name.clone(), port)) {
                    questions.push((InstanceId::new(name.clone(), 1), port, Reflection::of_all_services()));
                }
            }
        }
        self.ask(lease, questions).await;
    }

    /// Asks for the services that were called in a trial and that nobody has described.
    pub(crate) async fn ask_called_services(&self, lease: &Lease) {
        let known = self.campaign.descriptors();
        let mut questions = Vec::new();
        for called in lease.recorder.called_grpc_services() {
            if !known.has_service(&called.name) && self.asked.begin(Question::Name(called.name.clone())) {
                questions.push((called.instance, called.port, Reflection::of_service(&called.name)));
            }
        }
        self.ask(lease, questions).await;
    }

    async fn ask(&self, lease: &Lease, questions: Vec<(InstanceId, u16, Reflection)>) {
        if questions.is_empty() {
            return;
        }
        let mut learned = Descriptors::default();
        let asking = async {
            let answers = questions.into_iter().map(|(instance, port, reflection)| async move {
                let stream = self.platform.dial(lease.id(), &instance, port).await?;
                describe(stream, &instance.service, reflection).await
            });
            let mut answers: FuturesUnordered<_> = answers.collect();
            while let Some(answer) = answers.next().await {
                match answer {
                    Ok(descriptors) => learned.merge(descriptors),
                    Err(error) => tracing::debug!(%error, "a service does not describe itself"),
                }
            }
        };
        // What came in time is used.
        let _ = tokio::time::timeout(ASK_WITHIN, asking).await;
        if let Err(error) = self.campaign.describe_messages(learned) {
            tracing::warn!(%error, "the description of messages cannot be stored");
        }
    }
}

/// Ports that speak gRPC without TLS, by declaration.
fn grpc_ports(service: &Service) -> impl Iterator<Item = u16> + '_ {
    service.ports.iter().filter(|port| port.protocol == Protocol::Grpc).map(|port| port.port)
}

/// Has a service describe itself over a connection.
pub(crate) async fn describe(
    stream: TcpStream,
    authority: &ServiceName,
    mut reflection: Reflection,
) -> io::Result<Descriptors> {
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let exchange = async {
        let mut path = REFLECTION_PATHS[0];
        while let Some(request) = reflection.next_request() {
            let mut answer = ask_once(&mut sender, authority, path, &request).await?;
            if answer.is_none() && path == REFLECTION_PATHS[0] {
                path = REFLECTION_PATHS[1];
                answer = ask_once(&mut sender, authority, path, &request).await?;
            }
            let Some(answer) = answer else {
                return Err(io::Error::other("it offers no reflection"));
            };
            for frame in split_frames(&answer, None).map(|frames| frames.frames).unwrap_or_default() {
                reflection.read_answer(&frame.message);
            }
        }
        reflection.finish().map_err(io::Error::other)
    };
    // The connection lives as long as the exchange: both are polled here, and dropped together.
    tokio::pin!(connection, exchange);
    tokio::select! {
        learned = &mut exchange => learned,
        ended = &mut connection => {
            ended.map_err(io::Error::other)?;
            exchange.await
        }
    }
}

/// The frames that answer one question; none if the service does not offer this version of reflection.
async fn ask_once(
    sender: &mut SendRequest<Full<Bytes>>,
    authority: &ServiceName,
    path: &str,
    message: &[u8],
) -> io::Result<Option<Bytes>> {
    let request = Request::builder()
        .method(Method::POST)
        .version(Version::HTTP_2)
        .uri(format!("http://{authority}{path}"))
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .body(Full::new(Bytes::from(frame_message(message))))
        .map_err(io::Error::other)?;
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    // A service that does not know the method says so in its headers, without a body.
    let is_refused = response.headers().get("grpc-status").is_some_and(|status| status != "0");
    if !response.status().is_success() || is_refused {
        return Ok(None);
    }
    let body = Limited::new(response.into_body(), ANSWER_LIMIT).collect().await.map_err(io::Error::other)?;
    let is_refused = body.trailers().and_then(|trailers| trailers.get("grpc-status"));
    let is_refused = is_refused.is_some_and(|status| status != "0");
    let bytes = body.to_bytes();
    Ok((!is_refused || !bytes.is_empty()).then_some(bytes))
}
