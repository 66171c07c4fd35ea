//! A reproduction bundle: one file with the application, reduced to the minimal failing circumstance and the
//! nearest passing one, that shows the failure on another machine.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

use faultscope_model::application::TestBody;
use faultscope_model::outcome::Signature;
use faultscope_model::{Application, Circumstance};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

/// The form of bundles that this version writes and reads.
const FORMAT: u32 = 1;
/// A folder up to this size goes in as a whole; of a larger one only what the application names.
const WHOLE_BYTES: u64 = 16 << 20;
const WHOLE_FILES: usize = 2_000;
/// The most that a bundle holds.
const MOST_BYTES: u64 = 256 << 20;
const MOST_FILES: usize = 20_000;
/// Folders that never go in: what the tool and version control keep, and what is built from the rest.
const LEFT_OUT: [&str; 6] = [".faultscope", ".git", ".hg", "target", "__pycache__", ".venv"];
/// The manifest in a bundle.
const MANIFEST: &str = "bundle.json";
/// The folder of the application in a bundle.
const APPLICATION: &str = "application";
/// The application file that is reduced; `simplest` is the nearest passing circumstance.
const MINIMAL: &str = "minimal.yaml";

/// What a bundle is about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The form of the bundle.
    pub format: u32,
    /// Version of the tool that wrote it.
    pub version: String,
    /// The application.
    pub application: String,
    /// The campaign that found it.
    pub campaign: String,
    /// The failure that must come.
    pub signature: Signature,
    /// How often it shows, from 0 to 1.
    pub rate: f64,
    /// Decides every random choice.
    pub seed: u64,
    /// The deltas that are needed, by name.
    pub deltas: Vec<String>,
    /// Whether only the failing test was run.
    pub only: bool,
}

/// What goes into a bundle beside its manifest.
#[derive(Debug, Clone)]
pub struct Contents<'a> {
    /// The folder of the application.
    pub root: &'a Path,
    /// The application file, below that folder.
    pub file: &'a Path,
    /// The application as it was read.
    pub application: &'a Application,
    /// The minimal failing circumstance.
    pub failing: &'a Circumstance,
    /// The nearest passing one.
    pub passing: &'a Circumstance,
}

/// Why a bundle cannot be written or used.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The application cannot be put into one.
    #[error("the application does not fit into a bundle: {0}")]
    Unfit(String),
    /// It is no bundle, or one that must not be trusted.
    #[error("not a bundle: {0}")]
    Refused(String),
    /// Reading or writing failed.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BundleError {
    let path = path.to_owned();
    move |source| BundleError::Io { action, path, source }
}

/// Environment of services whose names look like secrets: a bundle is handed on, so people should know.
pub fn secrets(application: &Application) -> Vec<String> {
    const SIGNS: [&str; 7] = ["SECRET", "TOKEN", "PASSW", "API_KEY", "APIKEY", "PRIVATE_KEY", "CREDENTIAL"];
    let looks = |name: &str| SIGNS.iter().any(|sign| name.to_ascii_uppercase().contains(sign));
    let services = application.services.iter();
    services
        .flat_map(|(service, spec)| spec.env.iter().map(move |(name, value)| (service, name, value)))
        .filter(|(_, name, value)| !value.is_empty() && looks(name))
        .map(|(service, name, _)| format!("{service}.{name}"))
        .collect()
}

