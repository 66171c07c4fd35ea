//! Opens connections to callees.

use std::io;

use faultscope_model::CallError;
use tokio::net::TcpStream;

use crate::balance::Target;
use crate::call::Call;
use crate::scene::Route;
use crate::slot::Slot;
use crate::stream::{Plain, Stream};

/// What the tunnel or protocol needs from the connection it asks for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dialling {
    /// Speaks TLS, and offers these protocols within.
    pub(crate) tls: Option<Vec<Vec<u8>>>,
}

/// Connects to the instance that was chosen for a call, or to the host outside.
pub(crate) async fn dial(call: &mut Call, how: &Dialling) -> io::Result<Stream> {
    dial_target(&call.slot, &call.route, call.target.as_deref(), how).await
}

/// Connects to an instance, or to the route's host outside when none is given.
pub(crate) async fn dial_target(
    slot: &Slot,
    route: &Route,
    target: Option<&Target>,
    how: &Dialling,
) -> io::Result<Stream> {
    let tcp = connect(slot, route, target).await.inspect_err(|error| slot.note_exhaustion(error))?;
    let plain = Plain::from(tcp);
    match &how.tls {
        None => Ok(Stream::Plain(plain)),
        Some(protocols) => {
            let host =
                route.external.as_ref().map_or(route.callee.as_str(), |external| external.host.as_str());
            let tls = slot.authority.connect(host, protocols, plain).await?;
            Ok(Stream::Dialled(Box::new(tls)))
        }
    }
}

async fn connect(slot: &Slot, route: &Route, target: Option<&Target>) -> io::Result<TcpStream> {
    // Whoever is mocked is never reached, whatever the wiring says of it.
    if route.mocks.is_some() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "mocked"));
    }
    let port = route.port;
    match (target, &route.external) {
        (Some(target), _) => match target.endpoint.addresses.get(&port) {
            Some(address) => TcpStream::connect(address).await,
            None => TcpStream::from_std(slot.hooks.dialer.dial(&target.endpoint.instance, port).await?),
        },
        (None, Some(external)) if external.allow => TcpStream::connect((external.host.as_str(), port)).await,
        (None, _) => Err(io::Error::new(io::ErrorKind::NotFound, "no instance")),
    }
}

/// What a span says when its callee could not be reached.
pub(crate) fn why_not_dialled(error: &io::Error) -> CallError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => CallError::ConnectRefused,
        io::ErrorKind::TimedOut => CallError::TimedOut,
        io::ErrorKind::NotFound => CallError::NoInstance,
        io::ErrorKind::InvalidData => CallError::TlsRefused,
        _ => CallError::ConnectFailed,
    }
}
