//! How a message or a call is known again in another run of the same test.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The most characters of a target's name.
const MOST_NAME: usize = 240;

/// Names a message so that it is found again in another run of the same test: by what caused it, its
/// receiver, its type or operation, and its number among equal ones. What it carries is not part of it.
///
/// ```
/// use faultscope_probe_format::TargetId;
/// let order = TargetId::root().then("order", "Pay", 1);
/// assert_eq!(order.then("stock", "Reserve", 2).to_string(), "order.Pay/stock.Reserve#2");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TargetId(String);

impl TargetId {
    /// The test itself: what it does has no cause.
    pub fn root() -> Self {
        Self::default()
    }

    /// The message that this one caused: the n-th (from 1) of its type to its receiver.
    pub fn then(&self, to: &str, message: &str, ordinal: u32) -> Self {
        let mut name = self.0.clone();
        if !name.is_empty() {
            name.push('/');
        }
        name.push_str(&format!("{to}.{message}"));
        if ordinal > 1 {
            name.push_str(&format!("#{ordinal}"));
        }
        Self(bounded(name))
    }

    /// The call that was made in the handling of this one: the n-th (from 1) of its operation to its callee.
    /// Parts of the path that look like ids are masked, as they differ from run to run.
    ///
    /// ```
    /// use faultscope_probe_format::TargetId;
    /// let order = TargetId::root().call("order", "POST", "/pay?fast=1", 1);
    /// let stock = order.call("stock", "PUT", "/items/4711", 2);
    /// assert_eq!(stock.to_string(), "order POST /pay > stock PUT /items/{} #2");
    /// ```
    pub fn call(&self, callee: &str, method: &str, path: &str, ordinal: u32) -> Self {
        let mut name = if self.0.is_empty() { String::new() } else { format!("{} > ", self.0) };
        name.push_str(&format!("{callee} {}", masked_operation(method, path)));
        if ordinal > 1 {
            name.push_str(&format!(" #{ordinal}"));
        }
        Self(bounded(name))
    }

    /// The call in whose handling this one was made; none for what the test does.
    pub fn cause(&self) -> Option<Self> {
        self.0.rsplit_once(" > ").map(|(cause, _)| Self(cause.to_owned()))
    }

    /// What a service does by itself, not in the handling of a request.
    pub fn of_its_own(service: &str) -> Self {
        Self(format!("({service})"))
    }

    /// Whether the test led to it, and not a duplicate or something that a service does of its own.
    pub fn is_of_test(&self) -> bool {
        !self.0.starts_with('(') && !self.0.split(" > ").any(|step| step.ends_with('+'))
    }

    /// Whether one of the two led to the other.
    pub fn is_related(&self, other: &Self) -> bool {
        let leads =
            |cause: &str, to: &str| to.strip_prefix(cause).is_some_and(|rest| rest.starts_with(" > "));
        self == other || leads(&self.0, &other.0) || leads(&other.0, &self.0)
    }

    /// The second handling of this message when it is duplicated: what that causes is no target.
    pub fn again(&self) -> Self {
        Self(format!("{}+", self.0))
    }

    /// As it is written in files.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl From<&str> for TargetId {
    fn from(name: &str) -> Self {
        Self(name.to_owned())
    }
}

/// Long ways are cut at the front; a hash keeps them apart.
fn bounded(name: String) -> String {
    if name.len() <= MOST_NAME {
        return name;
    }
    let cut = (name.len() - MOST_NAME / 2..name.len()).find(|&i| name.is_char_boundary(i));
    let cut = cut.unwrap_or(name.len());
    format!("~{:016x}{}", fnv(&name.as_bytes()[..cut]), &name[cut..])
}

/// Method and path without query, with `{}` for what looks like an id.
///
/// ```
/// use faultscope_probe_format::masked_operation;
/// assert_eq!(masked_operation("GET", "/carts/7f3a9c1e-1111-4222-8333-944445555666/v2"), "GET /carts/{}/v2");
/// ```
pub fn masked_operation(method: &str, path: &str) -> String {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let masked: Vec<&str> =
        path.split('/').map(|part| if looks_like_id(part) { "{}" } else { part }).collect();
    format!("{method} {}", masked.join("/"))
}

/// Numbers, and longer words of hexadecimal digits or of letters mixed with several digits.
fn looks_like_id(part: &str) -> bool {
    let digits = part.bytes().filter(u8::is_ascii_digit).count();
    let is_word = part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    let is_hex = part.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    digits > 0
        && is_word
        && (digits == part.len() || (is_hex && part.len() >= 8) || (part.len() >= 16 && digits >= 4))
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_an_id_is_masked() {
        let same = ["/orders/17", "/orders/deadbeef01", "/orders/cart_7f3a9c1e1111422283"];
        for path in same {
            assert_eq!(masked_operation("GET", path), "GET /orders/{}", "{path}");
        }
        for path in ["/orders/v2", "/orders/list", "/orders/feedback", "/api/oauth2"] {
            assert_eq!(masked_operation("GET", path), format!("GET {path}"));
        }
    }

    #[test]
    fn causes_and_their_effects_are_related() {
        let order = TargetId::root().call("order", "POST", "/pay", 1);
        let stock = order.call("stock", "PUT", "/s", 1);
        let second = order.call("stock", "PUT", "/s", 2);
        assert!(order.is_related(&stock) && stock.is_related(&order) && stock.is_related(&stock));
        assert!(!stock.is_related(&second));
        assert!(stock.is_of_test() && !order.again().call("stock", "PUT", "/s", 1).is_of_test());
        assert!(!TargetId::of_its_own("order").call("stock", "PUT", "/s", 1).is_of_test());
    }

    #[test]
    fn names_stay_short_and_different() {
        let chain = |last: &str| {
            let way = (0..60).fold(TargetId::root(), |at, i| at.then(&format!("actor{i}"), "Update", 1));
            way.then(last, "Update", 1)
        };
        assert!(chain("a").as_str().len() <= MOST_NAME + 40);
        assert!(chain("a").as_str().ends_with("actor59.Update/a.Update"));
        assert_ne!(chain("a"), chain("b"));
        let other = TargetId::root().then("x", "Start", 1);
        let other = (0..60).fold(other, |at, i| at.then(&format!("actor{i}"), "Update", 1));
        assert_ne!(other.then("a", "Update", 1), chain("a"), "what was cut still counts");
    }
}
