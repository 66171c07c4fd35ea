//! Loads the files that `protos` of an application names.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use faultscope_model::Application;
use faultscope_model::application::{OpenProtoPath, ProtoPathContent, SpecError};
use faultscope_model::grpc::ProtoSource;

/// The largest `.proto` file.
const MAX_SOURCE: u64 = 4 << 20;
/// The largest descriptor set.
const MAX_SET: u64 = 64 << 20;
/// The most files of one folder.
const MAX_FILES: usize = 4000;
/// The deepest folder.
const MAX_DEPTH: usize = 16;
/// How the names of descriptor sets end.
const SETS: [&str; 4] = ["binpb", "pb", "desc", "protoset"];

/// Reads the files that `protos` names; `root` is the folder of the application.
pub fn load_protos(application: &mut Application, root: &Path) -> Result<(), SpecError> {
    if application.protos.is_empty() {
        return Ok(());
    }
    let mut folders: Vec<PathBuf> = Vec::new();
    for import in &application.protos.imports {
        let folder = root.join(&import.path);
        if !folder.is_dir() {
            return Err(import.error(format!("there is no folder `{}`", import.path)));
        }
        folders.push(folder);
    }
    let mut bases = Vec::new();
    for path in &application.protos.files {
        let place = root.join(&path.path);
        if !is_set(&place) {
            let error = |problem| path.error(format!("cannot read `{}`: {problem}", path.path));
            let sources = list_sources(&place).map_err(error)?;
            bases.push(find_base(&place, &sources, &folders, root));
        }
    }
    let imports = bases.into_iter().chain(folders).chain([root.to_owned()]);
    let mut seen = BTreeSet::new();
    let imports = imports.filter(|folder| seen.insert(folder.clone())).collect();
    application.load_protos(&ProtoFolders { root: root.to_owned(), imports })
}

/// Where files are looked for, those first that files of the application are named from.
struct ProtoFolders {
    root: PathBuf,
    imports: Vec<PathBuf>,
}

impl OpenProtoPath for ProtoFolders {
    fn open_path(&self, path: &str) -> Result<ProtoPathContent, String> {
        let place = self.root.join(path);
        if is_set(&place) {
            return Ok(ProtoPathContent::DescriptorSet(read_bounded(&place, MAX_SET)?));
        }
        let mut names = Vec::new();
        for source in list_sources(&place)? {
            let name = self.imports.iter().find_map(|folder| name_below(folder, &source));
            names.push(name.ok_or_else(|| format!("`{}` has a name that is not UTF-8", source.display()))?);
        }
        Ok(ProtoPathContent::Sources(names))
    }

    fn open_import(&self, name: &str) -> Result<Option<ProtoSource>, String> {
        let is_plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        let found = self.imports.iter().map(|folder| folder.join(name)).find(|place| place.is_file());
        let Some(place) = found.filter(|_| is_plain) else { return Ok(None) };
        let shown = place.strip_prefix(&self.root).unwrap_or(&place).display().to_string();
        let bytes = read_bounded(&place, MAX_SOURCE).map_err(|problem| format!("{shown}: {problem}"))?;
        let text = String::from_utf8(bytes).map_err(|_| format!("{shown} is not UTF-8"))?;
        Ok(Some(ProtoSource { place: shown, text }))
    }
}

fn is_set(place: &Path) -> bool {
    place.extension().is_some_and(|end| SETS.iter().any(|set| end.eq_ignore_ascii_case(set)))
}

/// The folder from which files name one another: the one from which most of their imports are found, the nearest if
/// there are several.
fn find_base(place: &Path, sources: &[PathBuf], folders: &[PathBuf], root: &Path) -> PathBuf {
    let own = if place.is_dir() { place } else { place.parent().unwrap_or(root) };
    let above = own.ancestors().take_while(|folder| folder.starts_with(root));
    let holding = folders.iter().map(PathBuf::as_path).filter(|folder| own.starts_with(folder));
    let imports: BTreeSet<String> = sources.iter().flat_map(|source| imports_of(source)).collect();
    let mut best = (own, 0);
    for folder in above.chain(holding) {
        let found = imports.iter().filter(|name| folder.join(name).is_file()).count();
        if found > best.1 {
            best = (folder, found);
        }
    }
    best.0.to_owned()
}

/// What a file imports, by a look at its lines: only where to look for it depends on this.
fn imports_of(source: &Path) -> Vec<String> {
    let text = read_bounded(source, MAX_SOURCE).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let imports = text.lines().filter_map(|line| line.trim_start().strip_prefix("import"));
    imports.filter_map(|rest| rest.split('"').nth(1)).map(str::to_owned).collect()
}

fn name_below(folder: &Path, source: &Path) -> Option<String> {
    let below = source.strip_prefix(folder).ok()?;
    let parts: Option<Vec<&str>> = below.components().map(|part| part.as_os_str().to_str()).collect();
    Some(parts?.join("/"))
}