/// Writes a bundle; gives the number of files in it.
pub fn write(out: &Path, manifest: &Manifest, contents: &Contents<'_>) -> Result<usize, BundleError> {
    let root = fs::canonicalize(contents.root).map_err(io_error("open", contents.root))?;
    let file = fs::canonicalize(contents.file).map_err(io_error("open", contents.file))?;
    let Ok(extended) = file.strip_prefix(&root) else {
        return Err(BundleError::Unfit(format!("{} lies outside {}", file.display(), root.display())));
    };
    let mut files = collect(&root, contents.application)?;
    files.insert(extended.to_owned(), fs::metadata(&file).map_err(io_error("open", &file))?.len());
    if files.len() > MOST_FILES || files.values().sum::<u64>() > MOST_BYTES {
        return Err(BundleError::Unfit(format!("more than {} MiB or {MOST_FILES} files", MOST_BYTES >> 20)));
    }
    let minimal = minimal(extended, manifest, contents)?;
    if let Some(parent) = out.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).map_err(io_error("create", parent))?;
    }
    let partial = out.with_extension("partial");
    let written = (|| -> Result<(), BundleError> {
        let target = File::create(&partial).map_err(io_error("write", &partial))?;
        let mut archive = tar::Builder::new(GzEncoder::new(target, Compression::default()));
        let add = |archive: &mut tar::Builder<_>, name: &Path, data: &[u8], mode: u32| {
            let mut header = tar::Header::new_gnu();
            header.set_size(data.len() as u64);
            header.set_mode(mode);
            header.set_entry_type(tar::EntryType::Regular);
            // No owner and no time: the same failure makes the same bundle.
            archive.append_data(&mut header, name, data).map_err(io_error("write", &partial))
        };
        let text = serde_json::to_vec_pretty(manifest).map_err(|e| BundleError::Unfit(e.to_string()))?;
        add(&mut archive, Path::new(MANIFEST), &text, 0o644)?;
        add(&mut archive, Path::new("README.md"), readme(manifest).as_bytes(), 0o644)?;
        add(&mut archive, &Path::new(APPLICATION).join(MINIMAL), minimal.as_bytes(), 0o644)?;
        for name in files.keys() {
            let path = root.join(name);
            let data = fs::read(&path).map_err(io_error("read", &path))?;
            let mode = if is_executable(&path) { 0o755 } else { 0o644 };
            add(&mut archive, &Path::new(APPLICATION).join(name), &data, mode)?;
        }
        let packed = archive.into_inner().map_err(io_error("write", &partial))?;
        packed.finish().and_then(|mut file| file.flush()).map_err(io_error("write", &partial))
    })();
    if let Err(error) = written {
        let _ = fs::remove_file(&partial);
        return Err(error);
    }
    fs::rename(&partial, out).map_err(io_error("write", out))?;
    Ok(files.len() + 3)
}

/// The application file laid over the original: only what matters differs between its two circumstances.
fn minimal(extended: &Path, manifest: &Manifest, contents: &Contents<'_>) -> Result<String, BundleError> {
    let extended = extended.to_str().ok_or_else(|| BundleError::Unfit("its name is not text".into()))?;
    // JSON is YAML, and quotes what needs quotes.
    let json = |value: &serde_json::Value| serde_json::to_string_pretty(value);
    let circumstance = |value: &Circumstance| serde_json::to_value(value).and_then(|value| json(&value));
    let unfit = |e: serde_json::Error| BundleError::Unfit(e.to_string());
    Ok(format!(
        "# Reduced by Faultscope {}: `simplest` passes, `failing` fails with\n# {}\nextends: {}\ntest: {}\nconstraints: []\nsimplest: {}\nfailing: {}\n",
        manifest.version,
        manifest.signature.to_string().replace(['\n', '\r'], " "),
        json(&extended.into()).map_err(unfit)?,
        json(&manifest.signature.test.clone().into()).map_err(unfit)?,
        circumstance(contents.passing).map_err(unfit)?,
        circumstance(contents.failing).map_err(unfit)?,
    ))
}

fn readme(manifest: &Manifest) -> String {
    format!(
        "# A failure of {}, reduced\n\n    {}\n\nIt needs exactly: {}\n\nRun `faultscope repro` on the bundle: it runs the failing and the nearest passing circumstance and says whether the failure is there (exit code 1) or not (0). By hand:\n\n    tar xzf BUNDLE && faultscope test application/{MINIMAL} --failing\n\nWritten by Faultscope {} from campaign {}, seed {}.\n",
        manifest.application,
        manifest.signature.to_string().replace('\n', "\n    "),
        manifest.deltas.join(", "),
        manifest.version,
        manifest.campaign,
        manifest.seed
    )
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o111 != 0)
}

/// The files of an application with their sizes: all of its folder where that is small, otherwise what its
/// commands, tests and settings name.
fn collect(root: &Path, application: &Application) -> Result<BTreeMap<PathBuf, u64>, BundleError> {
    let mut files = BTreeMap::new();
    if walk(root, Path::new(""), &mut files, (WHOLE_FILES, WHOLE_BYTES))? {
        return Ok(files);
    }
    let mut files = BTreeMap::new();
    for name in named(application) {
        let path = root.join(&name);
        // Only what lies below the folder, also behind links.
        let Ok(real) = fs::canonicalize(&path) else { continue };
        let Ok(inside) = real.strip_prefix(root) else { continue };
        if inside.as_os_str().is_empty() {
            continue;
        }
        if real.is_dir() {
            walk(root, inside, &mut files, (MOST_FILES, MOST_BYTES))?;
        } else if let Ok(meta) = fs::metadata(&real) {
            files.insert(inside.to_owned(), meta.len());
        }
    }
    for entry in fs::read_dir(root).map_err(io_error("read", root))?.flatten() {
        let path = PathBuf::from(entry.file_name());
        if path.extension().is_some_and(|e| e == "yaml" || e == "yml") {
            files.insert(path, entry.metadata().map_or(0, |meta| meta.len()));
        }
    }
    Ok(files)
}

