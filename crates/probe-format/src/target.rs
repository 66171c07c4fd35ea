//! How a message or a call is recognized in another run of the same test.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use sha2::{Digest as _, Sha256};

use crate::operation::masked_operation;
use crate::target_text;

/// The longest path; a longer one keeps its last [`KEPT_STEPS`] and a digest of the rest. Real chains of causes have
/// fewer than twenty steps, so only services or actors that call in a circle get here.
const MAX_STEPS: usize = 64;

/// Half of the longest path, so that cutting is rare.
const KEPT_STEPS: usize = MAX_STEPS / 2;

/// The longest name of a receiver, in bytes. Host names have at most 253.
pub(crate) const MAX_RECEIVER: usize = 256;

/// The longest operation or message type, in bytes.
const MAX_OPERATION: usize = 512;

/// Identifies a message or a call so that it is found again in another run of the same test: the chain of what caused
/// it, and for each step of it the receiver, the operation or type, and the number among equal ones. The content of a
/// message is not part of it.
///
/// It is made for every call of a trial, so a path shares the steps of its cause, and two are compared by the digest
/// of their whole paths, including what was cut off.
///
/// ```
/// use faultscope_probe_format::TargetId;
/// let order = TargetId::root().then("order", "Pay", 1);
/// assert_eq!(order.then("stock", "Reserve", 2).to_string(), "order.Pay/stock.Reserve#2");
/// ```
#[derive(Clone)]
pub struct TargetId(Arc<Node>);

struct Node {
    /// Of everything from the test to here.
    digest: PathDigest,
    /// Steps that are kept.
    depth: usize,
    /// Whether the test led here, without a duplicate on the way.
    is_of_test: bool,
    place: Place,
}

enum Place {
    Origin(Origin),
    Step { cause: TargetId, step: Step },
}

/// 128 bits of SHA-256: two paths that differ never have the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PathDigest([u8; 16]);

/// Where a path begins.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// The test.
    Test,
    /// A service that does something by itself, not in the handling of a request.
    Service(Arc<str>),
    /// Steps that were cut off.
    Cut { digest: PathDigest, is_of_test: bool },
}

/// One step of a path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Step {
    pub(crate) receiver: Arc<str>,
    pub(crate) sent: Sent,
    /// The number among equal ones of one cause, from 1.
    pub(crate) ordinal: u32,
    /// Whether this is the second handling, of a duplicate.
    pub(crate) is_again: bool,
}

/// What a receiver gets.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sent {
    /// A request: method and path.
    Call(Arc<str>),
    /// A message of this type.
    Message(Arc<str>),
    /// Nothing in particular: the receiver as a whole, or a name that an adapter chose by its own rules.
    Whole,
    /// The n-th of everything that the receiver gets in a test, whatever it is.
    AnyCall,
}

impl TargetId {
    /// The test itself: what it does has no cause.
    pub fn root() -> Self {
        static ROOT: LazyLock<TargetId> = LazyLock::new(|| TargetId::new(Origin::Test));
        ROOT.clone()
    }

    /// The message that this one caused: the n-th (from 1) of its type to its receiver.
    pub fn then(&self, to: &str, message: &str, ordinal: u32) -> Self {
        self.push(Step::new(to, Sent::Message(bounded(message, MAX_OPERATION)), ordinal))
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
        let operation = bounded(&masked_operation(method, path), MAX_OPERATION);
        self.push(Step::new(callee, Sent::Call(operation), ordinal))
    }

    /// A service or actor as a whole, for what is done to it and not to one of its messages.
    pub fn whole(receiver: &str) -> Self {
        Self::root().push(Step::new(receiver, Sent::Whole, 1))
    }

    /// A service as a whole from its n-th call (from 1) on, whatever is asked and whoever asks. It is for what begins
    /// during a test, and for protocols whose requests have no names.
    ///
    /// ```
    /// use faultscope_probe_format::TargetId;
    /// let second = TargetId::any_call("redis", 2);
    /// assert_eq!((second.to_string().as_str(), second.any_call_number()), ("redis at call 2", Some(2)));
    /// ```
    pub fn any_call(receiver: &str, number: u32) -> Self {
        Self::root().push(Step::new(receiver, Sent::AnyCall, number))
    }

