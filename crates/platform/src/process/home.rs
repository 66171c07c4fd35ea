//! The user's home in a slot: readable, because interpreters and caches live there, behind a layer that is new for each
//! trial, and without the folders in which people keep their keys.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::agent_protocol::{HomeView, Request};
use super::data::Layers;
use super::slot::Slot;
use super::stage::Stage;

/// What nobody needs for a test and nobody wants to give away: keys, tokens, passwords; also the tool's own key.
const SECRETS: [&str; 39] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".config/gh",
    ".config/hub",
    ".config/git/credentials",
    ".docker",
    ".kube",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".git-credentials",
    ".vault-token",
    ".terraform.d",
    ".password-store",
    ".local/share/keyrings",
    ".local/share/faultscope",
    ".m2/settings-security.xml",
    ".gem/credentials",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".config/containers/auth.json",
    ".config/google-chrome",
    ".config/chromium",
    ".config/op",
    ".config/rclone",
    ".config/sops",
    ".mozilla",
    ".oci",
    ".s3cfg",
    ".boto",
    // What people typed, passwords among it.
    ".bash_history",
    ".zsh_history",
    ".mysql_history",
    ".psql_history",
];
/// The same for names that begin like this.
const SECRET_PREFIXES: [&str; 1] = [".cargo/credentials"];

/// The home of whoever runs the tool, and what of it stays unseen.
#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
    /// Relative to the home.
    masked: Vec<PathBuf>,
    /// Secrets to which links in the home lead; absolute.
    masked_elsewhere: Vec<PathBuf>,
    /// Whether a layer of the application lies over all of it, so that it needs none of its own.
    in_application: bool,
    /// The folder of the current trial's layer.
    layer: Mutex<Option<PathBuf>>,
}

impl Home {
    /// Finds what must be masked; none if there is no such folder, as for users of daemons.
    pub(crate) fn find(path: &Path, application: &Path) -> Option<Self> {
        let path = path.canonicalize().ok().filter(|path| path.is_dir() && path.parent().is_some())?;
        let in_application = path.starts_with(application);
        let (mut masked, mut masked_elsewhere) = (Vec::new(), Vec::new());
        for secret in find_secrets(&path) {
            match secret.strip_prefix(&path) {
                Ok(below) if !in_application => masked.push(below.to_owned()),
                _ => masked_elsewhere.push(secret),
            }
        }
        Some(Self { path, masked, masked_elsewhere, in_application, layer: Mutex::default() })
    }

    /// How instances of the current trial see it.
    pub(crate) fn view(&self) -> Option<HomeView> {
        let layer = self.layer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (!self.in_application).then(|| HomeView { path: self.path.clone(), layer })
    }

    /// The files of the current trial's layer, and where in it the masks are; none without a layer.
    pub(crate) fn current_layer(&self) -> Option<(PathBuf, Vec<PathBuf>)> {
        let upper = self.layer.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.join("upper");
        let masks = self.masked.iter().map(|path| upper.join(path)).collect();
        Some((upper, masks))
    }

    /// Secrets that no layer masks.
    pub(crate) fn masked_by_mounts(&self) -> Vec<PathBuf> {
        let below = self.masked.iter().map(|path| self.path.join(path));
        let has_layer = self.layer.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        self.masked_elsewhere.iter().cloned().chain(below.filter(|_| !has_layer)).collect()
    }
}

impl Slot {
    /// Lays a fresh layer over the user's home, for the next trial.
    pub(crate) async fn renew_home(&self, stage: &Stage, is_new_agent: bool) {
        let Some(home) = self.home.as_ref().filter(|home| !home.in_application) else {
            return;
        };
        let base = match self.layers() {
            Layers::Disk { .. } => self.folder.clone(),
            Layers::Memory { .. } => self.lives_folder(),
            // Where the kernel has no layers, the home is read-only.
            Layers::Copies { .. } => return,
        };
        let layer = base.join(format!("home.{}", self.next_key()));
        let old = home.layer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Err(error) = self.fill_home(&layer).await {
            self.shared.note(&format!("what was restored of {} is incomplete: {error}", home.path.display()));
        }
        let request = Request::Home {
            home: home.path.clone(),
            layer: layer.clone(),
            masked: home.masked.clone(),
            // That of an earlier agent is gone with it.
            before: old.clone().filter(|_| !is_new_agent),
            user: self.shared.user,
        };
        match stage.agent.link.request(request, &[]).await {
            Ok(_) => *home.layer.lock().unwrap_or_else(PoisonError::into_inner) = Some(layer),
            // Some file systems cannot be a layer; the home is read-only then.
            Err(error) => {
                self.shared.note(&format!("{} is read-only for trials: {error}", home.path.display()));
            }
        }
        // An instance that goes on still uses the old one, which then stays until the slot is closed.
        if let Some(old) = old.filter(|_| stage.lives().is_empty()) {
            self.discard(old);
        }
    }
}

/// Existing secrets, and what they are links to; absolute, without links on the way.
fn find_secrets(home: &Path) -> Vec<PathBuf> {
    let mut named: Vec<PathBuf> = SECRETS.iter().map(|secret| home.join(secret)).collect();
    for prefix in SECRET_PREFIXES.map(|prefix| home.join(prefix)) {
        let start = prefix.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let entries =
            prefix.parent().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
        let like = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&start));
        named.extend(like.map(|entry| entry.path()));
    }
    let mut found = Vec::new();
    for path in named {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { continue };
        let Ok(folder) = folder.canonicalize() else { continue };
        let entry = folder.join(name);
        if fs::symlink_metadata(&entry).is_err() {
            continue;
        }
        // People keep their dot files elsewhere and link them.
        if let Ok(target) = entry.canonicalize()
            && target != entry
        {
            found.push(target);
        }
        found.push(entry);
    }
    found.sort();
    found.dedup();
    // What lies inside another one is masked with it.
    let all = found.clone();
    found.retain(|path| !all.iter().any(|other| path != other && path.starts_with(other)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_found_where_they_are_and_where_links_lead() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap().join("home");
        for path in [".ssh/id", ".config/gcloud/key", ".config/app/conf", ".cargo/bin/x", "dots/kube/config"]
        {
            fs::create_dir_all(home.join(path).parent().unwrap()).unwrap();
            fs::write(home.join(path), "").unwrap();
        }
        fs::write(home.join(".cargo/credentials.toml"), "").unwrap();
        fs::write(home.join(".netrc"), "").unwrap();
        fs::write(home.join(".bash_history"), "").unwrap();
        std::os::unix::fs::symlink("dots/kube", home.join(".kube")).unwrap();
        fs::create_dir(home.with_file_name("vault")).unwrap();
        std::os::unix::fs::symlink("../vault", home.join(".gnupg")).unwrap();
        let found = Home::find(&home, Path::new("/srv/app")).unwrap();
        let below: Vec<_> = found.masked.iter().map(|path| path.to_str().unwrap()).collect();
        let expected = [
            ".bash_history",
            ".cargo/credentials.toml",
            ".config/gcloud",
            ".gnupg",
            ".kube",
            ".netrc",
            ".ssh",
            "dots/kube",
        ];
        assert_eq!(below, expected);
        assert_eq!(found.masked_elsewhere, [home.with_file_name("vault")]);
        let inside = Home::find(&home, home.parent().unwrap()).unwrap();
        assert_eq!((inside.masked.len(), inside.masked_elsewhere.len(), inside.view()), (0, 9, None));
        for none in ["/", "/no/such/home", "/etc/passwd"] {
            assert!(Home::find(Path::new(none), Path::new("/srv/app")).is_none(), "{none}");
        }
    }
}