/// The file itself, or all `.proto` files below a folder, sorted.
fn list_sources(place: &Path) -> Result<Vec<PathBuf>, String> {
    if !place.is_dir() {
        std::fs::metadata(place).map_err(|e| e.to_string())?;
        return Ok(vec![place.to_owned()]);
    }
    let mut sources = Vec::new();
    let mut waiting = vec![(place.to_owned(), 0)];
    while let Some((folder, depth)) = waiting.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|e| e.to_string())? {
            let entry = entry.map_err(|e| e.to_string())?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(|e| e.to_string())?);
            let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
            if kind.is_dir() && !is_hidden && depth < MAX_DEPTH {
                waiting.push((path, depth + 1));
            } else if !kind.is_dir() && path.extension().is_some_and(|end| end == "proto") {
                sources.push(path);
            }
            if sources.len() > MAX_FILES {
                return Err(format!("it has more than {MAX_FILES} .proto files"));
            }
        }
    }
    sources.sort();
    Ok(sources)
}

fn read_bounded(place: &Path, limit: u64) -> Result<Vec<u8>, String> {
    crate::bounded_file::read_bounded(place, limit).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn load(protos: &str, files: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let text = format!("services: {{ a: {{ command: [x] }} }}\nprotos: {protos}\n");
        let mut application = Application::read_alone(&text, "faultscope.yaml").map_err(|e| e.to_string())?;
        load_protos(&mut application, folder.path()).map_err(|e| e.to_string())?;
        Ok(application.descriptors.method_names())
    }

    const COMMON: &str = "syntax = \"proto3\";\npackage shop;\nmessage Id { string id = 1; }\n";

    fn service(name: &str, import: &str) -> String {
        format!(
            "syntax = \"proto3\";\npackage shop;\nimport \"{import}\";\nimport \"google/protobuf/empty.proto\";\n\
             service {name} {{ rpc Get(Id) returns (google.protobuf.Empty); }}\n"
        )
    }

    #[test]
    fn files_folders_and_import_paths_are_found() {
        let orders = ["shop.Orders/Get".to_owned()];
        let beside =
            [("proto/common.proto", COMMON), ("proto/orders.proto", &service("Orders", "common.proto"))];
        assert_eq!(load("[proto]", &beside).unwrap(), orders);
        assert_eq!(load("proto/", &beside).unwrap(), orders);
        assert_eq!(load("[proto/orders.proto]", &beside).unwrap(), orders);
        assert_eq!(load("{ files: [proto/orders.proto], import: [proto] }", &beside).unwrap(), orders);
        // Imports are often named from a folder above.
        let above = [
            ("api/shop/v1/common.proto", COMMON),
            ("api/shop/v1/orders.proto", &service("Orders", "shop/v1/common.proto")),
        ];
        assert_eq!(load("[api/shop/v1]", &above).unwrap(), orders);
        assert_eq!(load("[api]", &above).unwrap(), orders);
        let elsewhere =
            [("vendor/x/common.proto", COMMON), ("orders.proto", &service("Orders", "x/common.proto"))];
        assert_eq!(load("{ files: [orders.proto], import: [vendor] }", &elsewhere).unwrap(), orders);
    }

    #[test]
    fn mistakes_are_named_with_file_and_line() {
        let broken = [("a.proto", "syntax = \"proto3\";\nmessage A {\n  strin id = 1\n}\n")];
        assert_eq!(
            load("[a.proto]", &broken).unwrap_err(),
            "faultscope.yaml:2: protos.0: a.proto:4:1: expected ';' or '[', but found '}'"
        );
        let missing = [("p/a.proto", "syntax = \"proto3\";\nimport \"b.proto\";\n")];
        assert_eq!(
            load("[p]", &missing).unwrap_err(),
            "faultscope.yaml:2: protos.0: p/a.proto:2:1: import 'b.proto' not found"
        );
        assert_eq!(
            load("[x.proto]", &[]).unwrap_err(),
            "faultscope.yaml:2: protos.0: cannot read `x.proto`: No such file or directory (os error 2)"
        );
        assert_eq!(
            load("[p]", &[("p/readme", "")]).unwrap_err(),
            "faultscope.yaml:2: protos.0: there is no .proto file in `p`"
        );
        assert_eq!(
            load("{ files: [p/a.proto], import: [q] }", &missing).unwrap_err(),
            "faultscope.yaml:2: protos.import.0: there is no folder `q`"
        );
        assert_eq!(
            load("[a.binpb]", &[("a.binpb", "text")]).unwrap_err(),
            "faultscope.yaml:2: protos.0: this is no descriptor set"
        );
        assert!(load("{ paths: [p] }", &[]).unwrap_err().contains("unknown key"));
    }
}
