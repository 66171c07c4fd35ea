//! Secrets: found by name and by shape, shown as `[redacted]`, stored encrypted or discarded.
//!
//! Everything that is written passes a [`Redactor`] first, on the writer's thread, so that neither the
//! files nor anything read from them contains a secret. The original is sealed with a [`Key`] that stays
//! on the machine, outside of the store; only a replay restores it.

mod in_grpc;
mod in_json;
mod in_pairs;
mod in_spans;
mod key;
#[cfg(test)]
mod planted;
mod seal;
mod values;

use std::sync::{Arc, Mutex, PoisonError};

use faultscope_model::grpc::Descriptors;
use faultscope_model::secrets::{SecretNames, redact_str};
use faultscope_model::{SecretRules, Span, trace::ReportedSpan};

pub use faultscope_model::secrets::REDACTED;

pub use key::{Key, KeyPlace};
pub use seal::UnsealError;

pub(crate) use in_spans::{restore, restore_reported};
pub(crate) use seal::{Original, unseal};
use values::SecretValues;

/// What is secret, and where the key is.
#[derive(Debug, Clone, Default)]
pub struct SecretOptions {
    /// Which values are secret, and whether they are stored encrypted.
    pub rules: SecretRules,
    /// Whether everything that is not secret is stored as it is, not encrypted.
    pub plain: bool,
    /// The key file; the user's default if none.
    pub key: Option<KeyPlace>,
}

/// Redacts what is about to be written or shown. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Redactor {
    rules: Arc<SecretNames>,
    /// Values that occurred in secret places, so that they are found elsewhere too.
    known: Arc<Mutex<SecretValues>>,
    /// What is known of gRPC messages, to find secret fields by their names.
    descriptors: Arc<Mutex<Descriptors>>,
}

impl Default for Redactor {
    fn default() -> Self {
        Self::new(&SecretRules::default())
    }
}

impl Redactor {
    /// A redactor with the rules of an application in addition to the built-in ones.
    pub fn new(rules: &SecretRules) -> Self {
        Self { rules: Arc::new(SecretNames::new(rules)), known: Arc::default(), descriptors: Arc::default() }
    }

    /// What is known of gRPC messages.
    pub(crate) fn descriptors(&self) -> Descriptors {
        self.descriptors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds what is known of gRPC messages; returns all of it.
    pub(crate) fn describe_messages(&self, more: Descriptors) -> Descriptors {
        let mut descriptors = self.descriptors.lock().unwrap_or_else(PoisonError::into_inner);
        descriptors.merge(more);
        descriptors.clone()
    }

    /// A redacted text; none if there is nothing to redact.
    pub fn text(&self, text: &str) -> Option<String> {
        let known = self.lock().replace(text.as_bytes()).map(|b| String::from_utf8_lossy(&b).into_owned());
        let plain = redact_str(known.as_deref().unwrap_or(text), &self.rules);
        plain.or(known)
    }

    /// Redacts a text in place.
    pub fn redact(&self, text: &mut String) {
        if let Some(redacted) = self.text(text) {
            *text = redacted;
        }
    }

    /// Which names denote a secret.
    pub fn names(&self) -> &SecretNames {
        &self.rules
    }

    /// Redacts every text in a JSON value; returns whether anything changed. What the tool itself writes has names of
    /// its own (`code`, `key`, `pass`), so only texts count here.
    pub fn redact_json(&self, value: &mut serde_json::Value) -> bool {
        use serde_json::Value;
        match value {
            Value::String(text) => match self.text(text) {
                Some(redacted) => {
                    *text = redacted;
                    true
                }
                None => false,
            },
            // No short-circuit: every element must be redacted.
            Value::Array(items) => items.iter_mut().fold(false, |any, item| self.redact_json(item) | any),
            Value::Object(fields) => {
                fields.values_mut().fold(false, |any, field| self.redact_json(field) | any)
            }
            _ => false,
        }
    }

    /// Redacts a text that is JSON, which it stays; none if there is nothing to redact.
    pub fn json_text(&self, text: &str) -> Option<String> {
        let mut value = serde_json::from_str(text).ok()?;
        if self.redact_json(&mut value) { serde_json::to_string(&value).ok() } else { None }
    }

    /// Redacts a span that a tracer reported.
    pub fn reported(&self, span: &mut ReportedSpan) {
        if let Some((redacted, _)) = in_spans::reported(&self.rules, span) {
            *span = redacted;
        }
    }

    /// Redacts calls that are written together; returns the originals of each.
    pub(crate) fn redact_calls(&self, spans: &mut [&mut Span]) -> Vec<Vec<Original>> {
        let descriptors = self.descriptors();
        let mut known = self.lock();
        let mut found = |value: &[u8]| known.add(value);
        let mut all: Vec<_> = spans
            .iter_mut()
            .map(|span| in_spans::redact_call(&self.rules, &descriptors, span, &mut found))
            .collect();
        // A second pass, now that the values of all calls are known.
        for (span, originals) in spans.iter_mut().zip(&mut all) {
            in_spans::sweep(&mut known, &descriptors, span, originals);
        }
        all
    }

    /// Redacts a reported span; none, determined quickly, if it has no secrets.
    pub(crate) fn redact_reported(&self, span: &ReportedSpan) -> Option<(ReportedSpan, Vec<Original>)> {
        in_spans::reported(&self.rules, span)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, SecretValues> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Encrypts originals, or discards them.
#[derive(Debug)]
pub(crate) struct Sealer {
    drop: bool,
    place: Option<KeyPlace>,
    sealing: Option<seal::Sealing>,
    has_warned: bool,
}

impl Sealer {
    /// Fails at once if there is a key that cannot be used, not when the first secret comes.
    pub(crate) fn new(options: &SecretOptions) -> Result<Self, crate::StoreError> {
        let mut sealer =
            Self { drop: options.rules.drop, place: options.key.clone(), sealing: None, has_warned: false };
        if !sealer.drop
            && let Ok(place) = sealer.place()
            && let Some(key) = Key::load(&place)?
        {
            sealer.sealing = Some(seal::Sealing::new(key));
        }
        Ok(sealer)
    }

    /// Seals originals; none if secrets are discarded.
    pub(crate) fn seal(&mut self, originals: &[Original]) -> Option<Vec<u8>> {
        if self.drop || originals.is_empty() {
            return None;
        }
        match self.sealing() {
            Ok(sealing) => Some(sealing.seal(originals)),
            Err(error) => {
                if !std::mem::replace(&mut self.has_warned, true) {
                    tracing::warn!(%error, cause = %error.source, "secrets are discarded: there is no key to encrypt them with");
                }
                None
            }
        }
    }

    /// As [`Self::seal`], but fails if there is no key.
    pub(crate) fn try_seal(&mut self, originals: &[Original]) -> Result<Vec<u8>, crate::StoreError> {
        Ok(self.sealing()?.seal(originals))
    }

    fn place(&self) -> Result<KeyPlace, crate::StoreError> {
        self.place.clone().map_or_else(KeyPlace::user_default, Ok)
    }

    fn sealing(&mut self) -> Result<&mut seal::Sealing, crate::StoreError> {
        let place = self.place()?;
        Ok(match &mut self.sealing {
            Some(sealing) => sealing,
            none => none.insert(seal::Sealing::new(Key::load_or_make(&place)?)),
        })
    }
}
