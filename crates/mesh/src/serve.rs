//! Accepts connections and finds out what is spoken on them.

use std::io;
use std::net::{Shutdown, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use faultscope_model::Protocol;
use faultscope_model::span::Wire;
use faultscope_model::wiring::{ListenerSpec, RESOLVER};
use socket2::SockRef;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use crate::detect::{Spoken, spoken};
use crate::dial::{self, Dialling};
use crate::slot::{Origin, Slot};
use crate::stream::{Plain, Stream};
use crate::tls::Greeting;
use crate::{http1, http2, outage, resolver, tunnel};

/// Connections of one listener at a time; further ones wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 2048;
/// Connections that wait to be accepted, as many as platforms ask for; the kernel lowers it to its own bound.
const BACKLOG: i32 = 4096;
/// How long a client may stay silent before it counts as one whose server speaks first.
const DETECTION: Duration = Duration::from_millis(200);
/// The pause after an accept that failed, so that a lack of memory does not become a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// What happens to connections that come to a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// They are accepted.
    Open,
    /// The kernel refuses them.
    Refusing,
    /// They should be refused, which the kernel does not do here: they are accepted and reset.
    CannotRefuse,
}

/// Takes connections from a listener for as long as it is wanted, and refuses them while the scene says so. The door
/// always says what the socket is set to.
pub(crate) async fn accept(
    slot: Arc<Slot>,
    spec: Arc<ListenerSpec>,
    mut socket: TcpListener,
    door: watch::Sender<Door>,
) {
    let mut changes = slot.changes();
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        changes.borrow_and_update();
        let is_refusing = slot.scene().refuses(&spec);
        let was_refusing = *door.borrow() != Door::Open;
        if is_refusing != was_refusing {
            door.send_replace(set_door(&slot, &spec, &socket));
        }
        if *door.borrow() == Door::Refusing {
            if changes.changed().await.is_err() {
                return;
            }
            continue;
        }
        // Registered anew after each refusal: the end of listening is not forgotten by a registration that saw it.
        let listener = socket.set_nonblocking(true).and_then(|()| tokio::net::TcpListener::from_std(socket));
        let listening = match listener {
            Ok(listener) => {
                take_connections(&slot, &spec, &listener, &room, &mut changes, is_refusing).await;
                listener.into_std()
            }
            Err(error) => Err(error),
        };
        match listening {
            Ok(listener) => socket = listener,
            Err(error) => {
                tracing::error!(callee = %spec.callee, port = spec.port, %error, "cannot listen");
                return;
            }
        }
    }
}