/// Adds all regular files below a folder; false when there are more than the bounds allow.
fn walk(
    root: &Path,
    folder: &Path,
    files: &mut BTreeMap<PathBuf, u64>,
    (most_files, most_bytes): (usize, u64),
) -> Result<bool, BundleError> {
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        let path = root.join(&folder);
        for entry in fs::read_dir(&path).map_err(io_error("read", &path))?.flatten() {
            let name = entry.file_name();
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && !LEFT_OUT.iter().any(|left_out| name == *left_out) {
                open.push(folder.join(&name));
            } else if kind.is_file() {
                files.insert(folder.join(&name), entry.metadata().map_or(0, |meta| meta.len()));
            }
        }
        if files.len() > most_files || files.values().sum::<u64>() > most_bytes {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Every text of an application that may be the name of a file or folder of its own.
fn named(application: &Application) -> Vec<PathBuf> {
    let mut names = Vec::new();
    let mut add = |directory: &str, texts: &mut dyn Iterator<Item = &String>| {
        names.push(PathBuf::from(directory));
        for text in texts {
            for part in
                [Some(text.as_str()), text.split_once('=').map(|(_, value)| value)].into_iter().flatten()
            {
                names.push(Path::new(directory).join(part));
                names.push(PathBuf::from(part));
            }
        }
    };
    for service in application.services.values() {
        add(&service.directory, &mut service.command.iter().chain(service.env.values()));
        for version in service.versions.values() {
            let directory = version.directory.as_deref().unwrap_or(&service.directory);
            add(directory, &mut version.command.iter().flatten().chain(version.env.values()));
        }
    }
    add("", &mut application.setup.iter().flatten());
    for test in &application.tests {
        if let TestBody::Command(command) | TestBody::Discover { command, .. } = &test.body {
            add(&command.directory, &mut command.run.iter().chain(command.env.values()));
        }
    }
    names.retain(|name| {
        name.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
    });
    names
}

/// Unpacks a bundle into an empty folder; gives what it is about and its application file.
pub fn unpack(bundle: &Path, into: &Path) -> Result<(Manifest, PathBuf), BundleError> {
    let source = File::open(bundle).map_err(io_error("open", bundle))?;
    // Reading stops at the bound, whatever the archive's own numbers say.
    let mut archive = tar::Archive::new(GzDecoder::new(source).take(MOST_BYTES + (MOST_FILES as u64 * 2048)));
    let refused = |e: io::Error| BundleError::Refused(e.to_string());
    let (mut count, mut bytes) = (0, 0);
    for entry in archive.entries().map_err(refused)? {
        let mut entry = entry.map_err(refused)?;
        count += 1;
        bytes += entry.size();
        if count > MOST_FILES || bytes > MOST_BYTES {
            return Err(BundleError::Refused("it holds more than a bundle may".into()));
        }
        let name = entry.path().map_err(refused)?.into_owned();
        let plain = name.components().all(|part| matches!(part, Component::Normal(_)));
        if !plain || name.as_os_str().is_empty() {
            return Err(BundleError::Refused(format!("`{}` leads out of it", name.display())));
        }
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            continue;
        }
        if !kind.is_file() {
            return Err(BundleError::Refused(format!("`{}` is not a plain file", name.display())));
        }
        let path = into.join(&name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(io_error("create", parent))?;
        }
        // Two entries of one name could be played against one another.
        let mut target = File::create_new(&path).map_err(io_error("write", &path))?;
        io::copy(&mut entry, &mut target).map_err(io_error("write", &path))?;
        let executable = entry.header().mode().is_ok_and(|mode| mode & 0o111 != 0);
        set_mode(&target, if executable { 0o755 } else { 0o644 }).map_err(io_error("write", &path))?;
    }
    let path = into.join(MANIFEST);
    let text =
        fs::read_to_string(&path).map_err(|_| BundleError::Refused(format!("it has no {MANIFEST}")))?;
    let manifest: Manifest =
        serde_json::from_str(&text).map_err(|e| BundleError::Refused(format!("{MANIFEST}: {e}")))?;
    if manifest.format > FORMAT {
        return Err(BundleError::Refused(format!("it is of a later form, {}", manifest.format)));
    }
    Ok((manifest, into.join(APPLICATION).join(MINIMAL)))
}

#[cfg(unix)]
fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(fs::Permissions::from_mode(mode))
}

impl Manifest {
    /// The form that this version writes.
    pub const FORMAT: u32 = FORMAT;
}

#[cfg(test)]
mod tests;
