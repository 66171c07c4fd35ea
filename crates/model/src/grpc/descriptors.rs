//! What is known of the services and messages of an application.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use prost::Message as _;
use prost_reflect::prost_types::FileDescriptorProto;
use prost_reflect::prost_types::method_options::IdempotencyLevel;
use prost_reflect::{DescriptorPool, MethodDescriptor};
use protox::file::{FileResolver as _, GoogleFileResolver};

use super::message_type::MessageType;
use super::sources::{self, OpenProto};
use super::wire::{WireField, WireReader, WireValue, write_bytes, write_field};

/// The number of the field `file` in a `FileDescriptorSet`.
const FILES: u32 = 1;
/// The fields of stored descriptors, and their version.
const STORED_VERSION: u32 = 1;
const STORED_SET: u32 = 2;
const VERSION: u64 = 1;
/// The number of the field `syntax` in a `FileDescriptorProto`.
const SYNTAX: u32 = 12;

/// Services and messages by name. Cheap to clone.
///
/// ```
/// use faultscope_model::grpc::{Descriptors, ProtoSource};
/// let text = r#"
///     syntax = "proto3";
///     package shop;
///     message Order { string id = 1; int32 pieces = 2; }
///     service Orders { rpc Get(Order) returns (Order); }
/// "#;
/// let open = |name: &str| {
///     let source = ProtoSource { place: name.to_owned(), text: text.to_owned() };
///     Ok((name == "shop.proto").then_some(source))
/// };
/// let descriptors = Descriptors::from_sources(&["shop.proto".to_owned()], &open).unwrap();
/// let method = descriptors.method("shop.Orders/Get").unwrap();
/// let order = serde_json::json!({ "id": "a7", "pieces": 2 });
/// let bytes = method.input.encode_from_json(&order).unwrap();
/// assert_eq!(method.input.decode_to_json(&bytes).unwrap(), order);
/// ```
#[derive(Clone, Default)]
pub struct Descriptors {
    /// One for each source, in the order in which they were added. Two sources may define the same names, such as
    /// a file here and what a service says of itself, so they are not put together.
    pools: Vec<DescriptorPool>,
}

/// Why descriptors cannot be used, with file and line where there are any.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DescriptorError(pub(super) String);

/// A method of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Method {
    /// The full name of its service, such as `shop.Orders`.
    pub service: String,
    /// Its own name, such as `Get`.
    pub name: String,
    /// What a request consists of.
    pub input: MessageType,
    /// What a response consists of.
    pub output: MessageType,
    /// Whether a request may have any number of messages.
    pub client_streaming: bool,
    /// Whether a response may have any number of messages.
    pub server_streaming: bool,
    /// What the file says about calling it twice.
    pub idempotency: Idempotency,
}

/// What `idempotency_level` says about calling a method twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Idempotency {
    /// Nothing.
    #[default]
    Unknown,
    /// It only reads.
    NoSideEffects,
    /// It may write, but twice is the same as once.
    Idempotent,
}

impl Descriptors {
    /// Compiles `.proto` files; `open` returns these and those that they import, each by its name in `import`.
    pub fn from_sources(roots: &[String], open: OpenProto<'_>) -> Result<Self, DescriptorError> {
        if roots.is_empty() {
            return Ok(Self::default());
        }
        Ok(Self { pools: vec![sources::compile(roots, open)?] })
    }

    /// Reads an encoded `FileDescriptorSet`, as `protoc --descriptor_set_out --include_imports` writes it.
    pub fn from_descriptor_set(bytes: &[u8]) -> Result<Self, DescriptorError> {
        let damaged = || DescriptorError("this is no descriptor set".to_owned());
        let mut files = Vec::new();
        let mut reader = WireReader::new(bytes);
        while let Some(field) = reader.next_field().map_err(|_| damaged())? {
            match (field.number, field.value) {
                (FILES, WireValue::Bytes { content, missing: 0 }) => files.push(content.to_vec()),
                (_, WireValue::Bytes { missing: 0, .. }) => {}
                _ => return Err(damaged()),
            }
        }
        Self::from_files(&files)
    }

    /// Reads encoded `FileDescriptorProto`s, in any order.
    pub fn from_files(files: &[Vec<u8>]) -> Result<Self, DescriptorError> {
        let mut set = Vec::new();
        for file in files.iter().chain(&missing_built_in(files)) {
            write_bytes(FILES, &without_edition(file), 0, &mut set);
        }
        // The crate panics for some sets in which names are defined twice, and a set may come from a service.
        let build = || {
            let mut pool = DescriptorPool::new();
            pool.decode_file_descriptor_set(set.as_slice()).map(|()| pool).map_err(|error| {
                let text = format!("{error:?}");
                DescriptorError(text.lines().next().unwrap_or_default().chars().take(500).collect())
            })
        };
        let built = std::panic::catch_unwind(build);
        let contradicting =
            |_| Err(DescriptorError("the files of this set contradict one another".to_owned()));
        Ok(Self { pools: vec![built.unwrap_or_else(contradicting)?] })
    }

