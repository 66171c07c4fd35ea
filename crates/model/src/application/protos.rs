//! `protos`: files that describe the messages of gRPC services, and folders in which imports are found.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize as DeriveDeserialize, Serialize};

use super::Application;
use super::read::{Reader, SpecError};
use crate::grpc::{Descriptors, ProtoSource};

/// Files that describe the messages of gRPC services. Paths are relative to the folder of the application.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Protos {
    /// `.proto` files, folders of these, and descriptor sets.
    pub files: Vec<ProtoPath>,
    /// Folders in which imported files are looked for, after the folders among the files and the application's own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub imports: Vec<ProtoPath>,
}

/// A path in `protos`, and where it is written.
#[derive(Debug, Clone, Eq)]
pub struct ProtoPath {
    /// As it is written.
    pub path: String,
    /// The application file that names it.
    pub file: String,
    /// The line of that file.
    pub line: Option<u64>,
    /// The dotted key, such as `protos.0`.
    pub key: String,
}

// Where a path is written decides nothing: a file may gain lines above it.
impl PartialEq for ProtoPath {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Serialize for ProtoPath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.path)
    }
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProtoPathContent {
    /// The bytes of a descriptor set.
    DescriptorSet(Vec<u8>),
    /// A file by its name relative to its import folder, or all files of a folder relative to it.
    Sources(Vec<String>),
}

/// Reads `protos` for [`Application::load_protos`].
pub trait OpenProtoPath {
    /// What is at a path.
    fn open_path(&self, path: &str) -> Result<ProtoPathContent, String>;
    /// A file by its name in `import`; none if there is none in any of the import folders.
    fn open_import(&self, name: &str) -> Result<Option<ProtoSource>, String>;
}

impl Protos {
    /// Whether the application file names none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

impl ProtoPath {
    /// An error at the place where the path is written.
    pub fn error(&self, problem: impl Into<String>) -> SpecError {
        SpecError {
            file: self.file.clone(),
            line: self.line,
            key: self.key.clone(),
            problem: problem.into(),
            hint: None,
        }
    }
}

impl Application {
    /// Reads the files that `protos` names into [`Application::descriptors`].
    pub fn load_protos(&mut self, open: &dyn OpenProtoPath) -> Result<(), SpecError> {
        let mut descriptors = Descriptors::default();
        for path in &self.protos.files {
            let content = open
                .open_path(&path.path)
                .map_err(|problem| path.error(format!("cannot read `{}`: {problem}", path.path)))?;
            let added = match content {
                ProtoPathContent::DescriptorSet(bytes) => Descriptors::from_descriptor_set(&bytes),
                ProtoPathContent::Sources(names) if names.is_empty() => {
                    return Err(path.error(format!("there is no .proto file in `{}`", path.path)));
                }
                ProtoPathContent::Sources(names) => {
                    Descriptors::from_sources(&names, &|name| open.open_import(name))
                }
            };
            descriptors.merge(added.map_err(|error| SpecError {
                hint: Some(
                    "imports are looked for in the folders that `protos` and its `import` name; a descriptor set \
                     (`protoc --include_imports -o api.binpb`) needs none"
                        .to_owned(),
                ),
                ..path.error(error.to_string())
            })?);
        }
        self.descriptors = descriptors;
        Ok(())
    }
}

/// `protos` as it is written: a list of paths, or an object with `files` and `import`.
#[derive(Debug, Clone, Default)]
pub(super) struct RawProtos {
    files: Vec<String>,
    import: Vec<String>,
    /// Whether the paths stand under `files`.
    is_object: bool,
}

#[derive(DeriveDeserialize)]
#[serde(deny_unknown_fields)]
struct RawObject {
    files: Vec<String>,
    #[serde(default)]
    import: Vec<String>,
}

impl<'de> Deserialize<'de> for RawProtos {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Forms;
        impl<'de> Visitor<'de> for Forms {
            type Value = RawProtos;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of .proto files, folders and descriptor sets, or `files` with `import`")
            }

            fn visit_str<E: de::Error>(self, path: &str) -> Result<RawProtos, E> {
                Ok(RawProtos { files: vec![path.to_owned()], ..RawProtos::default() })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<RawProtos, A::Error> {
                let files = Vec::deserialize(SeqAccessDeserializer::new(list))?;
                Ok(RawProtos { files, ..RawProtos::default() })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawProtos, A::Error> {
                let RawObject { files, import } = RawObject::deserialize(MapAccessDeserializer::new(map))?;
                Ok(RawProtos { files, import, is_object: true })
            }
        }
        deserializer.deserialize_any(Forms)
    }
}

impl Reader<'_> {
    pub(super) fn protos(&self, raw: RawProtos) -> Result<Protos, SpecError> {
        let locate = |folder: &[&str], paths: Vec<String>| -> Result<Vec<ProtoPath>, SpecError> {
            let mut located = Vec::new();
            for (index, path) in paths.into_iter().enumerate() {
                let index = index.to_string();
                let empty = self.error(&[folder, &[index.as_str()]].concat(), "an empty path");
                if path.trim().is_empty() {
                    return Err(empty);
                }
                let SpecError { file, line, key, .. } = empty;
                located.push(ProtoPath { path, file, line, key });
            }
            Ok(located)
        };
        let files: &[&str] = if raw.is_object { &["protos", "files"] } else { &["protos"] };
        Ok(Protos { files: locate(files, raw.files)?, imports: locate(&["protos", "import"], raw.import)? })
    }
}
