//! Small services in the shape in which people write them.

use faultscope_mutate::{Language, Mutant, Source, enumerate};

/// A file and its language.
pub(crate) struct Sample {
    pub(crate) path: &'static str,
    pub(crate) text: &'static str,
    pub(crate) language: Language,
}

macro_rules! sample {
    ($path:literal, $language:ident) => {
        Sample {
            path: $path,
            text: include_str!(concat!("../samples/", $path)),
            language: Language::$language,
        }
    };
}

pub(crate) const SAMPLES: [Sample; 8] = [
    sample!("catalog.py", Python),
    sample!("orders.py", Python),
    sample!("todos.js", JavaScript),
    sample!("cart.ts", TypeScript),
    sample!("stock.go", Go),
    sample!("OrderController.java", Java),
    sample!("price.rs", Rust),
    sample!("faultscope.yaml", Yaml),
];

impl Sample {
    pub(crate) fn mutants(&self) -> Vec<Mutant> {
        mutants(self.path, self.text, self.language)
    }
}

/// The mutants of a text that is known to be valid.
pub(crate) fn mutants(path: &str, text: &str, language: Language) -> Vec<Mutant> {
    match Source::parse(path, text.as_bytes(), language) {
        Ok(source) => enumerate(&source),
        Err(error) => panic!("{path}: {error}"),
    }
}
