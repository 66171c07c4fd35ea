//! A reproduction bundle: one file with the application, reduced to the minimal failing circumstance and the
//! nearest passing one, that shows the failure on another machine.

mod files;
mod restore;
mod rules;
mod secrets;

pub use files::inside;
pub use restore::{RestoreError, restore};
pub use secrets::{SecretPlace, restore_settings, secrets};

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

use faultscope_model::application::BundleOptions;
use faultscope_model::outcome::Signature;
use faultscope_model::secrets::SecretNames;
use faultscope_model::units::ByteSize;
use faultscope_model::{Application, Circumstance};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use crate::bounded_file::{MAX_APPLICATION_FILE, read_bounded};
use crate::views::quote;
use files::{Collected, Collector, Files, MAX_BYTES, MAX_FILES, largest_folders};
use rules::Rules;

/// The latest form of bundles that this version writes and reads. The first knew no comparisons, the second no
/// services that do not come up, the third no commands that restore what was left out.
const FORMAT: u32 = 4;
/// The manifest in a bundle.
const MANIFEST: &str = "bundle.json";
/// The folder of the application in a bundle.
const APPLICATION: &str = "application";
/// The application files in a bundle, where one of them lies outside of the application's folder.
const OUTER: &str = "files";
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
    /// What was compared, where the deltas are the differences of two deployments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<Compared>,
}

/// Two deployments in a bundle. There is no one file to reduce, so the circumstances are kept here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// The files or the folder of the one that works, below the folder of the application.
    pub good: Vec<PathBuf>,
    /// Those of the one that fails.
    pub bad: Vec<PathBuf>,
    /// The file whose tests are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests: Option<PathBuf>,
    /// The minimal failing circumstance.
    pub failing: Circumstance,
    /// The nearest passing one.
    pub passing: Circumstance,
}

impl Compared {
    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.good.iter().chain(&self.bad).chain(&self.tests)
    }
}

/// What goes into a bundle beside its manifest.
#[derive(Debug, Clone)]
pub struct Contents<'a> {
    /// The folder of the application.
    pub root: &'a Path,
    /// The application as it was read.
    pub application: &'a Application,
    /// What is reduced; none for a comparison, whose manifest says it.
    pub reduced: Option<Reduced<'a>>,
}

/// An application file and what is laid over it.
#[derive(Debug, Clone)]
pub struct Reduced<'a> {
    /// The application file and those it extends, in this order.
    pub files: &'a [PathBuf],
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
    /// `bundle.exclude` has a pattern that is none.
    #[error("`bundle.exclude`: `{pattern}` is not a pattern: {problem}")]
    Pattern {
        /// As it is written in the application file.
        pattern: String,
        /// What is wrong with it.
        problem: String,
    },
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

/// Checks what an application file says about bundles, so that a mistake is known before a campaign and not after it.
pub fn check(application: &Application) -> Result<(), BundleError> {
    Rules::read(Path::new("."), &application.bundle).map(drop)
}

/// A bundle that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Number of files in it.
    pub files: usize,
    /// Size of the archive.
    pub packed_bytes: u64,
    /// Size of its files.
    pub bytes: u64,
    /// Values in it that look like secrets.
    pub secrets: Vec<SecretPlace>,
    /// Files of the application's folder that are not in it: too large, or secret by their names.
    pub left_out: Vec<PathBuf>,
    /// Files and folders that are not in it because a `.gitignore` lists them.
    pub ignored: Vec<PathBuf>,
    /// Folders of services and tests that are not in it because they lie outside of the application's folder.
    pub outside: Vec<String>,
    /// The largest folders of the application with their sizes, where it is not small.
    pub largest: Vec<(PathBuf, u64)>,
}

