//! Application files from what people already have: Compose files, Kubernetes manifests, Procfiles.
//!
//! Pure functions from texts to an [`ImportedApplication`]; files that the texts refer to are asked for
//! through a callback, so that nothing here touches a disk. What cannot be carried over is said in a
//! warning, never dropped in silence.

mod compose;
mod dotenv;
mod emit;
mod finish;
mod infer;
mod interpolate;
mod kubernetes;
mod mounts;
mod node;
mod procfile;
pub(crate) mod shell;
mod tracing;
mod warnings;

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde::Serialize;

use crate::ids::ServiceName;
use crate::protocol::Protocol;

pub use compose::{ComposeInput, from_compose};
pub(crate) use emit::{quote, scalar};
pub use infer::PortOrigin;
pub use kubernetes::{ManifestInput, from_manifests, looks_like_manifest};
pub use mounts::{ImportedMount, ImportedSource, PathKind};
pub use procfile::from_procfile;

/// Asks for the text of a file that an imported file refers to, by its path relative to the project.
pub type Load<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Asks what stands at a path, relative to the project.
pub type Look<'a> = &'a dyn Fn(&str) -> PathKind;

/// A foreign file that cannot be carried over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}{}: {message}", if *.line == 0 { String::new() } else { format!(":{}", .line) })]
pub struct ImportError {
    /// The file's name as the caller gave it.
    pub file: String,
    /// The line, from 1; 0 when no single line is to blame.
    pub line: u32,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl ImportError {
    fn at(file: &str, line: u32, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, message: message.into(), hint: None }
    }

    fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// An application that was read from foreign files.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// The application.
    pub application: ImportedApplication,
    /// What was not carried over, or needs a look.
    pub warnings: Vec<String>,
}

/// The application file as it is written, before it is checked like any other one.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ImportedApplication {
    /// Lines of comment at the top of the file.
    #[serde(skip)]
    pub header: Vec<String>,
    /// Its name.
    pub name: String,
    /// The folder that its paths are relative to, seen from the project, where it is not the project itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Its services, in the order of the first file.
    pub services: IndexMap<String, ImportedService>,
    /// Hosts outside the application.
    pub external: Vec<ImportedExternal>,
    /// Tests; foreign files name none.
    pub tests: Vec<serde_json::Value>,
    /// The circumstance of the running system.
    #[serde(skip_serializing_if = "ImportedCircumstance::is_empty")]
    pub failing: ImportedCircumstance,
}

/// A service of an imported application.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ImportedService {
    /// What takes the place of the image's entry point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// Program and arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The image, for platforms that run images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The directory an image is built from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// Working directory of a process, relative to the application file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Working directory in a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// User in a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Other names under which it is called.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Ports, as the service itself has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<ImportedPort>,
    /// Where ports come from that no key declares; they are written as a comment.
    #[serde(skip)]
    pub port_origins: Vec<(u16, PortOrigin)>,
    /// Its port on the host, by its own port.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub publish: BTreeMap<u16, u16>,
    /// Environment.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// When it counts as ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<ImportedReadiness>,
    /// Services that must be ready before it starts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// What it sees at paths of its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<ImportedMount>,
    /// How long it may take to end by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_within: Option<String>,
}

impl ImportedService {
    /// What a process executes: the entry point and the command after it.
    pub fn words(&self) -> impl Iterator<Item = &String> {
        self.entrypoint.iter().flatten().chain(&self.command)
    }

    /// The same words, to change addresses in them.
    fn words_mut(&mut self) -> impl Iterator<Item = &mut String> {
        self.entrypoint.iter_mut().flatten().chain(&mut self.command)
    }

    /// Everything that may hold an address and is written into the application file.
    fn texts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let contents = self.mounts.iter_mut().filter_map(|mount| match &mut mount.source {
            ImportedSource::Content(text) => Some(text),
            _ => None,
        });
        let words = self.entrypoint.iter_mut().flatten().chain(&mut self.command);
        self.env.values_mut().chain(words).chain(contents)
    }
}

/// A port, with its protocol where the number does not tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ImportedPort {
    /// The number alone.
    Plain(u16),
    /// The number and what is spoken there.
    Speaking {
        /// The number.
        port: u16,
        /// What is spoken.
        protocol: Protocol,
    },
}

impl ImportedPort {
    /// The number.
    pub fn number(self) -> u16 {
        match self {
            Self::Plain(port) | Self::Speaking { port, .. } => port,
        }
    }
}

/// When an imported service counts as ready; exactly one of the first four is given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ImportedReadiness {
    /// The path of a GET that succeeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// A port that accepts connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<u16>,
    /// The service whose health gRPC is asked for; empty for the whole server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc: Option<String>,
    /// A command that ends with 0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The port of the GET or of gRPC, where it is not the service's first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// How long it may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
}

/// A host outside the application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImportedExternal {
    /// Its name.
    pub host: String,
    /// Whether calls may leave.
    pub allow: bool,
}

/// What the running system has and the simplest circumstance has not.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ImportedCircumstance {
    /// Numbers of instances.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub instances: BTreeMap<String, u32>,
    /// Limits by service: `memory`, `cpu`, `pids`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, BTreeMap<String, String>>,
}

impl ImportedCircumstance {
    /// Whether nothing differs from the simplest.
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty() && self.config.is_empty()
    }
}

/// Whether a text can be an alias or an outside host of our own.
fn is_host_name(text: &str) -> bool {
    text.parse::<ServiceName>().is_ok() && text != "localhost"
}

/// Whether a text can name a service.
fn is_service_name(text: &str) -> bool {
    is_host_name(text) && text != ServiceName::TEST
}

#[cfg(test)]
mod tests;
