//! Steps with a short and a long form.
//!
//! They are read through a JSON value, because an untagged enum would answer every mistake with "did not match
//! any variant".

use serde::Deserialize;
use serde_json::Value;

use super::named::Steps;
use super::step::{Branches, Count, Join, Sleep};
use crate::template::{Template, Time};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LongSleep {
    mean: Option<Time>,
    jitter: Option<Time>,
    uniform: Option<(Time, Time)>,
    lognormal: Option<Lognormal>,
    exponential: Option<Time>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lognormal {
    median: Time,
    sigma: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LongCount {
    name: String,
    by: Option<Template>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LongBranches {
    branches: Vec<Steps>,
    #[serde(default)]
    join: Join,
}

impl TryFrom<Value> for Sleep {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        if !value.is_object() {
            return Time::try_from(value).map(Self::Fixed);
        }
        let long: LongSleep = read(value)?;
        match (long.mean, long.jitter, long.uniform, long.lognormal, long.exponential) {
            (Some(mean), Some(jitter), None, None, None) => Ok(Self::Around { mean, jitter }),
            (Some(mean), None, None, None, None) => Ok(Self::Fixed(mean)),
            (None, None, Some((low, high)), None, None) => Ok(Self::Uniform(low, high)),
            (None, None, None, Some(Lognormal { median, sigma }), None) => Ok(Self::Lognormal(median, sigma)),
            (None, None, None, None, Some(mean)) => Ok(Self::Exponential(mean)),
            _ => {
                Err("a sleep has `mean` and `jitter`, or one of `uniform`, `lognormal`, `exponential`"
                    .to_owned())
            }
        }
    }
}

impl TryFrom<Value> for Count {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let long = match value {
            Value::String(name) => LongCount { name, by: None },
            other => read(other)?,
        };
        Ok(Self { name: long.name, by: long.by.unwrap_or(Template::Literal(Value::from(1))) })
    }
}

impl TryFrom<Value> for Branches {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let long = match value {
            Value::Array(_) => LongBranches { branches: read(value)?, join: Join::All },
            other => read(other)?,
        };
        Ok(Self { branches: long.branches, join: long.join })
    }
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}
