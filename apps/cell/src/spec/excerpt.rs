//! Reads one service of a spec and only the ports of the others.
//!
//! A cell must stay small; reading dozens of services only to drop them would leave the heap several times larger
//! than what the cell keeps.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::named::{Label, Named};
use super::{Service, Spec};

const FIELDS: [&str; 4] = ["version", "seed", "common", "services"];

/// Reads a spec for one service; the others have nothing but their port.
pub(super) struct Excerpt<'name>(pub(super) &'name str);

struct Services<'name>(&'name str);

/// What callers need to know of a service; its other keys are its own cell's matter.
#[derive(Deserialize)]
struct Stub {
    port: u16,
}

impl<'de> DeserializeSeed<'de> for Excerpt<'_> {
    type Value = Spec;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Spec, D::Error> {
        deserializer.deserialize_struct("Spec", &FIELDS, self)
    }
}

impl<'de> Visitor<'de> for Excerpt<'_> {
    type Value = Spec;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a spec")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Spec, A::Error> {
        let (mut version, mut seed, mut services) = (None, 0, None);
        while let Some(key) = access.next_key::<String>()? {
            match key.as_str() {
                "version" => version = Some(access.next_value()?),
                "seed" => seed = access.next_value()?,
                "common" => drop(access.next_value::<IgnoredAny>()?),
                "services" => services = Some(access.next_value_seed(Services(self.0))?),
                other => return Err(A::Error::unknown_field(other, &FIELDS)),
            }
        }
        Ok(Spec {
            version: version.ok_or_else(|| A::Error::missing_field("version"))?,
            seed,
            _common: IgnoredAny,
            services: services.ok_or_else(|| A::Error::missing_field("services"))?,
        })
    }
}

impl<'de> DeserializeSeed<'de> for Services<'_> {
    type Value = Named<Service>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Named<Service>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Services<'_> {
    type Value = Named<Service>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a map with a name for each {}", Service::LABEL)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Named<Service>, A::Error> {
        let mut services = Named::default();
        while let Some(name) = access.next_key::<String>()? {
            let place = |error| A::Error::custom(format!("{} `{name}`: {error}", Service::LABEL));
            let service = if name == self.0 {
                access.next_value().map_err(place)?
            } else {
                Service::with_port(access.next_value::<Stub>().map_err(place)?.port)
            };
            services.insert(name, service);
        }
        Ok(services)
    }
}
