//! Server reflection: how a service describes itself, in the versions `v1` and `v1alpha`, which differ in name only.
//!
//! Only the messages are here; whoever has a connection sends them.

use super::descriptors::{DescriptorError, Descriptors};
use super::wire::{WireReader, WireValue, write_bytes};

/// The paths of the one method of reflection, the newer first.
pub const REFLECTION_PATHS: [&str; 2] = [
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// The most files that are asked for.
const MAX_FILES: usize = 500;
/// The most bytes of all files.
const MAX_BYTES: usize = 16 << 20;
/// The most services that are asked for.
const MAX_SERVICES: usize = 200;

// Numbers of fields, as the file of the protocol has them.
const FILE_BY_NAME: u32 = 3;
const FILE_OF_SYMBOL: u32 = 4;
const LIST_SERVICES: u32 = 7;
const FILES: u32 = 4;
const SERVICES: u32 = 6;
const ERROR: u32 = 7;
const FILE_NAME: u32 = 1;
const FILE_IMPORT: u32 = 3;

/// A conversation with a service: what to ask next, and what was learned.
///
/// Ask [`Self::next_request`], hand the answer to [`Self::read_answer`], until there is nothing left to ask.
#[derive(Debug, Default)]
pub struct Reflection {
    waiting: Vec<Wanted>,
    asked: Vec<Wanted>,
    files: Vec<Vec<u8>>,
    bytes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    Services,
    Service(String),
    File(String),
}

impl Reflection {
    /// Asks for all services.
    pub fn of_all_services() -> Self {
        Self { waiting: vec![Wanted::Services], ..Self::default() }
    }

    /// Asks for one service, by its full name.
    pub fn of_service(name: &str) -> Self {
        Self { waiting: vec![Wanted::Service(name.to_owned())], ..Self::default() }
    }

    /// The next message to send; none when all is known.
    pub fn next_request(&mut self) -> Option<Vec<u8>> {
        let wanted = self.waiting.pop()?;
        let mut request = Vec::new();
        match &wanted {
            Wanted::Services => write_bytes(LIST_SERVICES, b"*", 0, &mut request),
            Wanted::Service(name) => write_bytes(FILE_OF_SYMBOL, name.as_bytes(), 0, &mut request),
            Wanted::File(name) => write_bytes(FILE_BY_NAME, name.as_bytes(), 0, &mut request),
        }
        self.asked.push(wanted);
        Some(request)
    }

    /// Takes in an answer. A service that does not know what it is asked for says nothing, so that is no error.
    pub fn read_answer(&mut self, answer: &[u8]) {
        for (number, content) in contents(answer) {
            match number {
                FILES => {
                    for (_, file) in contents(content).filter(|(number, _)| *number == 1) {
                        self.add_file(file);
                    }
                }
                SERVICES => {
                    for (_, service) in contents(content).filter(|(number, _)| *number == 1) {
                        let name = contents(service).find(|(number, _)| *number == 1);
                        let name = name.and_then(|(_, name)| std::str::from_utf8(name).ok());
                        // Its own description is of no use.
                        if let Some(name) = name.filter(|name| !name.starts_with("grpc.reflection.")) {
                            self.want(Wanted::Service(name.to_owned()));
                        }
                    }
                }
                ERROR => {}
                _ => {}
            }
        }
    }

    /// What was learned, if the files fit together.
    pub fn finish(self) -> Result<Descriptors, DescriptorError> {
        if self.files.is_empty() {
            return Ok(Descriptors::default());
        }
        Descriptors::from_files(&self.files)
    }

    fn add_file(&mut self, file: &[u8]) {
        if self.files.len() >= MAX_FILES || self.bytes + file.len() > MAX_BYTES {
            return;
        }
        if self.files.iter().any(|known| known == file) {
            return;
        }
        self.bytes += file.len();
        self.files.push(file.to_vec());
        let imports: Vec<String> = texts(file, FILE_IMPORT).collect();
        // Many services send all that a file needs at once.
        for import in imports.into_iter().filter(|import| !super::descriptors::is_built_in(import)) {
            let has_name = |known: &Vec<u8>| texts(known, FILE_NAME).next().as_deref() == Some(&import);
            if !self.files.iter().any(has_name) {
                self.want(Wanted::File(import));
            }
        }
    }

    fn want(&mut self, wanted: Wanted) {
        let is_known = self.waiting.contains(&wanted) || self.asked.contains(&wanted);
        if !is_known && self.waiting.len() + self.asked.len() < MAX_FILES + MAX_SERVICES {
            self.waiting.push(wanted);
        }
    }
}

/// The fields of a message that hold bytes, as far as it can be read.
fn contents(message: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let mut reader = WireReader::new(message);
    std::iter::from_fn(move || {
        loop {
            let field = reader.next_field().ok().flatten()?;
            if let WireValue::Bytes { content, missing: 0 } = field.value {
                return Some((field.number, content));
            }
        }
    })
}

fn texts(message: &[u8], wanted: u32) -> impl Iterator<Item = String> {
    contents(message)
        .filter(move |(number, _)| *number == wanted)
        .filter_map(|(_, text)| String::from_utf8(text.to_vec()).ok())
}
