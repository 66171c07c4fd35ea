//! The statements that operators insert, in each language.
//!
//! Java and Rust refuse or report code that cannot be reached, so what ends a request is hidden behind a condition
//! there. Names begin with `injected`, so that they meet no name of the service.

use crate::imports::Import;
use crate::language::Language;
use crate::operator::Operator;
use crate::outline::Function;
use crate::source::Source;

/// Statements, and what must stand elsewhere so that they compile.
#[derive(Debug, Default)]
pub(crate) struct Snippet {
    /// `{time}` and the like stand for the names of imports.
    pub(crate) lines: Vec<String>,
    pub(crate) imports: Vec<Import>,
    /// A declaration beside the function, in Java in its class.
    pub(crate) declaration: Option<&'static str>,
}

/// The form of an operator that has several.
pub(crate) type Variant = Option<&'static str>;

/// The operators that insert statements, with their forms.
pub(crate) const INSERTING: [(Operator, Variant); 8] = [
    (Operator::ConsistentDelay, None),
    (Operator::RandomDelay, None),
    (Operator::Abort, None),
    (Operator::Timeout, None),
    (Operator::MemoryLeak, None),
    (Operator::HighCpu, None),
    (Operator::ResourceHungry, Some("memory")),
    (Operator::ResourceHungry, Some("cpu")),
];

/// The statements of an operator for a function.
pub(crate) fn snippet(
    source: &Source<'_>,
    function: &Function<'_>,
    operator: Operator,
    variant: Variant,
) -> Option<Snippet> {
    match source.language {
        Language::Python => python(source, function, operator, variant),
        Language::JavaScript | Language::TypeScript | Language::Tsx => {
            script(source, function, operator, variant)
        }
        Language::Go => go(function, operator, variant),
        Language::Java => java(operator, variant),
        Language::Rust => rust(source, function, operator, variant),
        Language::Yaml => None,
    }
}

fn lines(text: &str) -> Snippet {
    Snippet { lines: text.lines().map(str::to_owned).collect(), ..Snippet::default() }
}

fn with_imports(text: &str, imports: &[Import]) -> Snippet {
    Snippet { imports: imports.to_vec(), ..lines(text) }
}

fn python(
    source: &Source<'_>,
    function: &Function<'_>,
    operator: Operator,
    variant: Variant,
) -> Option<Snippet> {
    let sleeper = if function.is_async { Import("asyncio") } else { Import("time") };
    let sleep = |seconds: &str| match function.is_async {
        true => format!("await {{asyncio}}.sleep({seconds})"),
        false => format!("{{time}}.sleep({seconds})"),
    };
    Some(match (operator, variant) {
        (Operator::ConsistentDelay, _) => with_imports(&sleep("0.2"), &[sleeper]),
        (Operator::RandomDelay, _) => with_imports(&sleep("{random}.random()"), &[sleeper, Import("random")]),
        (Operator::Abort, _) if function.responds && source.text.contains("from flask import") => {
            with_imports("{flask}.abort(500)", &[Import("flask")])
        }
        (Operator::Abort, _) if function.responds && source.text.contains("fastapi import") => {
            with_imports("raise {fastapi}.HTTPException(status_code=500)", &[Import("fastapi")])
        }
        (Operator::Abort, _) => lines("raise RuntimeError(\"injected abort\")"),
        (Operator::Timeout, _) => {
            with_imports(&format!("while True:\n{}{}", source.indent_unit(), sleep("3600")), &[sleeper])
        }
        // A repeated byte is written at once; memory that is only reserved would not count as used.
        (Operator::MemoryLeak, _) => {
            lines("globals().setdefault(\"injected_leak\", []).append(b\"x\" * (8 << 20))")
        }
        (Operator::HighCpu, _) => lines("sum(i * i for i in range(2_000_000))"),
        (Operator::ResourceHungry, Some("memory")) => lines("injected_data = b\"x\" * (128 << 20)"),
        (Operator::ResourceHungry, _) => lines("sum(i * i for i in range(20_000_000))"),
        _ => return None,
    })
}

fn script(
    source: &Source<'_>,
    function: &Function<'_>,
    operator: Operator,
    variant: Variant,
) -> Option<Snippet> {
    // A function that is not asynchronous can only block its thread.
    let sleep = |millis: &str| match function.is_async {
        true => format!("await new Promise((resolve) => setTimeout(resolve, {millis}));"),
        false => format!("Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, {millis});"),
    };
    let global = if source.language == Language::JavaScript { "globalThis" } else { "(globalThis as any)" };
    Some(match (operator, variant) {
        (Operator::ConsistentDelay, _) => lines(&sleep("200")),
        (Operator::RandomDelay, _) => lines(&sleep("Math.random() * 1000")),
        (Operator::Abort, _) => match &function.writer {
            Some(writer) => lines(&format!("{writer}.statusCode = 500;\n{writer}.end();\nreturn;")),
            None => lines("throw new Error(\"injected abort\");"),
        },
        (Operator::Timeout, _) if function.is_async => lines("await new Promise(() => {});"),
        (Operator::Timeout, _) if function.writer.is_some() => lines("return;"),
        (Operator::Timeout, _) => lines(&sleep("Infinity")),
        (Operator::MemoryLeak, _) => {
            lines(&format!("({global}.injectedLeak ??= []).push(new Uint8Array(8 << 20).fill(1));"))
        }
        (Operator::HighCpu, _) => lines("for (let i = 0, x = 0; i < 5e7; i++) x += i % 7;"),
        (Operator::ResourceHungry, Some("memory")) => {
            lines("const injectedData = new Uint8Array(128 << 20).fill(1);\nvoid injectedData;")
        }
        (Operator::ResourceHungry, _) => lines("for (let i = 0, x = 0; i < 5e8; i++) x += i % 7;"),
        _ => return None,
    })
}