    /// Adds what others know. What is known already takes precedence.
    pub fn merge(&mut self, others: Self) {
        for pool in others.pools {
            if !self.pools.contains(&pool) {
                self.pools.push(pool);
            }
        }
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    /// A method by its name: `package.Service/Method`, also with a slash in front, as paths have it.
    pub fn method(&self, name: &str) -> Option<Method> {
        let (service, method) = name.strip_prefix('/').unwrap_or(name).rsplit_once('/')?;
        self.pools.iter().find_map(|pool| {
            let service = pool.get_service_by_name(service)?;
            service.methods().find(|found| found.name() == method).map(|found| Method::new(&found))
        })
    }

    /// A type of message by its full name.
    pub fn message(&self, name: &str) -> Option<MessageType> {
        self.pools.iter().find_map(|pool| pool.get_message_by_name(name)).map(MessageType)
    }

    /// Whether a service is known, by its full name.
    pub fn has_service(&self, name: &str) -> bool {
        self.pools.iter().any(|pool| pool.get_service_by_name(name).is_some())
    }

    /// The names of all methods, as `package.Service/Method`, sorted.
    pub fn method_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for service in self.pools.iter().flat_map(DescriptorPool::services) {
            let methods = service.methods();
            names.extend(methods.map(|method| format!("{}/{}", service.full_name(), method.name())));
        }
        names.sort();
        names.dedup();
        names
    }

    /// An encoded `FileDescriptorSet` for each source.
    pub fn to_descriptor_sets(&self) -> Vec<Vec<u8>> {
        self.pools.iter().map(DescriptorPool::encode_to_vec).collect()
    }

    /// All sources as one text of bytes, for [`Self::from_bytes`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_field(WireField { number: STORED_VERSION, value: WireValue::Varint(VERSION) }, &mut bytes);
        for set in self.to_descriptor_sets() {
            write_bytes(STORED_SET, &set, 0, &mut bytes);
        }
        bytes
    }

    /// Reads what [`Self::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DescriptorError> {
        let damaged = || DescriptorError("the stored descriptors are damaged".to_owned());
        let mut descriptors = Self::default();
        let mut reader = WireReader::new(bytes);
        while let Some(field) = reader.next_field().map_err(|_| damaged())? {
            match (field.number, field.value) {
                (STORED_VERSION, WireValue::Varint(VERSION)) => {}
                (STORED_VERSION, _) => {
                    return Err(DescriptorError("a newer version stored these descriptors".to_owned()));
                }
                (STORED_SET, WireValue::Bytes { content, missing: 0 }) => {
                    descriptors.merge(Self::from_descriptor_set(content)?);
                }
                _ => return Err(damaged()),
            }
        }
        Ok(descriptors)
    }
}

impl fmt::Debug for Descriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.method_names()).finish()
    }
}

impl PartialEq for Descriptors {
    fn eq(&self, other: &Self) -> bool {
        self.pools == other.pools || self.to_descriptor_sets() == other.to_descriptor_sets()
    }
}

impl Method {
    fn new(method: &MethodDescriptor) -> Self {
        let options = method.method_descriptor_proto().options.as_ref();
        let idempotency = match options.map(|options| options.idempotency_level()) {
            Some(IdempotencyLevel::NoSideEffects) => Idempotency::NoSideEffects,
            Some(IdempotencyLevel::Idempotent) => Idempotency::Idempotent,
            Some(IdempotencyLevel::IdempotencyUnknown) | None => Idempotency::Unknown,
        };
        Self {
            service: method.parent_service().full_name().to_owned(),
            name: method.name().to_owned(),
            input: MessageType(method.input()),
            output: MessageType(method.output()),
            client_streaming: method.is_client_streaming(),
            server_streaming: method.is_server_streaming(),
            idempotency,
        }
    }

    /// The path of its requests: `/package.Service/Method`.
    pub fn path(&self) -> String {
        format!("/{}/{}", self.service, self.name)
    }
}

/// Whether an imported file comes with the compiler.
pub(super) fn is_built_in(import: &str) -> bool {
    import.starts_with("google/protobuf/") && GoogleFileResolver::new().open_file(import).is_ok()
}

/// Files that come with the compiler and are imported, but not there: sets are often written without imports.
fn missing_built_in(files: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut names = BTreeSet::new();
    let mut waiting = Vec::new();
    let parsed = files.iter().filter_map(|file| FileDescriptorProto::decode(file.as_slice()).ok());
    for file in parsed {
        names.insert(file.name().to_owned());
        waiting.extend(file.dependency);
    }
    let mut missing = Vec::new();
    while let Some(import) = waiting.pop() {
        if is_built_in(&import)
            && names.insert(import.clone())
            && let Ok(file) = GoogleFileResolver::new().open_file(&import)
        {
            waiting.extend(file.file_descriptor_proto().dependency.iter().cloned());
            missing.push(file.file_descriptor_proto().encode_to_vec());
        }
    }
    missing
}

/// A file with its edition changed to proto3. The messages of an edition are encoded in the same way, and the
/// decoder knows no editions. What else differs, such as which fields can be absent, does not matter for reading.
fn without_edition(file: &[u8]) -> Cow<'_, [u8]> {
    let mut out = Vec::new();
    let mut is_edition = false;
    let mut reader = WireReader::new(file);
    while let Ok(Some(field)) = reader.next_field() {
        match field.value {
            WireValue::Bytes { content: b"editions", missing: 0 } if field.number == SYNTAX => {
                is_edition = true;
                write_bytes(SYNTAX, b"proto3", 0, &mut out);
            }
            _ => write_field(field, &mut out),
        }
    }
    out.extend(reader.rest());
    if is_edition { Cow::Owned(out) } else { Cow::Borrowed(file) }
}
