//! HTTP/2 and gRPC-like streams.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use faultscope_model::CallError;
use faultscope_model::rule::Effect;
use faultscope_model::span::{Parentage, Wire};
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use crate::kit::{World, soon, world};

type Handler = fn(Request<RecvStream>, SendResponse<Bytes>) -> futures_util::future::BoxFuture<'static, ()>;

/// A callee that speaks HTTP/2, and notes the paths and bodies it heard.
#[derive(Clone)]
pub(crate) struct Callee {
    pub(crate) address: SocketAddr,
    pub(crate) heads: Arc<Mutex<Vec<HeaderMap>>>,
}

pub(crate) async fn http2_callee(handler: Handler) -> Callee {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let callee = Callee { address: listener.local_addr().unwrap(), heads: Arc::default() };
    let heads = Arc::clone(&callee.heads);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve_http2(stream, handler, Arc::clone(&heads)));
        }
    });
    callee
}

pub(crate) async fn serve_http2<S>(stream: S, handler: Handler, heads: Arc<Mutex<Vec<HeaderMap>>>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, respond))) = connection.accept().await {
        heads.lock().unwrap().push(request.headers().clone());
        if request.uri().path() == "/die" {
            return;
        }
        tokio::spawn(handler(request, respond));
    }
}

/// Answers with the request's body and a gRPC status in the trailers.
pub(crate) fn echo(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> futures_util::future::BoxFuture<'static, ()> {
    Box::pin(async move {
        if request.uri().path() == "/silent" {
            return std::future::pending().await;
        }
        let mut body = request.into_body();
        let answer = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
        let mut send = respond.send_response(answer, false).unwrap();
        while let Some(piece) = body.data().await {
            let Ok(piece) = piece else { return };
            body.flow_control().release_capacity(piece.len()).unwrap();
            send.send_data(piece, false).unwrap();
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "5".parse().unwrap());
        trailers.insert("grpc-message", "no%20stock".parse().unwrap());
        if let Ok(Some(theirs)) = body.trailers().await {
            trailers.extend(theirs);
        }
        let _ = send.send_trailers(trailers);
    })
}

/// Answers with hints: a few before the answer, or without end.
fn hint(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> futures_util::future::BoxFuture<'static, ()> {
    Box::pin(async move {
        let is_endless = request.uri().path() == "/endless";
        for number in 0_u64.. {
            if number == 3 && !is_endless {
                break;
            }
            let hint = Response::builder().status(103).header("link", "</a>").body(()).unwrap();
            if respond.send_informational(hint).is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
        respond.send_response(Response::new(()), true).unwrap();
    })
}

#[tokio::test]
async fn interim_answers_are_passed_on_and_bounded() {
    let callee = http2_callee(hint).await;
    let world = world().service("stock", &[callee.address]).start();
    let mut sender = caller(&world).await;
    let (mut answering, _) = sender.send_request(post("/few"), true).unwrap();
    let mut hints = 0;
    while let Some(hint) = soon(std::future::poll_fn(|cx| answering.poll_informational(cx))).await {
        assert_eq!(hint.unwrap().headers()["link"], "</a>");
        hints += 1;
    }
    assert_eq!((hints, soon(answering).await.unwrap().status().as_u16()), (3, 200));
    let (answering, _) = sender.send_request(post("/endless"), true).unwrap();
    assert_eq!(soon(answering).await.unwrap_err().reason(), Some(Reason::INTERNAL_ERROR));
    let spans = world.spans(2).await;
    assert_eq!(spans[1].error, Some(CallError::EndlessInterimAnswers));
}

pub(crate) async fn client<S>(stream: S) -> SendRequest<Bytes>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    soon(sender.ready()).await.unwrap()
}

pub(crate) async fn caller(world: &World) -> SendRequest<Bytes> {
    client(TcpStream::connect(world.address("web-1", "stock")).await.unwrap()).await
}

pub(crate) fn post(path: &str) -> Request<()> {
    let request = Request::builder().method("POST").uri(format!("http://stock{path}"));
    request.header("content-type", "application/grpc").header("te", "trailers").body(()).unwrap()
}

