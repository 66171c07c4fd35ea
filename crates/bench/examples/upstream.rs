//! A small HTTP/1.1 server to measure the mesh against: `upstream --listen 127.0.0.1:9000 --size 100`.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let option = |name: &str| std::env::args().skip_while(|argument| argument != name).nth(1);
    let listen = option("--listen").unwrap_or_else(|| "127.0.0.1:9000".to_owned());
    let size = option("--size").and_then(|size| size.parse().ok()).unwrap_or(100);
    let body = Bytes::from(vec![b'x'; size]);
    let listener = tokio::net::TcpListener::bind(listen).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let body = body.clone();
        let answer = move |_request: Request<hyper::body::Incoming>| {
            let body = body.clone();
            async move { Ok::<_, Infallible>(Response::new(Full::new(body))) }
        };
        tokio::spawn(
            hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service_fn(answer)),
        );
    }
}