fn go(function: &Function<'_>, operator: Operator, variant: Variant) -> Option<Snippet> {
    Some(match (operator, variant) {
        (Operator::ConsistentDelay, _) => {
            with_imports("{time}.Sleep(200 * {time}.Millisecond)", &[Import("time")])
        }
        (Operator::RandomDelay, _) => with_imports(
            "{time}.Sleep({time}.Duration({rand}.Intn(1000)) * {time}.Millisecond)",
            &[Import("time"), Import("math/rand")],
        ),
        (Operator::Abort, _) => match &function.writer {
            Some(writer) => with_imports(
                &format!(
                    "{{http}}.Error({writer}, \"injected abort\", {{http}}.StatusInternalServerError)\nreturn"
                ),
                &[Import("net/http")],
            ),
            None => lines("panic(\"injected abort\")"),
        },
        (Operator::Timeout, _) => lines("select {}"),
        (Operator::MemoryLeak, _) => Snippet {
            declaration: Some("var injectedLeak [][]byte"),
            ..with_imports(
                "injectedLeak = append(injectedLeak, {bytes}.Repeat([]byte{1}, 8<<20))",
                &[Import("bytes")],
            )
        },
        (Operator::HighCpu, _) => lines("for i := 0; i < 300_000_000; i++ {\n}"),
        (Operator::ResourceHungry, Some("memory")) => with_imports(
            "injectedData := {bytes}.Repeat([]byte{1}, 128<<20)\ndefer {runtime}.KeepAlive(injectedData)",
            &[Import("bytes"), Import("runtime")],
        ),
        (Operator::ResourceHungry, _) => lines("for i := 0; i < 3_000_000_000; i++ {\n}"),
        _ => return None,
    })
}

fn java(operator: Operator, variant: Variant) -> Option<Snippet> {
    let sleep = |millis: &str| {
        format!(
            "try {{ Thread.sleep({millis}); }} \
             catch (InterruptedException injectedInterrupt) {{ Thread.currentThread().interrupt(); }}"
        )
    };
    let compute = |rounds: &str| {
        format!(
            "double injectedSum = 0;\nfor (int injectedRound = 0; injectedRound < {rounds}; injectedRound++) \
             injectedSum += Math.sqrt(injectedRound);\nif (injectedSum < 0) throw new IllegalStateException();"
        )
    };
    Some(match (operator, variant) {
        (Operator::ConsistentDelay, _) => lines(&sleep("200")),
        (Operator::RandomDelay, _) => lines(&sleep("(long) (Math.random() * 1000)")),
        (Operator::Abort, _) => lines("if (true) throw new RuntimeException(\"injected abort\");"),
        (Operator::Timeout, _) => {
            lines(&format!("while (!Thread.currentThread().isInterrupted()) {{ {} }}", sleep("3600000")))
        }
        (Operator::MemoryLeak, _) => Snippet {
            declaration: Some(
                "private static final java.util.List<byte[]> INJECTED_LEAK = \
                 java.util.Collections.synchronizedList(new java.util.ArrayList<>());",
            ),
            ..lines("INJECTED_LEAK.add(new byte[8 << 20]);")
        },
        (Operator::HighCpu, _) => lines(&compute("50_000_000")),
        (Operator::ResourceHungry, Some("memory")) => lines(
            "byte[] injectedData = new byte[128 << 20];\njava.util.Arrays.fill(injectedData, (byte) 1);",
        ),
        (Operator::ResourceHungry, _) => lines(&compute("500_000_000")),
        _ => return None,
    })
}

fn rust(
    source: &Source<'_>,
    function: &Function<'_>,
    operator: Operator,
    variant: Variant,
) -> Option<Snippet> {
    // Asynchronous functions of these frameworks run on tokio; in others only blocking is known to work.
    let on_tokio =
        function.is_async && ["tokio", "axum", "actix"].iter().any(|name| source.text.contains(name));
    let sleep = |duration: &str| match on_tokio {
        true => format!("tokio::time::sleep({duration}).await;"),
        false => format!("std::thread::sleep({duration});"),
    };
    let now = "std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)";
    Some(match (operator, variant) {
        (Operator::ConsistentDelay, _) => lines(&sleep("std::time::Duration::from_millis(200)")),
        // The clock is the one source of chance without a crate.
        (Operator::RandomDelay, _) => lines(&format!(
            "let injected_delay = {now}.map_or(0, |now| now.subsec_nanos() % 1000);\n{}",
            sleep("std::time::Duration::from_millis(injected_delay.into())")
        )),
        (Operator::Abort, _) => lines("if std::hint::black_box(true) {\n    panic!(\"injected abort\");\n}"),
        (Operator::Timeout, _) if function.is_async => lines("std::future::pending::<()>().await;"),
        (Operator::Timeout, _) => lines(
            "while std::hint::black_box(true) {\n    std::thread::sleep(std::time::Duration::from_secs(3600));\n}",
        ),
        (Operator::MemoryLeak, _) => lines("std::mem::forget(std::hint::black_box(vec![1_u8; 8 << 20]));"),
        (Operator::HighCpu, _) => {
            lines("for round in 0..20_000_000_u64 {\n    std::hint::black_box(round);\n}")
        }
        (Operator::ResourceHungry, Some("memory")) => {
            lines("let _injected_data = std::hint::black_box(vec![1_u8; 128 << 20]);")
        }
        (Operator::ResourceHungry, _) => {
            lines("for round in 0..200_000_000_u64 {\n    std::hint::black_box(round);\n}")
        }
        _ => return None,
    })
}
