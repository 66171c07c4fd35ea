//! Which files of an application stay out of its bundle: `.gitignore` files, and `bundle.exclude` over them.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use faultscope_model::application::BundleOptions;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::BundleError;

/// Folders that never go in: what the tool and version control keep.
const NEVER: [&str; 3] = [".faultscope", ".git", ".hg"];
/// Folders that are built from the rest. A pattern that begins with `!` brings them back.
const BUILT: [&str; 3] = ["target/", "__pycache__/", ".venv/"];
/// How far above the application a repository may begin. Deeper trees are rare, and a search must end.
const MAX_ABOVE: usize = 32;

/// What becomes of a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It goes in.
    Kept,
    /// A `.gitignore` file lists it.
    Ignored,
    /// The application file excludes it, or it never goes in.
    Excluded,
}

/// The `.gitignore` files from the top of a repository down to a folder; the innermost decides first.
#[derive(Debug)]
pub(super) struct Layer {
    rules: Gitignore,
    outer: Option<Rc<Self>>,
}

impl Layer {
    /// Adds the `.gitignore` of a folder, if there is one.
    pub(super) fn inside(outer: Option<Rc<Self>>, folder: &Path) -> Option<Rc<Self>> {
        let file = folder.join(".gitignore");
        if !file.is_file() {
            return outer;
        }
        // Lines that are no patterns are skipped, as git does.
        let (rules, _) = Gitignore::new(file);
        Some(Rc::new(Self { rules, outer }))
    }
}

/// The rules of one application.
#[derive(Debug)]
pub(super) struct Rules {
    root: PathBuf,
    exclude: Gitignore,
    built: Gitignore,
}

impl Rules {
    /// Reads the patterns of an application file, which mean what they mean in a `.gitignore` in its folder.
    pub(super) fn read(root: &Path, options: &BundleOptions) -> Result<Self, BundleError> {
        let mut exclude = GitignoreBuilder::new(root);
        for pattern in &options.exclude {
            exclude.add_line(None, pattern).map_err(|error| BundleError::Pattern {
                pattern: pattern.clone(),
                problem: plain_problem(&error),
            })?;
        }
        let whole = |error: &ignore::Error| BundleError::Pattern {
            pattern: options.exclude.join(", "),
            problem: plain_problem(error),
        };
        let mut built = GitignoreBuilder::new(root);
        for pattern in BUILT {
            built.add_line(None, pattern).map_err(|error| whole(&error))?;
        }
        Ok(Self {
            root: root.to_owned(),
            exclude: exclude.build().map_err(|error| whole(&error))?,
            built: built.build().map_err(|error| whole(&error))?,
        })
    }

    /// The `.gitignore` files above the application, where it is a part of a repository.
    pub(super) fn above(&self) -> Option<Rc<Layer>> {
        let outer: Vec<&Path> = self.root.ancestors().skip(1).take(MAX_ABOVE).collect();
        let is_top = |folder: &Path| folder.join(".git").exists();
        if is_top(&self.root) {
            return None;
        }
        let top = outer.iter().position(|folder| is_top(folder))?;
        outer[..=top].iter().rev().fold(None, |layer, folder| Layer::inside(layer, folder))
    }

    /// What becomes of a file or folder whose parents are kept.
    pub(super) fn judge(&self, layer: Option<&Rc<Layer>>, path: &Path, is_dir: bool) -> Fate {
        if is_dir && path.file_name().is_some_and(|name| NEVER.iter().any(|never| name == *never)) {
            return Fate::Excluded;
        }
        match self.exclude.matched(path, is_dir) {
            Match::Ignore(_) => return Fate::Excluded,
            Match::Whitelist(_) => return Fate::Kept,
            Match::None => {}
        }
        let mut next = layer;
        while let Some(layer) = next {
            match layer.rules.matched(self.root.join(path), is_dir) {
                Match::Ignore(_) => return Fate::Ignored,
                Match::Whitelist(_) => return Fate::Kept,
                Match::None => next = layer.outer.as_ref(),
            }
        }
        if self.built.matched(path, is_dir).is_ignore() { Fate::Excluded } else { Fate::Kept }
    }

    /// Whether the application file excludes a file or a folder that it lies in.
    pub(super) fn excludes(&self, path: &Path) -> bool {
        self.exclude.matched_path_or_any_parents(path, false).is_ignore()
    }

    /// The outermost folder of a file that a `.gitignore` lists; none if the file itself is listed, or nothing.
    pub(super) fn ignored_folder(&self, path: &Path) -> Option<PathBuf> {
        let mut layer = Layer::inside(self.above(), &self.root);
        let mut folders: Vec<&Path> =
            path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()).collect();
        folders.reverse();
        for folder in folders {
            match self.judge(layer.as_ref(), folder, true) {
                Fate::Kept => layer = Layer::inside(layer, &self.root.join(folder)),
                Fate::Ignored => return Some(folder.to_owned()),
                Fate::Excluded => return None,
            }
        }
        None
    }

    /// The `.gitignore` files that hold in a folder. In one that is left out itself only its own do: whoever asks
    /// for it by name wants it.
    pub(super) fn layer_of(&self, folder: &Path) -> Option<Rc<Layer>> {
        let mut layer = Layer::inside(self.above(), &self.root);
        let mut below = PathBuf::new();
        for part in folder.components() {
            below.push(part);
            if self.judge(layer.as_ref(), &below, true) != Fate::Kept {
                layer = None;
            }
            layer = Layer::inside(layer, &self.root.join(&below));
        }
        layer
    }
}

/// What is wrong with a pattern, without the pattern itself, which the caller shows.
fn plain_problem(error: &ignore::Error) -> String {
    match error {
        ignore::Error::Glob { err, .. } => err.clone(),
        other => other.to_string(),
    }
}
