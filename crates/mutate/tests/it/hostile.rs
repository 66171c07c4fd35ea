//! Files that nobody wrote for this tool.

use faultscope_mutate::{Language, Source, UnusableSource, enumerate};

const LANGUAGES: [Language; 8] = [
    Language::Python,
    Language::JavaScript,
    Language::TypeScript,
    Language::Tsx,
    Language::Go,
    Language::Java,
    Language::Rust,
    Language::Yaml,
];

fn refuse(bytes: &[u8], language: Language) -> UnusableSource {
    match Source::parse("file", bytes, language) {
        Err(error) => error,
        Ok(_) => panic!("{language}: accepted"),
    }
}

#[test]
fn what_is_no_source_is_refused_by_name() {
    for language in LANGUAGES {
        assert_eq!(refuse(&vec![b'a'; 10 << 20], language), UnusableSource::TooLarge);
        assert_eq!(refuse(b"x = 1\0\n", language), UnusableSource::NotText);
        assert_eq!(refuse(b"x = '\xff\xfe'\n", language), UnusableSource::NotText);
    }
    let broken = refuse(b"def f():\n    return 1\n\ndef g(:\n", Language::Python);
    assert!(matches!(broken, UnusableSource::Syntax { .. }), "{broken}");
    assert_eq!(broken.to_string(), "line 4 is not valid Python");
}

#[test]
fn deep_nesting_does_not_exhaust_the_stack() {
    for (language, open, close) in [
        (Language::JavaScript, "[", "]"),
        (Language::Python, "(", ")"),
        (Language::Yaml, "[", "]"),
        (Language::Go, "{", "}"),
    ] {
        let depth = 20_000;
        let head = if language == Language::Go { "package p\nfunc f() " } else { "x = " };
        let head = if language == Language::Yaml { "x: " } else { head };
        let text = format!(
            "{head}{}{}{}\n",
            open.repeat(depth),
            if open == "(" { "1" } else { "" },
            close.repeat(depth)
        );
        let refused = refuse(text.as_bytes(), language);
        assert!(
            matches!(refused, UnusableSource::TooDeep | UnusableSource::Syntax { .. }),
            "{language}: {refused}"
        );
    }
}

#[test]
fn empty_files_have_no_mutants() {
    for language in LANGUAGES {
        for text in ["", "\n", "\u{feff}", "\r\n\r\n"] {
            if let Ok(source) = Source::parse("file", text.as_bytes(), language) {
                assert_eq!(enumerate(&source), Vec::new(), "{language}");
            }
        }
    }
}