/// Writes a bundle.
pub fn write(out: &Path, manifest: &Manifest, contents: &Contents<'_>) -> Result<Written, BundleError> {
    let root = fs::canonicalize(contents.root).map_err(io_error("open", contents.root))?;
    let collector = Collector::new(&root, contents.application)?;
    let Collected { mut files, left_out, ignored, outside, largest } =
        collector.collect(contents.application)?;
    for path in manifest.compared.iter().flat_map(Compared::paths) {
        collector.add(path, &mut files)?;
    }
    let described =
        contents.reduced.as_ref().map(|reduced| describe(&root, manifest, reduced)).transpose()?;
    let Described { mut texts, extended } = described.unwrap_or_default();
    if extended.is_some() && files.contains_key(Path::new(MINIMAL)) {
        let problem =
            format!("it has a file `{MINIMAL}` of its own, which is the name of the reduced file; rename it");
        return Err(BundleError::Unfit(problem));
    }
    // Application files are in it once, and also if they are excluded.
    files.retain(|name, _| !texts.contains_key(&Path::new(APPLICATION).join(name)));
    let json = serde_json::to_vec_pretty(manifest).map_err(|e| BundleError::Unfit(e.to_string()))?;
    texts.insert(MANIFEST.into(), json);
    let names = SecretNames::new(&contents.application.record.secrets);
    let mut found = secrets::search_files(&root, &files, &names);
    for (name, text) in &texts {
        let name = name.strip_prefix(APPLICATION).unwrap_or(name);
        // The manifest's `signature` is what a failure is recognized by, and proves nobody's identity.
        let text = String::from_utf8_lossy(text).replacen("\"signature\": {", "\"failure\": {", 1);
        found.extend(secrets::search_text(name, text.as_bytes(), &names));
    }
    found.sort();
    let restore = contents.application.bundle.restore.as_deref();
    texts.insert("README.md".into(), readme(manifest, restore, &found).into_bytes());
    let bytes = files.values().sum::<u64>() + texts.values().map(|text| text.len() as u64).sum::<u64>();
    let n_files = files.len() + texts.len();
    if n_files > MAX_FILES || bytes > MAX_BYTES {
        return Err(too_large(&files));
    }
    if let Some(parent) = out.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).map_err(io_error("create", parent))?;
    }
    let partial = out.with_extension("partial");
    let packed = pack(&partial, &root, &texts, &files);
    let packed_bytes = match packed {
        Ok(bytes) => bytes,
        Err(error) => {
            let _ = fs::remove_file(&partial);
            return Err(error);
        }
    };
    fs::rename(&partial, out).map_err(io_error("write", out))?;
    Ok(Written { files: n_files, packed_bytes, bytes, secrets: found, left_out, ignored, outside, largest })
}

fn too_large(files: &Files) -> BundleError {
    let largest = largest_folders(files);
    let shown: Vec<_> =
        largest.iter().map(|(folder, size)| format!("{} ({})", folder.display(), ByteSize(*size))).collect();
    let most = if shown.is_empty() { String::new() } else { format!(", most of it in {}", shown.join(", ")) };
    BundleError::Unfit(format!(
        "more than {} or {MAX_FILES} files{most}; leave folders out with `bundle: {{ exclude: [FOLDER] }}`",
        ByteSize(MAX_BYTES)
    ))
}

/// Writes an archive; returns its size. The manifest comes first, since a bundle is known by it.
fn pack(
    to: &Path,
    root: &Path,
    texts: &BTreeMap<PathBuf, Vec<u8>>,
    files: &Files,
) -> Result<u64, BundleError> {
    let target = File::create(to).map_err(io_error("write", to))?;
    let mut archive = tar::Builder::new(GzEncoder::new(target, Compression::default()));
    let add = |archive: &mut tar::Builder<_>, name: &Path, data: &[u8], mode: u32| {
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(mode);
        header.set_entry_type(tar::EntryType::Regular);
        // No owner and no time: the same failure makes the same bundle.
        archive.append_data(&mut header, name, data).map_err(io_error("write", to))
    };
    let is_manifest = |name: &Path| name == Path::new(MANIFEST);
    let manifest = texts.iter().filter(|(name, _)| is_manifest(name));
    for (name, data) in manifest.chain(texts.iter().filter(|(name, _)| !is_manifest(name))) {
        add(&mut archive, name, data, 0o644)?;
    }
    for name in files.keys() {
        let path = root.join(name);
        let data = read_bounded(&path, MAX_BYTES).map_err(io_error("read", &path))?;
        let mode = if is_executable(&path) { 0o755 } else { 0o644 };
        add(&mut archive, &Path::new(APPLICATION).join(name), &data, mode)?;
    }
    let packed = archive.into_inner().map_err(io_error("write", to))?;
    let mut file = packed.finish().map_err(io_error("write", to))?;
    file.flush().map_err(io_error("write", to))?;
    file.metadata().map(|meta| meta.len()).map_err(io_error("write", to))
}

