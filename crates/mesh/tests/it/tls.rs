//! TLS that the mesh ends, and TLS that it lets through.

use std::sync::Arc;

use faultscope_model::Protocol;
use faultscope_model::span::Wire;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::http2;
use crate::kit::{OK, PORT, Raw, World, service, soon, world};

/// A callee with a certificate of its own that answers over TLS.
async fn tls_callee(protocols: &[&str]) -> (std::net::SocketAddr, CertificateDer<'static>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(["stock".to_owned()]).unwrap().self_signed(&key).unwrap();
    let certificate = CertificateDer::from(certificate);
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    return http2::serve_http2(stream, http2::echo, Arc::default()).await;
                }
                let mut raw = Raw::new(stream);
                while raw.message().await.is_some() {
                    raw.send(OK).await;
                }
            });
        }
    });
    (address, certificate)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Connects as a caller that trusts just this authority.
async fn connect(
    world: &World,
    trusted: CertificateDer<'static>,
    protocols: &[&str],
) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted).unwrap();
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(world.address("web-1", "stock")).await.unwrap();
    let name = ServerName::try_from("stock").unwrap();
    soon(TlsConnector::from(Arc::new(config)).connect(name, stream)).await.unwrap()
}

fn authority(world: &World) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(world.mesh.authority_pem().as_bytes()).unwrap()
}

#[tokio::test]
async fn ended_tls_shows_requests() {
    let (address, _) = tls_callee(&["http/1.1"]).await;
    let world = world().service("stock", &[address]).protocol("stock", Protocol::Https).start();
    let mut raw = Raw::new(connect(&world, authority(&world), &["h2", "http/1.1"]).await);
    assert_eq!(raw.stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]), "as the callee would choose");
    assert_eq!(raw.get("/secret").await.text, OK);
    assert_eq!(raw.get("/secret").await.text, OK);
    let span = &world.spans(2).await[0];
    assert_eq!((span.wire, span.path.as_str(), span.status), (Wire::Http1, "/secret", Some(200)));
    // Within the process the test may leave TLS out.
    let mut plain = Raw::new(world.slot.connect(&service("stock"), PORT).unwrap());
    assert_eq!(plain.get("/").await.text, OK);
}

#[tokio::test]
async fn ended_tls_shows_streams() {
    let (address, _) = tls_callee(&["h2"]).await;
    let world = world().service("stock", &[address]).protocol("stock", Protocol::Https).start();
    let stream = connect(&world, authority(&world), &["h2", "http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut sender = http2::client(stream).await;
    assert_eq!(&http2::call(&mut sender, "/", "hidden").await.unwrap().1[..], b"hidden");
    assert_eq!(world.spans(1).await[0].wire, Wire::Http2);
}

#[tokio::test]
async fn passed_tls_shows_connections_only() {
    for protocol in [Protocol::Tls, Protocol::Detect] {
        let (address, certificate) = tls_callee(&[]).await;
        let world = world().service("stock", &[address]).protocol("stock", protocol).start();
        let mut raw = Raw::new(connect(&world, certificate, &[]).await);
        assert_eq!(raw.get("/secret").await.text, OK);
        drop(raw);
        let span = &world.spans(1).await[0];
        assert_eq!((span.wire, span.path.as_str(), span.status), (Wire::Tls, "", None));
        assert!(span.request_bytes > 100 && span.response_bytes > 100);
    }
}
