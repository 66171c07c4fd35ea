//! Keeps an application up for people until they end it, and records their calls.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use faultscope_model::wiring::ListenerSpec;
use faultscope_model::{InstanceId, ServiceName};
use serde::Serialize;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::clone::{Cloner, StartPoint};
use crate::error::EngineError;
use crate::trial::{Drive, Driven, Live};

/// The caller in spans of calls that people make.
const CALLER: &str = "user-1";

/// A listening socket through which people reach a service.
#[derive(Debug)]
pub struct PublishedPort {
    /// The service.
    pub service: ServiceName,
    /// The port on which the service itself listens.
    pub port: u16,
    /// Already listening and non-blocking.
    pub socket: TcpListener,
}

/// The address of a published port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Published {
    /// The service.
    pub service: ServiceName,
    /// The port on which the service itself listens.
    pub port: u16,
    /// The address on this machine.
    pub address: SocketAddr,
}

/// The drive of `up`.
#[derive(Debug)]
pub struct People {
    opening: Mutex<Option<Opening>>,
    until: CancellationToken,
    /// Takes clones while people use the application.
    cloner: tokio::sync::Mutex<Option<Cloner>>,
    start: Option<StartPoint>,
}

#[derive(Debug)]
struct Opening {
    ports: Vec<(Published, TcpListener)>,
    opened: oneshot::Sender<Vec<Published>>,
}

impl People {
    /// Publishes these ports once everything is ready, reports them through `opened`, and waits until `until` fires.
    pub fn new(
        ports: Vec<PublishedPort>,
        opened: oneshot::Sender<Vec<Published>>,
        until: CancellationToken,
    ) -> io::Result<Self> {
        let named = |port: PublishedPort| {
            let address = port.socket.local_addr()?;
            Ok((Published { service: port.service, port: port.port, address }, port.socket))
        };
        let ports = ports.into_iter().map(named).collect::<io::Result<_>>()?;
        let opening = Mutex::new(Some(Opening { ports, opened }));
        Ok(Self { opening, until, cloner: tokio::sync::Mutex::default(), start: None })
    }

    /// Takes clones that are ordered meanwhile.
    pub fn with_clones(self, cloner: Cloner) -> Self {
        Self { cloner: tokio::sync::Mutex::new(Some(cloner)), ..self }
    }

    /// Starts from a clone, or with other commands.
    pub fn starting_from(self, start: StartPoint) -> Self {
        Self { start: Some(start), ..self }
    }

    fn open(&self, live: &Live<'_>) {
        let opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Opening { ports, opened }) = opening else { return };
        let mut published = Vec::new();
        for (place, socket) in ports {
            let Some(mesh) = live.mesh() else { break };
            let declared = live.application().services.get(&place.service);
            let protocol = declared.and_then(|service| service.ports.iter().find(|p| p.port == place.port));
            mesh.listen(
                ListenerSpec {
                    callee: place.service.clone(),
                    port: place.port,
                    protocol: protocol.map(|port| port.protocol).unwrap_or_default(),
                    caller: CALLER.parse::<InstanceId>().ok(),
                },
                socket,
            );
            published.push(place);
        }
        // The receiver may be gone; the application is up nevertheless.
        let _ = opened.send(published);
    }
}

#[async_trait]
impl Drive for People {
    fn question(&self) -> serde_json::Value {
        serde_json::json!("people")
    }

    fn starts_from(&self) -> Option<&StartPoint> {
        self.start.as_ref()
    }

    /// People take as long as they like, and cannot be asked to repeat what they did.
    fn is_repeatable(&self) -> bool {
        false
    }

    async fn drive(&self, live: &Live<'_>, cancel: &CancellationToken) -> Result<Driven, EngineError> {
        self.open(live);
        let mut cloner = self.cloner.lock().await;
        let taking_clones = async {
            match &mut *cloner {
                Some(cloner) => cloner.work(live).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = taking_clones => {}
            () = self.until.cancelled() => {}
            () = cancel.cancelled() => {}
        }
        Ok(Driven::default())
    }
}