    /// What a service does by itself, not in the handling of a request.
    pub fn of_its_own(service: &str) -> Self {
        Self::new(Origin::Service(bounded(service, MAX_RECEIVER)))
    }

    /// The call or message in whose handling this one was sent; none for what the test does.
    pub fn cause(&self) -> Option<Self> {
        match &self.0.place {
            Place::Step { cause, .. } => (*cause != Self::root()).then(|| cause.clone()),
            Place::Origin(_) => None,
        }
    }

    /// Who receives it; nobody where the path has no step.
    pub fn receiver(&self) -> Option<&str> {
        self.last().map(|step| &*step.receiver)
    }

    /// Whether it is a message of an actor, and not a call of a service.
    pub fn is_message(&self) -> bool {
        self.last().is_some_and(|step| matches!(step.sent, Sent::Message(_)))
    }

    /// Whether a receiver is meant as a whole.
    pub fn is_whole(&self) -> bool {
        self.last().is_some_and(|step| step.sent == Sent::Whole)
    }

    /// The number of the call from which on a service is meant as a whole, if it is meant so.
    pub fn any_call_number(&self) -> Option<u32> {
        self.last().filter(|step| step.sent == Sent::AnyCall).map(|step| step.ordinal)
    }

    /// Whether the test led to it, and not a duplicate or something that a service does of its own.
    pub fn is_of_test(&self) -> bool {
        self.0.is_of_test
    }

    /// The service that did by itself what led here, if one did.
    pub fn service_of_origin(&self) -> Option<&str> {
        match self.parts().0 {
            Origin::Service(service) => Some(service),
            Origin::Test | Origin::Cut { .. } => None,
        }
    }

    /// Whether one of the two led to the other.
    pub fn is_related(&self, other: &Self) -> bool {
        let leads = |from: &Self, to: &Self| {
            std::iter::successors(Some(to.clone()), Self::cause).any(|target| target == *from)
        };
        leads(self, other) || leads(other, self)
    }

    /// The second handling of this message when it is duplicated: what that causes is no target.
    pub fn again(&self) -> Self {
        match &self.0.place {
            Place::Step { cause, step } => cause.push(Step { is_again: true, ..step.clone() }),
            Place::Origin(_) => self.clone(),
        }
    }

    pub(crate) fn new(origin: Origin) -> Self {
        let (digest, is_of_test) = match &origin {
            Origin::Test => (PathDigest::of(&[b"test"]), true),
            Origin::Service(service) => (PathDigest::of(&[b"service", service.as_bytes()]), false),
            Origin::Cut { digest, is_of_test } => (*digest, *is_of_test),
        };
        Self(Arc::new(Node { digest, depth: 0, is_of_test, place: Place::Origin(origin) }))
    }

    pub(crate) fn push(&self, step: Step) -> Self {
        let cause = if self.0.depth < MAX_STEPS { self.clone() } else { self.shortened() };
        let node = Node {
            digest: step.digest_after(cause.0.digest),
            depth: cause.0.depth + 1,
            is_of_test: cause.0.is_of_test && !step.is_again,
            place: Place::Step { cause, step },
        };
        Self(Arc::new(node))
    }

    /// The same path with its last steps only. It stays equal, since the digest covers what is cut off.
    fn shortened(&self) -> Self {
        let mut kept = Vec::new();
        let mut at = self;
        while let Place::Step { cause, step } = &at.0.place
            && kept.len() < KEPT_STEPS
        {
            kept.push(step.clone());
            at = cause;
        }
        let origin = Origin::Cut { digest: at.0.digest, is_of_test: at.0.is_of_test };
        kept.into_iter().rev().fold(Self::new(origin), |path, step| path.push(step))
    }

    fn last(&self) -> Option<&Step> {
        match &self.0.place {
            Place::Step { step, .. } => Some(step),
            Place::Origin(_) => None,
        }
    }

    /// Where the path begins, and its steps.
    pub(crate) fn parts(&self) -> (&Origin, Vec<&Step>) {
        let mut steps = Vec::with_capacity(self.0.depth);
        let mut at = self;
        loop {
            match &at.0.place {
                Place::Origin(origin) => {
                    steps.reverse();
                    return (origin, steps);
                }
                Place::Step { cause, step } => {
                    steps.push(step);
                    at = cause;
                }
            }
        }
    }
}