/// The application files of a bundle by their names in it, among them the reduced one.
#[derive(Debug, Default)]
struct Described {
    texts: BTreeMap<PathBuf, Vec<u8>>,
    /// What the reduced file extends.
    extended: Option<PathBuf>,
}

/// Places the application files in a bundle and lays the reduced one over them. Files that all lie in the
/// application's folder stay where they are in it. Otherwise they go into a folder of their own, where they lie to
/// one another as they did, and the reduced file says where the application is.
fn describe(root: &Path, manifest: &Manifest, reduced: &Reduced<'_>) -> Result<Described, BundleError> {
    let canonical = |file: &PathBuf| fs::canonicalize(file).map_err(io_error("open", file));
    let files = reduced.files.iter().map(canonical).collect::<Result<Vec<_>, _>>()?;
    let are_inside = files.iter().all(|file| file.starts_with(root));
    let (from, folder) =
        if are_inside { (root.to_owned(), APPLICATION) } else { (common_folder(&files), OUTER) };
    let mut texts = BTreeMap::new();
    let mut first = None;
    for file in &files {
        let Ok(below) = file.strip_prefix(&from) else { continue };
        let text = read_bounded(file, MAX_APPLICATION_FILE).map_err(io_error("read", file))?;
        first.get_or_insert_with(|| {
            if are_inside { below.to_owned() } else { Path::new("..").join(folder).join(below) }
        });
        texts.insert(Path::new(folder).join(below), text);
    }
    let extended = first.ok_or_else(|| BundleError::Unfit("it has no application file".into()))?;
    let text = minimal(&extended, manifest, reduced)?;
    let name = Path::new(APPLICATION).join(MINIMAL);
    // Read as it will be read elsewhere: a file that extends one by an absolute path, say, works only here.
    let load = |base: &str, path: &str| {
        let next = plain_path(&Path::new(base).parent().unwrap_or(Path::new("")).join(path));
        let text = next.as_ref().and_then(|next| texts.get(next));
        let text = text.ok_or("it would not be in the bundle")?;
        let text = String::from_utf8(text.clone()).map_err(|e| e.to_string())?;
        Ok((text, next.unwrap_or_default().to_string_lossy().into_owned()))
    };
    Application::read(&text, &name.to_string_lossy(), &load)
        .map_err(|e| BundleError::Unfit(format!("the reduced file could not be read elsewhere: {e}")))?;
    texts.insert(name, text.into_bytes());
    Ok(Described { texts, extended: Some(extended) })
}

/// The innermost folder that all files lie in.
fn common_folder(files: &[PathBuf]) -> PathBuf {
    let folders = files.iter().filter_map(|file| file.parent().map(Path::to_owned));
    let shared = |one: PathBuf, other: PathBuf| {
        one.components().zip(other.components()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
    };
    folders.reduce(shared).unwrap_or_default()
}

/// A path without `.` and `..`; none if it leads out.
fn plain_path(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => plain.push(part),
            Component::CurDir => {}
            Component::ParentDir if plain.pop() => {}
            _ => return None,
        }
    }
    Some(plain)
}

/// The application file laid over the original: only what matters differs between its two circumstances.
fn minimal(extended: &Path, manifest: &Manifest, reduced: &Reduced<'_>) -> Result<String, BundleError> {
    let extended = extended.to_str().ok_or_else(|| BundleError::Unfit("its name is not text".into()))?;
    // JSON is YAML, and quotes what needs quotes.
    let json = |value: &serde_json::Value| serde_json::to_string_pretty(value);
    let circumstance = |value: &Circumstance| serde_json::to_value(value).and_then(|value| json(&value));
    let unfit = |e: serde_json::Error| BundleError::Unfit(e.to_string());
    let test = match manifest.signature.failing_test() {
        Some(test) => format!("test: {}\n", json(&test.into()).map_err(unfit)?),
        None => String::new(),
    };
    Ok(format!(
        "# Reduced by Faultscope {}: `simplest` passes, `failing` fails with\n# {}\nextends: {}\ndirectory: .\n{test}constraints: []\nsimplest: {}\nfailing: {}\n",
        manifest.version,
        manifest.signature.to_string().replace(['\n', '\r'], " "),
        json(&extended.into()).map_err(unfit)?,
        circumstance(reduced.passing).map_err(unfit)?,
        circumstance(reduced.failing).map_err(unfit)?,
    ))
}

