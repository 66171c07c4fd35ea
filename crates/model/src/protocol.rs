//! The protocol of a port, as far as the mesh has to know it.

use serde::{Deserialize, Serialize};

/// The protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Detected from the first bytes of the client, within a bounded time; TCP if they match no protocol.
    #[default]
    Detect,
    /// HTTP/1.1 or HTTP/2 without TLS, WebSocket upgrades included.
    Http,
    /// gRPC: HTTP/2 without TLS.
    Grpc,
    /// HTTP over TLS, which the mesh terminates with a certificate of the slot's own authority.
    Https,
    /// TLS passed through untouched: one span for each connection.
    Tls,
    /// Any other protocol: bytes are passed through, one span for each connection.
    Tcp,
    /// NATS; the server speaks first.
    Nats,
    /// RabbitMQ.
    Amqp,
    /// Redis.
    Redis,
    /// Kafka.
    Kafka,
    /// MySQL; the server speaks first.
    Mysql,
    /// PostgreSQL.
    Postgres,
    /// MongoDB.
    Mongo,
}

impl Protocol {
    /// Guesses the protocol of a well-known port.
    pub fn guess_from_port(port: u16) -> Self {
        match port {
            443 | 8443 => Self::Tls,
            80 | 3000 | 5000 | 8000..=8099 | 9090 => Self::Http,
            3306 => Self::Mysql,
            4222 => Self::Nats,
            5432 => Self::Postgres,
            5672 => Self::Amqp,
            6379 => Self::Redis,
            9092 => Self::Kafka,
            27017 => Self::Mongo,
            50051..=50059 => Self::Grpc,
            _ => Self::Detect,
        }
    }

    /// Whether the mesh records single requests of it rather than whole connections.
    pub fn has_requests(self) -> bool {
        matches!(self, Self::Detect | Self::Http | Self::Grpc | Self::Https)
    }
}