/// Accepts connections until the scene says something else about the listener.
async fn take_connections(
    slot: &Arc<Slot>,
    spec: &Arc<ListenerSpec>,
    listener: &tokio::net::TcpListener,
    room: &Arc<Semaphore>,
    changes: &mut watch::Receiver<()>,
    is_refusing: bool,
) {
    let next = async || {
        let permit = Arc::clone(room).acquire_owned().await.map_err(io::Error::other)?;
        let (tcp, peer) = listener.accept().await?;
        Ok::<_, io::Error>((permit, tcp, peer))
    };
    let mut is_failing = false;
    loop {
        let accepted = tokio::select! {
            biased;
            changed = changes.changed() => {
                if changed.is_err() || slot.scene().refuses(spec) != is_refusing {
                    return;
                }
                continue;
            }
            accepted = next() => accepted,
        };
        match accepted {
            Ok((permit, tcp, peer)) => {
                is_failing = false;
                let origin = Origin::new(Arc::clone(slot), Arc::clone(spec), Some(peer.ip()));
                let ends = origin.ends();
                let work = async move {
                    let _permit = permit;
                    connection(origin, Stream::Plain(Plain::from(tcp))).await;
                };
                slot.keep(ends, |work| tokio::spawn(work).abort_handle(), work);
            }
            Err(error) => {
                slot.note_exhaustion(&error);
                if !is_failing {
                    tracing::warn!(callee = %spec.callee, port = spec.port, %error, "cannot accept");
                }
                is_failing = true;
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Sets a socket to what the scene says about its listener.
pub(crate) fn set_door(slot: &Slot, spec: &ListenerSpec, socket: &TcpListener) -> Door {
    // The listeners of two trials share a socket for a moment, and what each does depends on what the other did.
    let _turn = slot.change_doors();
    let scene = slot.scene();
    let is_refusing = scene.refuses(spec);
    match set_listening(socket, !is_refusing) {
        Ok(()) if is_refusing => Door::Refusing,
        Ok(()) => Door::Open,
        Err(error) => {
            tracing::warn!(callee = %spec.callee, port = spec.port, %error, "cannot change a listener");
            if !is_refusing {
                return Door::Open;
            }
            scene.trial.steering.note_unrefused(&spec.callee);
            Door::CannotRefuse
        }
    }
}

/// Has the kernel take connections to a listener, or refuse them. A socket that refuses stays bound, so that nobody else
/// gets its port.
fn set_listening(socket: &TcpListener, is_wanted: bool) -> io::Result<()> {
    let address = socket.local_addr()?;
    let socket = SockRef::from(socket);
    // On Linux both hold for all who share the socket, the platform that opened it and keeps it among them.
    if is_wanted {
        return socket.listen(BACKLOG);
    }
    // A trial before may have left it so. Linux marks a socket that is shut down while it does not listen, and every
    // connection that it accepts later begins at its end.
    if !socket.is_listener()? {
        return Ok(());
    }
    socket.shutdown(Shutdown::Read)?;
    // A port that the kernel chose is free again, and is taken by name; one that was asked for is still bound.
    let _ = socket.bind(&address.into());
    Ok(())
}

/// Serves one connection to its end.
pub(crate) async fn connection(mut origin: Origin, stream: Stream) {
    if origin.spec.callee.as_str() == RESOLVER {
        return resolver::serve(origin, stream).await;
    }
    // Only trials that name calls have outages; others are spared the watching.
    if origin.route().scene.wiring.targets {
        return outage::serve(origin, stream).await;
    }
    speak(origin, stream).await;
}

/// Serves one connection by its protocol.
pub(crate) async fn speak(origin: Origin, stream: Stream) {
    let started = Instant::now();
    match origin.spec.protocol {
        Protocol::Http | Protocol::Grpc => http(origin, stream, BytesMut::new(), Dialling::default()).await,
        Protocol::Detect => detect(origin, stream, started).await,
        Protocol::Https => https(origin, stream, started).await,
        Protocol::Tls => tunnel::serve(origin, stream, BytesMut::new(), Wire::Tls, started).await,
        Protocol::Tcp
        | Protocol::Nats
        | Protocol::Amqp
        | Protocol::Redis
        | Protocol::Kafka
        | Protocol::Mysql
        | Protocol::Postgres
        | Protocol::Mongo => tunnel::serve(origin, stream, BytesMut::new(), Wire::Tcp, started).await,
    }
}

/// Reads until the first bytes tell what is spoken; an early end is unclear. A client may be silent as
/// long as it likes, but not once it has begun.
async fn first_bytes(stream: &mut Stream, input: &mut BytesMut) -> io::Result<Spoken> {
    let mut deadline = None;
    loop {
        let verdict = spoken(input);
        if verdict != Spoken::Unclear {
            return Ok(verdict);
        }
        let read = std::future::poll_fn(|cx| stream.poll_fill(cx, input));
        let count = match deadline {
            None => read.await?,
            Some(deadline) => tokio::time::timeout_at(deadline, read).await??,
        };
        if count == 0 {
            return Ok(Spoken::Unclear);
        }
        deadline = deadline.or_else(|| Some(Instant::now() + http1::HEAD_WAIT));
    }
}

/// HTTP of either version; what is neither is left to HTTP/1, which hands on what it cannot read.
async fn http(origin: Origin, mut stream: Stream, mut input: BytesMut, dialling: Dialling) {
    match first_bytes(&mut stream, &mut input).await {
        Ok(Spoken::Http2) => http2::serve(origin, stream, input, dialling).await,
        Ok(_) => http1::serve(origin, stream, input, dialling).await,
        Err(_) => {}
    }
}

async fn detect(origin: Origin, mut stream: Stream, started: Instant) {
    let mut input = BytesMut::new();
    let verdict = tokio::time::timeout(DETECTION, first_bytes(&mut stream, &mut input)).await;
    match verdict {
        Ok(Ok(Spoken::Http1)) => http1::serve(origin, stream, input, Dialling::default()).await,
        Ok(Ok(Spoken::Http2)) => http2::serve(origin, stream, input, Dialling::default()).await,
        Ok(Ok(Spoken::Tls)) => tunnel::serve(origin, stream, input, Wire::Tls, started).await,
        Ok(Ok(Spoken::Other | Spoken::Unclear)) | Err(_) => {
            tunnel::serve(origin, stream, input, Wire::Tcp, started).await;
        }
        Ok(Err(_)) => {}
    }
}

/// Ends the caller's TLS and begins another to the callee. In-process callers may leave TLS out.
async fn https(mut origin: Origin, mut stream: Stream, started: Instant) {
    let mut input = BytesMut::new();
    match first_bytes(&mut stream, &mut input).await {
        Ok(Spoken::Tls) => {}
        Ok(spoken @ (Spoken::Http1 | Spoken::Http2)) => {
            let protocol: &[u8] = if spoken == Spoken::Http2 { b"h2" } else { b"http/1.1" };
            let dialling = Dialling { tls: Some(vec![protocol.to_vec()]) };
            return http(origin, stream, input, dialling).await;
        }
        Ok(_) => return tunnel::serve(origin, stream, input, Wire::Tcp, started).await,
        Err(_) => return,
    }
    let Stream::Plain(mut plain) = stream else { return };
    plain.unread(input);
    let Ok(greeting) = Greeting::read(plain).await else {
        return;
    };
    let protocol = protocol_within(&mut origin, greeting.protocols()).await;
    let authority = Arc::clone(&origin.slot.authority);
    match greeting.accept(&authority, origin.spec.callee.as_str(), protocol.clone()).await {
        Ok(tls) => {
            let dialling = Dialling { tls: Some(protocol.into_iter().collect()) };
            http(origin, Stream::Accepted(Box::new(tls)), BytesMut::new(), dialling).await;
        }
        Err(error) => {
            tracing::debug!(callee = %origin.spec.callee, %error, "a caller refused the slot's certificate")
        }
    }
}

/// The protocol that the callee would choose of those offered. It is asked once in a trial, so that the
/// caller gets the choice it would get without a mesh.
async fn protocol_within(origin: &mut Origin, offered: Vec<Vec<u8>>) -> Option<Vec<u8>> {
    if offered.is_empty() {
        return None;
    }
    let (slot, route) = (Arc::clone(&origin.slot), Arc::clone(origin.route()));
    let trial = &route.scene.trial;
    if let Some(known) = trial.protocol_within_tls(&route.callee, route.port) {
        return known.filter(|protocol| offered.contains(protocol));
    }
    let dialling = Dialling { tls: Some(vec![b"h2".to_vec(), b"http/1.1".to_vec()]) };
    let target = route.choice.targets.first().map(AsRef::as_ref);
    match dial::dial_target(&slot, &route, target, &dialling).await {
        Ok(Stream::Dialled(tls)) => {
            let chosen = tls.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
            trial.set_protocol_within_tls(&route.callee, route.port, chosen.clone());
            chosen.filter(|protocol| offered.contains(protocol))
        }
        // The callee cannot be reached now: the request will show it.
        _ => offered.into_iter().find(|protocol| protocol == b"http/1.1"),
    }
}
