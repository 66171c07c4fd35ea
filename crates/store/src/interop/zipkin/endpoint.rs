//! Endpoints in Zipkin's JSON, which are the same in v1 and v2.

use std::fmt;

use faultscope_model::trace::Endpoint;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::interop::Limits;
use crate::interop::draft::{set_ip_text, set_service};
use crate::interop::json::{Number, Text};

/// Decodes an endpoint, or none for `null`.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndpointSeed<'l>(pub(super) &'l Limits);

/// The endpoint, and its port if that is invalid.
pub(super) type EndpointRead = (Option<Endpoint>, Option<i64>);

impl<'de> DeserializeSeed<'de> for EndpointSeed<'_> {
    type Value = EndpointRead;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<EndpointRead, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for EndpointSeed<'_> {
    type Value = EndpointRead;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an endpoint")
    }

    fn visit_unit<E>(self) -> Result<EndpointRead, E> {
        Ok((None, None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<EndpointRead, A::Error> {
        let mut endpoint = Endpoint::default();
        let mut wrong = None;
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match key.0.as_ref() {
                "serviceName" => {
                    if let Some(Text(name)) = map.next_value()? {
                        set_service(&mut endpoint, name, self.0);
                    }
                }
                // Either key may have either kind of address.
                "ipv4" | "ipv6" => {
                    if let Some(Text(ip)) = map.next_value::<Option<Text<'de>>>()? {
                        set_ip_text(&mut endpoint, &ip);
                    }
                }
                "port" => {
                    let port = map.next_value::<Option<Number>>()?.map_or(0, Number::micros);
                    match u16::try_from(port) {
                        Ok(port) => endpoint.port = Some(port).filter(|port| *port != 0),
                        Err(_) if port < 0 => endpoint.port = None,
                        Err(_) => wrong = Some(port),
                    }
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok((Some(endpoint), wrong))
    }
}