fn readme(manifest: &Manifest, restore: Option<&[String]>, secrets: &[SecretPlace]) -> String {
    let secrets = match secrets {
        [] => String::new(),
        places => {
            let places: String = places.iter().map(|place| format!("- {place}\n")).collect();
            format!(
                "\nThese places look like secrets. Replace them before you hand the bundle on:\n\n{places}"
            )
        }
    };
    let by_hand = match &manifest.compared {
        None => format!("faultscope test application/{MINIMAL} --failing"),
        Some(compared) => {
            let words = |flag: &str, paths: &[PathBuf]| -> String {
                paths.iter().map(|path| format!(" {flag} 'application/{}'", path.display())).collect()
            };
            let tests = words("--tests", compared.tests.as_slice());
            let deltas: String = manifest.deltas.iter().map(|delta| format!(" --delta '{delta}'")).collect();
            let sides = [words("--good", &compared.good), words("--bad", &compared.bad)].concat();
            format!("faultscope test{sides}{tests}{deltas}")
        }
    };
    let restored = restore.map_or_else(String::new, |words| {
        format!(
            "What can be fetched or built again is not in the bundle. `faultscope repro --restore` runs this in its folder `{APPLICATION}` first:\n\n    {}\n\n",
            shown_command(words)
        )
    });
    format!(
        "# A failure of {}, reduced\n\n    {}\n\nIt needs exactly: {}\n\nRun `faultscope repro` on the bundle: it runs the failing and the nearest passing circumstance and says whether the failure is there (exit code 1) or not (0). {restored}By hand:\n\n    tar xzf BUNDLE && {by_hand}\n\nWritten by Faultscope {} from campaign {}, seed {}.\n{secrets}",
        manifest.application,
        manifest.signature.to_string().replace('\n', "\n    "),
        manifest.deltas.join(", "),
        manifest.version,
        manifest.campaign,
        manifest.seed
    )
}

/// A command in one line, for people.
pub fn shown_command(words: &[String]) -> String {
    words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ").replace(['\n', '\r'], " ")
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o111 != 0)
}

/// Unpacks a bundle into an empty folder; gives what it is about and its application file, or the folder of
/// both deployments of a comparison.
pub fn unpack(bundle: &Path, into: &Path) -> Result<(Manifest, PathBuf), BundleError> {
    let source = File::open(bundle).map_err(io_error("open", bundle))?;
    // Reading stops at the bound, whatever the archive's own numbers say.
    let mut archive = tar::Archive::new(GzDecoder::new(source).take(MAX_BYTES + (MAX_FILES as u64 * 2048)));
    let refused = |e: io::Error| BundleError::Refused(e.to_string());
    let (mut count, mut bytes) = (0, 0);
    for entry in archive.entries().map_err(refused)? {
        let mut entry = entry.map_err(refused)?;
        count += 1;
        bytes += entry.size();
        if count > MAX_FILES || bytes > MAX_BYTES {
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
    let leads_out = |path: &&PathBuf| !path.components().all(|part| matches!(part, Component::Normal(_)));
    if let Some(path) = manifest.compared.iter().flat_map(Compared::paths).find(leads_out) {
        return Err(BundleError::Refused(format!("`{}` leads out of it", path.display())));
    }
    if manifest.compared.is_some() {
        return Ok((manifest, into.join(APPLICATION)));
    }
    Ok((manifest, into.join(APPLICATION).join(MINIMAL)))
}

#[cfg(unix)]
fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(fs::Permissions::from_mode(mode))
}

impl Manifest {
    /// The form of a bundle with or without a comparison, for such a failure: earlier versions can use what
    /// they know.
    pub fn format(application: &Application, compared: bool, signature: &Signature) -> u32 {
        match (compared, signature.service()) {
            _ if application.bundle != BundleOptions::default() => FORMAT,
            (_, Some(_)) => 3,
            (true, None) => 2,
            (false, None) => 1,
        }
    }
}

#[cfg(test)]
mod tests;
