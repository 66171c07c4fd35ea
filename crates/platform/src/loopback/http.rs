//! HTTP on the side of the service.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;

use super::handlers::{Call, Instance, Reply};

type Handler = Arc<dyn Fn(Call) -> BoxFuture<'static, Reply> + Send + Sync>;

/// Serves one connection to its end.
pub(super) async fn serve(instance: Instance, stream: TcpStream, handler: Handler) {
    let executor = WithinInstance(instance.clone());
    let answer = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (instance, handler) = (instance.clone(), Arc::clone(&handler));
        async move {
            let (head, body) = request.into_parts();
            // A caller that breaks off in its body has a request that nobody handles.
            let body = body.collect().await?.to_bytes();
            let reply = handler(Call { request: Request::from_parts(head, body), instance }).await;
            Ok::<Response<Full<Bytes>>, hyper::Error>(reply.0.map(Full::new))
        }
    });
    let _ = auto::Builder::new(executor).serve_connection(TokioIo::new(stream), answer).await;
}

/// Runs the streams of HTTP/2 as tasks that freeze and end with their instance.
#[derive(Clone)]
struct WithinInstance(Instance);

impl<Work: Future + Send + 'static> hyper::rt::Executor<Work> for WithinInstance {
    fn execute(&self, work: Work) {
        self.0.life.spawn(async move {
            work.await;
        });
    }
}
