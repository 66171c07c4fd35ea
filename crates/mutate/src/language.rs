//! The languages that can be mutated, and their grammars.

use std::fmt;
use std::path::Path;

use serde::Serialize;

/// A language with a grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// Python 3.
    Python,
    /// JavaScript, also with JSX.
    JavaScript,
    /// TypeScript.
    TypeScript,
    /// TypeScript with JSX, which has a grammar of its own.
    Tsx,
    /// Go.
    Go,
    /// Java.
    Java,
    /// Rust.
    Rust,
    /// The application file.
    Yaml,
}

impl Language {
    /// All languages of source code.
    pub const CODE: [Self; 7] =
        [Self::Python, Self::JavaScript, Self::TypeScript, Self::Tsx, Self::Go, Self::Java, Self::Rust];

    /// The language of a source file, by the ending of its name. YAML is not source: which YAML file is an
    /// application file only its reader knows.
    pub fn for_path(path: &Path) -> Option<Self> {
        Some(match path.extension()?.to_str()? {
            "py" => Self::Python,
            "js" | "mjs" | "cjs" | "jsx" => Self::JavaScript,
            "ts" | "mts" | "cts" => Self::TypeScript,
            "tsx" => Self::Tsx,
            "go" => Self::Go,
            "java" => Self::Java,
            "rs" => Self::Rust,
            _ => return None,
        })
    }

    pub(crate) fn grammar(self) -> tree_sitter::Language {
        match self {
            Self::Python => tree_sitter_python::LANGUAGE.into(),
            Self::JavaScript => tree_sitter_javascript::LANGUAGE.into(),
            Self::TypeScript => tree_sitter_typescript::LANGUAGE_TYPESCRIPT.into(),
            Self::Tsx => tree_sitter_typescript::LANGUAGE_TSX.into(),
            Self::Go => tree_sitter_go::LANGUAGE.into(),
            Self::Java => tree_sitter_java::LANGUAGE.into(),
            Self::Rust => tree_sitter_rust::LANGUAGE.into(),
            Self::Yaml => tree_sitter_yaml::LANGUAGE.into(),
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Python => "Python",
            Self::JavaScript => "JavaScript",
            Self::TypeScript | Self::Tsx => "TypeScript",
            Self::Go => "Go",
            Self::Java => "Java",
            Self::Rust => "Rust",
            Self::Yaml => "YAML",
        })
    }
}
