//! Compiles `.proto` files that are in memory.

use std::collections::{BTreeMap, VecDeque};

use prost_reflect::DescriptorPool;
use protox::Compiler;
use protox::file::{File, FileResolver, GoogleFileResolver};

use super::descriptors::DescriptorError;

/// The most files that are read for one application, imported ones included.
const MAX_FILES: usize = 4000;
/// The most bytes of all files: several times what the interfaces of a large cloud have.
const MAX_BYTES: usize = 64 << 20;

/// The text of a `.proto` file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtoSource {
    /// The file as messages name it.
    pub place: String,
    /// What is in it.
    pub text: String,
}

/// Opens a file by the name under which files import it; none if there is no such file.
pub type OpenProto<'a> = &'a dyn Fn(&str) -> Result<Option<ProtoSource>, String>;

/// Compiles files and what they import.
pub(super) fn compile(roots: &[String], open: OpenProto<'_>) -> Result<DescriptorPool, DescriptorError> {
    let mut files = MemoryFiles::default();
    let mut places = BTreeMap::new();
    let mut waiting: VecDeque<String> = roots.iter().cloned().collect();
    let mut bytes = 0usize;
    while let Some(name) = waiting.pop_front() {
        if files.files.contains_key(&name) {
            continue;
        }
        let source = open(&name).map_err(DescriptorError)?;
        // What is not there may be one of Google's own files, which come with the compiler.
        let Some(ProtoSource { place, text }) = source else { continue };
        bytes = bytes.saturating_add(text.len());
        if files.files.len() >= MAX_FILES || bytes > MAX_BYTES {
            let problem = format!("there are more than {MAX_FILES} files or 64 MiB");
            return Err(DescriptorError(problem));
        }
        places.insert(name.clone(), place);
        let file = File::from_source(&name, &text).map_err(|error| describe(&error, &places))?;
        waiting.extend(file.file_descriptor_proto().dependency.iter().cloned());
        files.files.insert(name, file);
    }
    let mut compiler = Compiler::with_file_resolver(files);
    for root in roots {
        compiler.open_file(root).map_err(|error| describe(&error, &places))?;
    }
    Ok(compiler.descriptor_pool())
}

/// The message of the compiler, with the file as the user knows it.
fn describe(error: &protox::Error, places: &BTreeMap<String, String>) -> DescriptorError {
    // Only this form has line and column.
    let text = format!("{error:?}");
    let place = error.file().and_then(|file| Some((file, places.get(file)?)));
    let text = match place.and_then(|(file, place)| Some((place, text.strip_prefix(file)?))) {
        Some((place, rest)) => format!("{place}{rest}"),
        None => match place {
            Some((_, place)) => format!("{place}: {text}"),
            None => text,
        },
    };
    DescriptorError(text.lines().next().unwrap_or_default().chars().take(500).collect())
}

#[derive(Default)]
struct MemoryFiles {
    files: BTreeMap<String, File>,
}

impl FileResolver for MemoryFiles {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match self.files.get(name) {
            Some(file) => Ok(file.clone()),
            None => GoogleFileResolver::new().open_file(name),
        }
    }
}