impl Default for TargetId {
    fn default() -> Self {
        Self::root()
    }
}

impl PartialEq for TargetId {
    fn eq(&self, other: &Self) -> bool {
        self.0.digest == other.0.digest
    }
}

impl Eq for TargetId {}

impl Hash for TargetId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0.digest.0);
    }
}

impl PartialOrd for TargetId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TargetId {
    /// Step by step, as people would sort them; a cause comes before what it causes.
    fn cmp(&self, other: &Self) -> Ordering {
        if self == other {
            return Ordering::Equal;
        }
        let by_depth = match (&self.0.place, &other.0.place) {
            (Place::Step { cause, .. }, _) if self.0.depth > other.0.depth => {
                cause.cmp(other).then(Ordering::Greater)
            }
            (_, Place::Step { cause, .. }) if self.0.depth < other.0.depth => {
                self.cmp(cause).then(Ordering::Less)
            }
            (Place::Step { cause, step }, Place::Step { cause: others, step: other }) => {
                cause.cmp(others).then_with(|| step.cmp(other))
            }
            (Place::Origin(origin), Place::Origin(other)) => origin.cmp(other),
            (Place::Origin(_), Place::Step { .. }) => Ordering::Less,
            (Place::Step { .. }, Place::Origin(_)) => Ordering::Greater,
        };
        by_depth.then_with(|| self.0.digest.cmp(&other.0.digest))
    }
}

impl fmt::Display for TargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&target_text::write(self))
    }
}

impl fmt::Debug for TargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TargetId({self})")
    }
}

impl From<&str> for TargetId {
    /// Reads what [`Display`](fmt::Display) shows. Every text names something: what has none of the known shapes is
    /// the name of a receiver.
    fn from(text: &str) -> Self {
        target_text::read(text)
    }
}

// === impl Step ===

impl Step {
    pub(crate) fn new(receiver: &str, sent: Sent, ordinal: u32) -> Self {
        Self { receiver: bounded(receiver, MAX_RECEIVER), sent, ordinal: ordinal.max(1), is_again: false }
    }

    pub(crate) fn call(receiver: &str, operation: &str, ordinal: u32) -> Self {
        Self::new(receiver, Sent::Call(bounded(operation, MAX_OPERATION)), ordinal)
    }

    pub(crate) fn message(receiver: &str, message: &str, ordinal: u32) -> Self {
        Self::new(receiver, Sent::Message(bounded(message, MAX_OPERATION)), ordinal)
    }

    fn digest_after(&self, cause: PathDigest) -> PathDigest {
        let (kind, what): (&[u8], &str) = match &self.sent {
            Sent::Call(operation) => (b"call", operation),
            Sent::Message(message) => (b"message", message),
            Sent::Whole => (b"whole", ""),
            Sent::AnyCall => (b"any call", ""),
        };
        let (ordinal, again) = (self.ordinal.to_be_bytes(), [u8::from(self.is_again)]);
        PathDigest::of(&[&cause.0, kind, self.receiver.as_bytes(), what.as_bytes(), &ordinal, &again])
    }
}

// === impl PathDigest ===

impl PathDigest {
    fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            // The length keeps parts apart that only together are the same.
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let mut digest = [0; 16];
        digest.copy_from_slice(&hash.finalize()[..16]);
        Self(digest)
    }

    /// Reads 32 hexadecimal digits.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_hex = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        is_hex.then(|| u128::from_str_radix(text, 16).ok())?.map(|number| Self(number.to_be_bytes()))
    }
}

