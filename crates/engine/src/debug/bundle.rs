//! A reproduction bundle: one file with the application, reduced to the minimal failing circumstance and the
//! nearest passing one, that shows the failure on another machine.

mod files;

pub use files::inside;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

use faultscope_model::outcome::Signature;
use faultscope_model::{Application, Circumstance};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use files::{Collected, MOST_BYTES, MOST_FILES, add, collect};

/// The latest form of bundles that this version writes and reads. The first knew no comparisons, the second no
/// services that do not come up.
const FORMAT: u32 = 3;
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
    /// The application file, below the folder of the application.
    pub file: &'a Path,
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

/// A bundle that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// How many files are in it.
    pub files: usize,
    /// Files of the application's folder that are not: too large, or secret by their names.
    pub left_out: Vec<PathBuf>,
}

/// Writes a bundle.
pub fn write(out: &Path, manifest: &Manifest, contents: &Contents<'_>) -> Result<Written, BundleError> {
    let root = fs::canonicalize(contents.root).map_err(io_error("open", contents.root))?;
    let Collected { mut files, left_out } = collect(&root, contents.application)?;
    for path in manifest.compared.iter().flat_map(Compared::paths) {
        add(&root, path, &mut files)?;
    }
    let minimal = match &contents.reduced {
        None => None,
        Some(reduced) => {
            let file = inside(&root, reduced.file)?;
            add(&root, &file, &mut files)?;
            Some(minimal(&file, manifest, reduced)?)
        }
    };
    if files.len() > MOST_FILES || files.values().sum::<u64>() > MOST_BYTES {
        return Err(BundleError::Unfit(format!("more than {} MiB or {MOST_FILES} files", MOST_BYTES >> 20)));
    }
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
        if let Some(minimal) = &minimal {
            add(&mut archive, &Path::new(APPLICATION).join(MINIMAL), minimal.as_bytes(), 0o644)?;
        }
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
    Ok(Written { files: files.len() + 2 + usize::from(minimal.is_some()), left_out })
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
        "# Reduced by Faultscope {}: `simplest` passes, `failing` fails with\n# {}\nextends: {}\n{test}constraints: []\nsimplest: {}\nfailing: {}\n",
        manifest.version,
        manifest.signature.to_string().replace(['\n', '\r'], " "),
        json(&extended.into()).map_err(unfit)?,
        circumstance(reduced.passing).map_err(unfit)?,
        circumstance(reduced.failing).map_err(unfit)?,
    ))
}

fn readme(manifest: &Manifest) -> String {
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
    format!(
        "# A failure of {}, reduced\n\n    {}\n\nIt needs exactly: {}\n\nRun `faultscope repro` on the bundle: it runs the failing and the nearest passing circumstance and says whether the failure is there (exit code 1) or not (0). By hand:\n\n    tar xzf BUNDLE && {by_hand}\n\nWritten by Faultscope {} from campaign {}, seed {}.\n",
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

/// Unpacks a bundle into an empty folder; gives what it is about and its application file, or the folder of
/// both deployments of a comparison.
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
    pub fn format(compared: bool, signature: &Signature) -> u32 {
        match (compared, signature.service()) {
            (_, Some(_)) => FORMAT,
            (true, None) => 2,
            (false, None) => 1,
        }
    }
}

#[cfg(test)]
mod tests;
