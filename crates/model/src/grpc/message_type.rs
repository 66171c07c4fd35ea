//! One type of message: reads and writes its values as JSON.

use std::fmt;

use prost_reflect::{DynamicMessage, MessageDescriptor};
use serde_json::Value;

use super::json::{Defaults, show_message};
use super::rewrite::trim_message;

/// A type of message, from its descriptor.
#[derive(Clone, PartialEq, Eq)]
pub struct MessageType(pub(super) MessageDescriptor);

/// Bytes that are not a message of a type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a message of type `{message}`: {problem}")]
pub struct DecodeError {
    /// The full name of the type.
    pub message: String,
    /// What the decoder found.
    pub problem: String,
}

/// A value that is not a message of a type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a message of type `{message}`: {problem}")]
pub struct EncodeError {
    /// The full name of the type.
    pub message: String,
    /// What does not fit, such as an unknown field.
    pub problem: String,
}

impl MessageType {
    /// Its full name, such as `shop.Order`.
    pub fn name(&self) -> &str {
        self.0.full_name()
    }

    /// The names of its fields, in the order of the file.
    pub fn fields(&self) -> Vec<String> {
        self.0.fields().map(|field| field.name().to_owned()).collect()
    }

    /// Decodes a message that is complete. Fields with their default value are left out.
    pub fn decode_to_json(&self, bytes: &[u8]) -> Result<Value, DecodeError> {
        Ok(show_message(&self.decode(bytes)?, Defaults::LeaveOut))
    }

    /// Decodes a message that is complete. Fields that are never absent are there, with their default value if
    /// the bytes have none.
    pub fn decode_with_defaults(&self, bytes: &[u8]) -> Result<Value, DecodeError> {
        Ok(show_message(&self.decode(bytes)?, Defaults::Show))
    }

    /// Decodes what there is of a message that was cut off.
    pub fn decode_beginning(&self, bytes: &[u8]) -> Result<Value, DecodeError> {
        self.decode_to_json(&trim_message(&self.0, bytes))
    }

    /// Encodes a message from JSON as protobuf maps it: fields by their name in JSON or in the file, numbers of 64
    /// bits as numbers or texts, enumerations by name or number.
    pub fn encode_from_json(&self, value: &Value) -> Result<Vec<u8>, EncodeError> {
        let message = DynamicMessage::deserialize(self.0.clone(), value)
            .map_err(|error| EncodeError { message: self.name().to_owned(), problem: error.to_string() })?;
        Ok(prost::Message::encode_to_vec(&message))
    }

    fn decode(&self, bytes: &[u8]) -> Result<DynamicMessage, DecodeError> {
        DynamicMessage::decode(self.0.clone(), bytes)
            .map_err(|error| DecodeError { message: self.name().to_owned(), problem: error.to_string() })
    }
}

impl fmt::Debug for MessageType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MessageType({})", self.name())
    }
}
