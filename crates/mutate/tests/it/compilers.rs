//! Real compilers and parsers accept the mutants. The frameworks that samples use are replaced by stubs, which have
//! just the types that the samples name.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use faultscope_mutate::Mutant;

use crate::samples::{SAMPLES, Sample};

fn sample(path: &str) -> &'static Sample {
    SAMPLES.iter().find(|sample| sample.path == path).unwrap()
}

/// The original and all its mutants, by a name that every language accepts for a module.
fn versions(sample: &Sample) -> Vec<(String, String)> {
    let mutant =
        |mutant: Mutant| (mutant.id.as_str().replace('-', "_"), mutant.patch.apply(sample.text).unwrap());
    let original = ("original".to_owned(), sample.text.to_owned());
    std::iter::once(original).chain(sample.mutants().into_iter().map(mutant)).collect()
}

/// Runs a tool that must be there and must succeed.
fn run(command: &mut Command) {
    let tool = command.get_program().to_string_lossy().into_owned();
    let output = command.output().unwrap_or_else(|error| panic!("{tool} is needed by this test: {error}"));
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&said));
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn python() {
    for path in ["catalog.py", "orders.py"] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("python3");
        command.args(["-m", "py_compile"]).current_dir(folder.path());
        for (name, text) in versions(sample(path)) {
            let file = format!("{name}.py");
            write(folder.path(), &file, &text);
            command.arg(file);
        }
        run(&mut command);
    }
}

#[test]
fn javascript() {
    const PARSE: &str = "const fs = require('fs'), vm = require('vm');
        for (const name of fs.readdirSync('.')) new vm.Script(`(function (require, module) {${fs.readFileSync(name)}\n})`, name);";
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in versions(sample("todos.js")) {
        write(folder.path(), &format!("{name}.js"), &text);
    }
    run(Command::new("node").args(["-e", PARSE]).current_dir(folder.path()));
}

#[test]
fn go() {
    const MODULE: &str = "module shop\n\ngo 1.22\n\nrequire github.com/redis/go-redis/v9 v9.0.0\n\n\
        replace github.com/redis/go-redis/v9 => ./redis\n";
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "go.mod", MODULE);
    write(folder.path(), "redis/go.mod", "module github.com/redis/go-redis/v9\n\ngo 1.22\n");
    write(folder.path(), "redis/redis.go", include_str!("../samples/stubs/redis.go.txt"));
    // Each package takes a moment, so of the mutants that insert the same statement elsewhere only some are built.
    let mut built: BTreeMap<_, u32> = BTreeMap::new();
    for mutant in sample("stock.go").mutants() {
        let n_built = built.entry((mutant.operator, mutant.variant)).or_default();
        *n_built += 1;
        if *n_built > 2 && !matches!(mutant.operator.id(), "M13" | "M14" | "M15" | "MI" | "AI") {
            continue;
        }
        let text = mutant.patch.apply(sample("stock.go").text).unwrap();
        // A program would also be linked; a library is only compiled.
        let text = text.replacen("package main", "package stock", 1);
        write(folder.path(), &format!("{}/stock.go", mutant.id.as_str().replace('-', "_")), &text);
    }
    let cache = std::env::var("GOCACHE").ok();
    let mut command = Command::new("go");
    command
        .args(["build", "./..."])
        .current_dir(folder.path())
        .env("GOFLAGS", "-mod=mod")
        .env("GOPROXY", "off");
    if cache.is_none() && std::env::var_os("HOME").is_none() {
        command.env("GOCACHE", folder.path().join(".cache"));
    }
    run(&mut command);
}

#[test]
fn java() {
    let folder = tempfile::tempdir().unwrap();
    // One file with all stubs: a line `// FILE path` begins the next.
    for part in include_str!("../samples/stubs/spring.java.txt").split("// FILE ").skip(1) {
        let (path, text) = part.split_once('\n').unwrap();
        write(folder.path(), path.trim(), text);
    }
    write(folder.path(), "classes/.keep", "");
    let mut command = Command::new("javac");
    command.args(["-proc:none", "-d", "classes", "-sourcepath", "."]).current_dir(folder.path());
    for (name, text) in versions(sample("OrderController.java")) {
        let file = format!("{name}/OrderController.java");
        write(folder.path(), &file, &text.replacen("package shop.order;", &format!("package {name};"), 1));
        command.arg(file);
    }
    run(&mut command);
}

#[test]
fn rust() {
    let folder = tempfile::tempdir().unwrap();
    let rustc = || {
        let mut command = Command::new("rustc");
        command.args(["--edition", "2021", "--cap-lints", "allow"]).current_dir(folder.path());
        command
    };
    // One file with all stubs: a line `// CRATE name kind` begins the next.
    let mut names = Vec::new();
    for part in include_str!("../samples/stubs/crates.rs.txt").split("// CRATE ").skip(1) {
        let (head, text) = part.split_once('\n').unwrap();
        let (name, kind) = head.trim().split_once(' ').unwrap();
        let file = format!("{name}.rs");
        write(folder.path(), &file, text);
        run(rustc().args(["--crate-type", kind, "--crate-name", name, &file]));
        names.push(name);
    }
    let mut root = String::new();
    for (name, text) in versions(sample("price.rs")) {
        write(folder.path(), &format!("{name}.rs"), &text);
        root.push_str(&format!("pub mod {name};\n"));
    }
    write(folder.path(), "root.rs", &root);
    let mut command = rustc();
    command.args(["--crate-type", "lib", "--emit", "metadata", "-L", ".", "root.rs"]);
    for name in names {
        command.args(["--extern", name]);
    }
    run(&mut command);
}
