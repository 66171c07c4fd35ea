//! TLS that the mesh ends: an authority in memory, certificates by name, and a client for the way on.
//!
//! The client does not verify the callee: it is the slot's own service, reached where the platform said.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme};
use tokio_rustls::{LazyConfigAcceptor, TlsConnector};

use crate::stream::Plain;

/// Signs certificates for whatever name a caller asks for.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    provider: Arc<CryptoProvider>,
    certificates: Mutex<HashMap<String, Arc<CertifiedKey>>>,
}

/// Names that certificates are kept for; past that the oldest work is thrown away.
const MAX_CERTIFICATES: usize = 1024;

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

/// A client's greeting, before the mesh has answered it.
pub(crate) struct Greeting {
    start: tokio_rustls::StartHandshake<Plain>,
}

impl Greeting {
    /// Reads the greeting of a client.
    pub(crate) async fn read(stream: Plain) -> io::Result<Self> {
        let start = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await?;
        Ok(Self { start })
    }

    /// The protocols that the client offers.
    pub(crate) fn protocols(&self) -> Vec<Vec<u8>> {
        self.start.client_hello().alpn().into_iter().flatten().map(<[u8]>::to_vec).collect()
    }

    /// Finishes the handshake under the authority's certificate, with the protocol that the callee chose.
    pub(crate) async fn accept(
        self,
        authority: &Arc<Authority>,
        fallback: &str,
        protocol: Option<Vec<u8>>,
    ) -> io::Result<tokio_rustls::server::TlsStream<Plain>> {
        let resolver = Resolver { authority: Arc::clone(authority), fallback: fallback.to_owned() };
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&authority.provider))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = protocol.into_iter().collect();
        self.start.into_stream(Arc::new(config)).await
    }
}

// === impl Authority ===

impl Authority {
    pub(crate) fn new() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "Faultscope slot authority");
        let pem = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            pem,
            provider: Arc::new(ring::default_provider()),
            certificates: Mutex::default(),
        })
    }

    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// Speaks TLS to a callee.
    pub(crate) async fn connect(
        &self,
        host: &str,
        protocols: &[Vec<u8>],
        stream: Plain,
    ) -> io::Result<tokio_rustls::client::TlsStream<Plain>> {
        let verifier = Trusting(self.provider.signature_verification_algorithms);
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.alpn_protocols = protocols.to_vec();
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    fn certificate(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let kept = |name: &str| self.lock().get(name).cloned();
        if let Some(certificate) = kept(name) {
            return Some(certificate);
        }
        let certificate = Arc::new(self.sign(name).ok()?);
        let mut certificates = self.lock();
        if certificates.len() >= MAX_CERTIFICATES {
            certificates.clear();
        }
        certificates.insert(name.to_owned(), Arc::clone(&certificate));
        Some(certificate)
    }

    fn sign(&self, name: &str) -> Result<CertifiedKey, Box<dyn std::error::Error>> {
        let key = KeyPair::generate()?;
        let names = [name.to_owned(), "localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let chain = vec![CertificateDer::from(certificate)];
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(CertifiedKey::from_der(chain, key, &self.provider)?)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<CertifiedKey>>> {
        self.certificates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Chooses the certificate by the name that the client asks for.
#[derive(Debug)]
struct Resolver {
    authority: Arc<Authority>,
    fallback: String,
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.authority.certificate(hello.server_name().unwrap_or(&self.fallback))
    }
}

/// Takes any certificate, but still checks that the peer holds its key.
#[derive(Debug)]
struct Trusting(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
