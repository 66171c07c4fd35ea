//! An application that is kept up for people: what they do is recorded, and they say when it ends.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use faultscope_model::wiring::ListenerSpec;
use faultscope_model::{InstanceId, ServiceName};
use serde::Serialize;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::error::EngineError;
use crate::trial::{Drive, Driven, Live};

/// The name under which calls of people are recorded.
const CALLER: &str = "user-1";

/// A listening socket through which people reach a service.
#[derive(Debug)]
pub struct PublishedPort {
    /// The service.
    pub service: ServiceName,
    /// The port as the service has it.
    pub port: u16,
    /// Where people connect; already listening, non-blocking.
    pub socket: TcpListener,
}

/// Where a service can be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Published {
    /// The service.
    pub service: ServiceName,
    /// The port as the service has it.
    pub port: u16,
    /// The address on this machine.
    pub address: SocketAddr,
}

/// Lets people drive.
#[derive(Debug)]
pub struct People {
    opening: Mutex<Option<Opening>>,
    until: CancellationToken,
}

#[derive(Debug)]
struct Opening {
    ports: Vec<(Published, TcpListener)>,
    opened: oneshot::Sender<Vec<Published>>,
}

impl People {
    /// Offers these ports once everything is ready, says so through `opened`, and goes on until `until` fires.
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
        Ok(Self { opening: Mutex::new(Some(Opening { ports, opened })), until })
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
        // Whoever wanted to know may have gone; the application is up all the same.
        let _ = opened.send(published);
    }
}

#[async_trait]
impl Drive for People {
    fn question(&self) -> serde_json::Value {
        serde_json::json!("people")
    }

    /// People take the time they want, and nobody can ask them to do the same again.
    fn is_repeatable(&self) -> bool {
        false
    }

    async fn drive(&self, live: &Live<'_>, cancel: &CancellationToken) -> Result<Driven, EngineError> {
        self.open(live);
        tokio::select! {
            () = self.until.cancelled() => {}
            () = cancel.cancelled() => {}
        }
        Ok(Driven::default())
    }
}