/// One call with a body; gives status, body and trailers.
pub(crate) async fn call(
    sender: &mut SendRequest<Bytes>,
    path: &str,
    body: &'static str,
) -> Result<(u16, Bytes, HeaderMap), h2::Error> {
    soon(async {
        let (answer, mut send) = sender.send_request(post(path), false)?;
        send.send_data(Bytes::from_static(body.as_bytes()), true)?;
        let answer = answer.await?;
        let status = answer.status().as_u16();
        let headers = answer.headers().clone();
        let mut body = answer.into_body();
        let mut whole = Vec::new();
        while let Some(piece) = body.data().await {
            let piece = piece?;
            body.flow_control().release_capacity(piece.len())?;
            whole.extend_from_slice(&piece);
        }
        Ok((status, Bytes::from(whole), body.trailers().await?.unwrap_or(headers)))
    })
    .await
}

#[tokio::test]
async fn unary_calls_with_trailers() {
    let callee = http2_callee(echo).await;
    let world = world().service("stock", &[callee.address]).start();
    let mut sender = caller(&world).await;
    let (status, body, trailers) = call(&mut sender, "/pkg.Stock/Get?x=1", "ask").await.unwrap();
    assert_eq!((status, &body[..], trailers["grpc-status"].to_str().unwrap()), (200, &b"ask"[..], "5"));
    let span = world.spans(1).await.remove(0);
    assert_eq!((span.wire, span.status, span.grpc_status), (Wire::Http2, Some(200), Some(5)));
    assert_eq!((span.method.as_str(), span.path.as_str()), ("POST", "/pkg.Stock/Get?x=1"));
    assert_eq!((span.request_bytes, span.response_bytes, span.parentage), (3, 3, Parentage::Root));
    assert!(span.failed() && span.error.is_none());
    assert_eq!(
        (span.describe_status(), span.describe_ending()),
        ("NOT_FOUND".into(), "NOT_FOUND: no stock".into())
    );
    let heads = callee.heads.lock().unwrap();
    assert_eq!(heads[0]["te"], "trailers");
    assert_eq!(heads[0]["traceparent"], format!("00-{}-{}-01", span.trace, span.id).as_str());
}

#[tokio::test]
async fn streams_flow_both_ways_at_once() {
    let callee = http2_callee(echo).await;
    let world = world().service("stock", &[callee.address]).start();
    let mut sender = caller(&world).await;
    let (answer, mut send) = sender.send_request(post("/chat"), false).unwrap();
    send.send_data(Bytes::from_static(b"one"), false).unwrap();
    let mut body = soon(answer).await.unwrap().into_body();
    assert_eq!(soon(body.data()).await.unwrap().unwrap(), "one", "answered while the request is open");
    send.send_data(Bytes::from_static(b"two"), false).unwrap();
    assert_eq!(soon(body.data()).await.unwrap().unwrap(), "two");
    let mut trailers = HeaderMap::new();
    trailers.insert("x-end", "1".parse().unwrap());
    send.send_trailers(trailers).unwrap();
    assert!(soon(body.data()).await.is_none());
    assert_eq!(soon(body.trailers()).await.unwrap().unwrap()["x-end"], "1", "trailers pass both ways");
}

#[tokio::test]
async fn large_bodies_are_held_back_by_their_reader() {
    let callee = http2_callee(echo).await;
    let world = world().service("stock", &[callee.address]).start();
    let mut sender = caller(&world).await;
    let (answer, mut send) = sender.send_request(post("/large"), false).unwrap();
    let mut answer = soon(answer).await.unwrap().into_body();
    let size = 4_000_000;
    let writer = tokio::spawn(async move {
        let mut left = size;
        while left > 0 {
            send.reserve_capacity(left);
            let room = std::future::poll_fn(|cx| send.poll_capacity(cx)).await.unwrap().unwrap();
            send.send_data(Bytes::from(vec![b'x'; room.min(left)]), room >= left).unwrap();
            left -= room.min(left);
        }
    });
    let mut read = 0;
    while let Some(piece) = soon(answer.data()).await {
        let piece = piece.unwrap();
        read += piece.len();
        answer.flow_control().release_capacity(piece.len()).unwrap();
    }
    writer.await.unwrap();
    assert_eq!(read, size);
    assert_eq!(world.spans(1).await[0].response_bytes, size as u64);
}

#[tokio::test]
async fn resets_keep_their_reason() {
    fn resetting(
        _: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
    ) -> futures_util::future::BoxFuture<'static, ()> {
        Box::pin(async move { respond.send_reset(Reason::ENHANCE_YOUR_CALM) })
    }
    let callee = http2_callee(resetting).await;
    let world = world().service("stock", &[callee.address]).start();
    let mut sender = caller(&world).await;
    let error = call(&mut sender, "/", "x").await.unwrap_err();
    assert_eq!((error.is_reset(), error.reason()), (true, Some(Reason::ENHANCE_YOUR_CALM)));
    assert_eq!(world.spans(1).await[0].error, Some(CallError::ResetByCallee));
}