impl fmt::Display for PathDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// A name that is not longer than this; the digest of the whole keeps long ones apart.
pub(crate) fn bounded(name: &str, most: usize) -> Arc<str> {
    if name.len() <= most {
        return name.into();
    }
    let end = (0..=most - 33).rev().find(|&end| name.is_char_boundary(end)).unwrap_or_default();
    format!("{}~{}", &name[..end], PathDigest::of(&[name.as_bytes()])).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn causes_and_their_effects_are_related() {
        let order = TargetId::root().call("order", "POST", "/pay", 1);
        let stock = order.call("stock", "PUT", "/s", 1);
        let second = order.call("stock", "PUT", "/s", 2);
        assert!(order.is_related(&stock) && stock.is_related(&order) && stock.is_related(&stock));
        assert!(!stock.is_related(&second));
        assert_eq!((stock.cause(), order.cause()), (Some(order.clone()), None));
        assert!(stock.is_of_test() && !order.again().call("stock", "PUT", "/s", 1).is_of_test());
        let own = TargetId::of_its_own("order").call("stock", "PUT", "/s", 1);
        assert!(!own.is_of_test() && own.service_of_origin() == Some("order"));
    }

    fn chain(first: &str, length: usize) -> TargetId {
        let start = TargetId::root().then(first, "Start", 1);
        (0..length).fold(start, |at, i| at.then(&format!("actor{i}"), "Update", 1))
    }

    #[test]
    fn long_paths_are_cut_and_still_differ() {
        for length in [10, 63, 64, 65, 200, 1000] {
            let (one, other) = (chain("x", length), chain("y", length));
            assert!(one.parts().1.len() <= MAX_STEPS, "{length}");
            assert_ne!(one, other, "{length}");
            assert_ne!(one.to_string(), other.to_string(), "{length}");
            assert_ne!(one.cmp(&other), Ordering::Equal, "{length}");
            assert_eq!(one.cause(), Some(chain("x", length - 1)), "{length}");
            assert_eq!(TargetId::from(one.to_string().as_str()), one, "{length}");
            assert!(one.is_of_test() && one.is_message());
            let json = serde_json::to_string(&one).unwrap();
            assert_eq!(serde_json::from_str::<TargetId>(&json).unwrap(), one, "{length}");
        }
        assert!(!chain("x", 3).again().then("z", "Go", 1).cause().unwrap().is_of_test());
        let aside = (0..100).fold(chain("x", 1).again(), |at, _| at.then("z", "Go", 1));
        let json = serde_json::to_string(&aside).unwrap();
        assert!(!serde_json::from_str::<TargetId>(&json).unwrap().is_of_test(), "{json}");
    }

    #[test]
    fn long_names_are_cut_and_still_differ() {
        let call =
            |last: char| TargetId::root().call("a", "GET", &format!("/{}{last}", "ä".repeat(9_000)), 1);
        assert!(call('x').to_string().len() < 2 * MAX_OPERATION);
        assert_ne!(call('x'), call('y'));
        assert_eq!(TargetId::from(call('x').to_string().as_str()), call('x'));
    }

    #[test]
    fn names_that_look_like_grammar_are_kept_apart() {
        let root = TargetId::root();
        let all = [
            root.call("a", "GET", "/x > b GET /y", 1),
            root.call("a", "GET", "/x", 1).call("b", "GET", "/y", 1),
            root.call("a", "GET", "/x+", 1),
            root.call("a", "GET", "/x", 1).again(),
            root.call("a", "GET /x #2", "", 1),
            root.call("a", "GET", "/x", 2),
            root.then("a.b", "Go", 1),
            root.then("a", "b.Go", 1),
            root.then("a", "Go/b.Go", 1),
            root.then("a", "Go", 1).then("b", "Go", 1),
            root.then("a", "Go#2", 1),
            root.then("a", "Go", 2),
            root.then("", "", 1),
            root.then("(a)", "Go", 1),
            root.then("say \"hi\"\\\n", "Go", 1),
            TargetId::of_its_own("a"),
            TargetId::of_its_own("a").call("b", "GET", "/", 1),
            TargetId::whole("(a)"),
            TargetId::whole("a GET /x"),
            TargetId::whole("a.Go"),
            TargetId::whole("a"),
            TargetId::whole("a").again(),
            TargetId::any_call("a", 1),
            TargetId::any_call("a", 2),
            TargetId::any_call("a b", 2),
            TargetId::any_call("a", 2).again(),
            root.call("a", "at", "call 2", 1),
            root.call("a", "at call 2", "", 1),
            TargetId::root(),
        ];
        for (place, target) in all.iter().enumerate() {
            let text = target.to_string();
            assert_eq!(TargetId::from(text.as_str()), *target, "{text}");
            for other in &all[place + 1..] {
                assert_ne!(text, other.to_string());
                assert_ne!(target, other);
            }
        }
    }

    #[test]
    fn methods_of_grpc_need_no_verb() {
        let get = TargetId::root().call("stock", "POST", "/shop.Stock/Get", 2);
        assert_eq!(TargetId::from("stock shop.Stock/Get #2"), get);
        assert_eq!(TargetId::from("stock POST /shop.Stock/Get #2"), get);
        assert_eq!(get.to_string(), "stock POST /shop.Stock/Get #2");
    }

    #[test]
    fn texts_of_earlier_versions_are_read() {
        let order = TargetId::root().call("order", "POST", "/pay", 1);
        let read = |text: &str| TargetId::from(text);
        assert_eq!(
            read("order POST /pay > stock PUT /items/{} #2"),
            order.call("stock", "PUT", "/items/9", 2)
        );
        assert_eq!(read("order POST /pay+"), order.again());
        assert_eq!(read("(web) > stock GET /a"), TargetId::of_its_own("web").call("stock", "GET", "/a", 1));
        let plus = TargetId::root().then("gda", "Plus", 10);
        assert_eq!(read("gda.Plus#10/accumulator.Count"), plus.then("accumulator", "Count", 1));
        let user = TargetId::root().then("/user/a5", "Update", 2).then("/user/b", "Go", 1);
        assert_eq!(read("/user/a5.Update#2//user/b.Go"), user);
        assert_eq!(user.to_string(), "/user/a5.Update#2//user/b.Go", "an adapter finds its own name again");
        let json = r#"{"steps":[{"to":"order","call":"POST /pay"},{"to":"stock","call":"PUT /s","nth":2}]}"#;
        let target = order.call("stock", "PUT", "/s", 2);
        assert_eq!(serde_json::to_string(&target).unwrap(), json);
        assert_eq!(serde_json::from_str::<TargetId>(json).unwrap(), target);
        let text = r#""order POST /pay > stock PUT /s #2""#;
        assert_eq!(serde_json::from_str::<TargetId>(text).unwrap(), target);
        for bad in [
            r#"{"steps":[{"to":"a","call":"GET /","any":true}]}"#,
            r#"{"steps":[{}]}"#,
            r#"{"cut":"xyz"}"#,
            r#"{"steps":[],"x":1}"#,
            "17",
        ] {
            assert!(serde_json::from_str::<TargetId>(bad).is_err(), "{bad}");
        }
    }

    fn any_target() -> impl Strategy<Value = TargetId> {
        let part = || "[ab/.#+ >()~\"{}\\\\\u{e4}]{0,6}";
        let step = (part(), part(), 0_u8..4, 0_u32..3, any::<bool>());
        let origin = proptest::option::of(part());
        (origin, proptest::collection::vec(step, 0..5)).prop_map(|(origin, steps)| {
            let start = origin.map_or_else(TargetId::root, |service| TargetId::of_its_own(&service));
            steps.into_iter().fold(start, |path, (to, what, kind, ordinal, is_again)| {
                let step = match kind {
                    0 => Step::call(&to, &what, ordinal),
                    1 => Step::message(&to, &what, ordinal),
                    2 => Step::new(&to, Sent::AnyCall, ordinal),
                    _ => Step::new(&to, Sent::Whole, ordinal),
                };
                path.push(Step { is_again, ..step })
            })
        })
    }

    proptest! {
        #[test]
        fn what_is_shown_or_stored_reads_back(target in any_target()) {
            let text = target.to_string();
            prop_assert_eq!(TargetId::from(text.as_str()), target.clone(), "{}", text);
            let json = serde_json::to_string(&target).unwrap();
            prop_assert_eq!(serde_json::from_str::<TargetId>(&json).unwrap(), target);
        }

        #[test]
        fn any_text_names_something_and_stays_the_same(text in "(?s).{0,200}") {
            let target = TargetId::from(text.as_str());
            let shown = target.to_string();
            prop_assert_eq!(TargetId::from(shown.as_str()), target);
            // A blank at an end would be lost where a text is pasted, so nobody relies on it.
            let has_blank_ends = text.trim() != text;
            let is_kept = text.contains('"') || has_blank_ends || text.len() > MAX_RECEIVER || shown == text;
            prop_assert!(is_kept, "adapters find their own names: {}", shown);
        }

        #[test]
        fn order_agrees_with_equality(a in any_target(), b in any_target(), c in any_target()) {
            prop_assert_eq!(a == b, a.cmp(&b) == Ordering::Equal);
            prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
            if a <= b && b <= c {
                prop_assert!(a <= c);
            }
        }
    }
}
