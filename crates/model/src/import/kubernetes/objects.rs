//! Manifests as a list of objects, whatever they are wrapped in.

use crate::import::ImportError;
use crate::import::node::Node;

/// The most objects of an import.
const MAX_OBJECTS: usize = 5_000;

/// The namespace of objects that name none.
const DEFAULT_NAMESPACE: &str = "default";

/// One object of a cluster.
#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) node: Node,
    /// The file it stands in.
    pub(super) file: String,
}

impl Object {
    /// What is wanted of the object.
    pub(super) fn spec(&self) -> Option<&Node> {
        self.node.get("spec")
    }

    /// An error at a place of the object.
    pub(super) fn error(&self, node: &Node, message: impl Into<String>) -> ImportError {
        ImportError::at(&self.file, node.line, message)
    }
}

/// Reads all objects of the files, those inside of lists too. One of several files that cannot be read is left out,
/// as `kubectl apply -f FOLDER` does, and its error is returned beside the objects.
pub(super) fn read_objects(
    files: &[(String, String)],
) -> Result<(Vec<Object>, Vec<ImportError>), ImportError> {
    let (mut objects, mut skipped) = (Vec::new(), Vec::new());
    for (file, text) in files {
        match read_file(file, text, &mut objects) {
            Ok(()) => {}
            // What is left of a chart without its templates is another system.
            Err(error) if files.len() == 1 || error.hint.is_some() => return Err(error),
            Err(error) => skipped.push(error),
        }
    }
    match skipped.first() {
        Some(first) if objects.is_empty() => Err(first.clone()),
        _ => Ok((objects, skipped)),
    }
}

fn read_file(file: &str, text: &str, objects: &mut Vec<Object>) -> Result<(), ImportError> {
    let documents = Node::parse_documents(file, text).map_err(|e| explain_template(e, text))?;
    documents.into_iter().try_for_each(|document| add_object(document, file, objects))
}

/// Whether a text is a manifest: a mapping that says what kind of which API it is.
pub fn looks_like_manifest(text: &str) -> bool {
    if text.trim_start().starts_with('{') {
        return text.contains("\"apiVersion\"") && text.contains("\"kind\"");
    }
    let has = |key: &str| text.lines().any(|line| line.starts_with(key));
    has("apiVersion:") && has("kind:")
}

fn explain_template(error: ImportError, text: &str) -> ImportError {
    if text.contains("{{") {
        return error.with_hint(
            "this looks like a Helm template; render it first: `helm template CHART | faultscope init -f -`",
        );
    }
    error
}

fn add_object(node: Node, file: &str, objects: &mut Vec<Object>) -> Result<(), ImportError> {
    // An empty document is what is left between two separators.
    if node.is_null() {
        return Ok(());
    }
    let Some(kind) = node.get_text("kind").map(str::to_owned) else {
        return Err(ImportError::at(file, node.line, "a manifest has a `kind`"));
    };
    if kind.ends_with("List")
        && let Some(items) = node.get("items").and_then(Node::as_list)
    {
        return items.iter().try_for_each(|item| add_object(item.clone(), file, objects));
    }
    if objects.len() >= MAX_OBJECTS {
        return Err(ImportError::at(file, node.line, format!("there are more than {MAX_OBJECTS} objects")));
    }
    let metadata = node.get("metadata");
    let text = |key: &str| metadata.and_then(|m| m.get_text(key)).map(str::to_owned);
    let name = text("name").or_else(|| text("generateName")).unwrap_or_default();
    let namespace = text("namespace").unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    objects.push(Object { kind, name, namespace, node, file: file.to_owned() });
    Ok(())
}