#[tokio::test]
async fn a_caller_that_cancels_takes_the_callee_along() {
    let callee = http2_callee(echo).await;
    let world = world().service("stock", &[callee.address]).start();
    let mut sender = caller(&world).await;
    let (_answer, mut send) = sender.send_request(post("/silent"), false).unwrap();
    while callee.heads.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    send.send_reset(Reason::CANCEL);
    assert_eq!(world.spans(1).await[0].error, Some(CallError::CallerGone));
    assert_eq!(&call(&mut sender, "/", "next").await.unwrap().1[..], b"next", "only the stream has ended");
}

#[tokio::test]
async fn a_lost_callee_is_a_lost_connection() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = world().service("stock", &[free]).start();
    let error = call(&mut caller(&refused).await, "/", "x").await.unwrap_err();
    assert!(error.is_io(), "{error:?}");
    assert_eq!(refused.spans(1).await[0].error, Some(CallError::ConnectRefused));

    let callee = http2_callee(echo).await;
    let dying = world().service("stock", &[callee.address]).start();
    let mut sender = caller(&dying).await;
    assert!(call(&mut sender, "/die", "x").await.is_err());
    assert!(dying.spans(1).await[0].error.is_some());
    // The next connection finds the callee again.
    assert!(call(&mut caller(&dying).await, "/", "x").await.is_ok());
}

#[tokio::test]
async fn rules_answer_in_the_words_of_grpc() {
    let callee = http2_callee(echo).await;
    let effect = Effect::Abort { status: 503, grpc_status: Some(14) };
    let world = world().service("stock", &[callee.address]).rule(effect).start();
    let (status, body, headers) = call(&mut caller(&world).await, "/", "x").await.unwrap();
    assert_eq!((status, body.len(), headers["grpc-status"].to_str().unwrap()), (200, 0, "14"));
    assert_eq!(world.spans(1).await[0].grpc_status, Some(14));
    assert!(callee.heads.lock().unwrap().is_empty());
}

#[tokio::test]
async fn rules_reset_streams_only() {
    for (effect, n_heard) in [(Effect::Drop, 0), (Effect::LostAnswer, 1)] {
        let callee = http2_callee(echo).await;
        let world = world().service("stock", &[callee.address]).rule(effect).start();
        let mut sender = caller(&world).await;
        for count in 1..=2 {
            let error = call(&mut sender, "/", "x").await.unwrap_err();
            assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
            world.spans(count).await;
        }
        assert_eq!(callee.heads.lock().unwrap().len(), n_heard * 2);
    }
}

#[tokio::test]
async fn rules_on_answers() {
    let callee = http2_callee(echo).await;
    let of = |effect| world().service("stock", &[callee.address]).rule(effect).start();
    let duplicated = of(Effect::Duplicate);
    assert_eq!(&call(&mut caller(&duplicated).await, "/", "twice").await.unwrap().1[..], b"twice");
    let spans = duplicated.spans(2).await;
    assert!(spans.iter().all(|span| span.request_bytes == 5 && span.grpc_status == Some(5)));
    assert_ne!(spans[0].id, spans[1].id);

    let truncated = of(Effect::Truncate { after: 2 });
    assert_eq!(&call(&mut caller(&truncated).await, "/", "0123").await.unwrap().1[..], b"01");

    let restarted = of(Effect::RestartAfter);
    assert_eq!(&call(&mut caller(&restarted).await, "/", "x").await.unwrap().1[..], b"x");
    assert_eq!(restarted.platform.restarted.lock().unwrap().len(), 1);
    let hits = restarted.slot.reports().rules[0].clone();
    assert_eq!((hits.matched, hits.applied), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn delays_and_links() {
    let callee = http2_callee(echo).await;
    let second = Duration::from_secs(1);
    let world = world()
        .service("none", &[])
        .service("stock", &[callee.address])
        .rule(Effect::Delay { by: second, jitter: Duration::ZERO })
        .rule(Effect::Throttle { bytes_per_second: 4 })
        .start();
    let began = tokio::time::Instant::now();
    call(&mut caller(&world).await, "/", "12345678").await.unwrap();
    assert!((2900..3500).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
}
