use faultscope_model::outcome::Ending;

use super::*;

const FILE: &str = "name: shop\nservices:\n  order: { command: [python3, src/order.py], ports: [80], env: { API_TOKEN: x, EMPTY_SECRET: \"\" } }\ntests: [ { name: pay, run: [./pay.sh] } ]\nfailing: { instances: { order: 4 }, config: { order: { memory: 64MiB } } }\n";

fn manifest() -> Manifest {
    Manifest {
        format: FORMAT,
        version: "1".into(),
        application: "shop".into(),
        campaign: "c".into(),
        signature: Signature { test: "pay".into(), ending: Ending::Code(1), message: "no: \"way\"".into() },
        rate: 1.0,
        seed: 1,
        deltas: vec!["instance order".into()],
        only: false,
        compared: None,
    }
}

fn folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("faultscope.yaml", FILE),
        ("cases/one.yaml", "extends: ../faultscope.yaml\n"),
        ("src/order.py", "print()"),
        ("pay.sh", "#!/bin/sh\n"),
        (".faultscope/campaigns/x", "old"),
        (".git/config", "x"),
    ] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fs::set_permissions(folder.path().join("pay.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

#[test]
fn a_bundle_holds_what_the_failure_needs() {
    let from = folder();
    let application = Application::read_alone(FILE, "f").unwrap();
    let mut failing = Circumstance::default();
    failing.instances.insert("order".parse().unwrap(), 4);
    let passing = Circumstance::default();
    let files = ["cases/one.yaml", "faultscope.yaml"].map(|name| from.path().join(name));
    let reduced = Some(Reduced { files: &files, failing: &failing, passing: &passing });
    let contents = Contents { root: from.path(), application: &application, reduced };
    let out = from.path().join("out/b.tar.gz");
    let written = write(&out, &manifest(), &contents).unwrap();
    assert_eq!((written.files, written.left_out, written.ignored), (7, Vec::new(), Vec::new()));
    let to = tempfile::tempdir().unwrap();
    let (read, file) = unpack(&out, to.path()).unwrap();
    assert_eq!(read, manifest());
    assert!(!to.path().join("application/.git").exists());
    assert!(is_executable(&to.path().join("application/pay.sh")));
    assert!(!is_executable(&to.path().join("application/src/order.py")));
    let load = |base: &str, path: &str| {
        let next = Path::new(base).parent().unwrap().join(path);
        Ok((fs::read_to_string(&next).map_err(|e| e.to_string())?, next.to_string_lossy().into_owned()))
    };
    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains(&*from.path().to_string_lossy()), "no path of this machine: {text}");
    let reduced = Application::read(&text, &file.to_string_lossy(), &load).unwrap();
    assert_eq!(reduced.failing, failing);
    assert_eq!(reduced.simplest, passing);
    assert_eq!(reduced.failing_test.as_deref(), Some("pay"));
}

#[test]
fn of_a_large_folder_what_is_large_and_not_named_stays() {
    let from = folder();
    let huge = vec![0; (files::WHOLE_BYTES + 1) as usize];
    fs::write(from.path().join("huge.bin"), &huge).unwrap();
    fs::write(from.path().join("orders.json"), &huge).unwrap();
    let named = FILE.replace("run: [./pay.sh]", "run: [./pay.sh, \"{input}\"], input: orders.json");
    let application = Application::read_alone(&named, "f").unwrap();
    let root = fs::canonicalize(from.path()).unwrap();
    let Collected { files, left_out, largest, .. } = collect(&root, &application);
    assert_eq!(largest, [], "no folder is large, only files are");
    let files: Vec<_> = files.into_keys().collect();
    let expected = ["cases/one.yaml", "faultscope.yaml", "orders.json", "pay.sh", "src/order.py"];
    assert_eq!(files, expected.map(PathBuf::from));
    assert_eq!(left_out, [PathBuf::from("huge.bin")]);
}

#[test]
fn secrets_and_earlier_bundles_stay() {
    let from = folder();
    fs::write(from.path().join(".env"), "DB_PASSWORD=x").unwrap();
    fs::write(from.path().join("src/tls.key"), "x").unwrap();
    fs::write(from.path().join(".env.example"), "DB_PASSWORD=").unwrap();
    let application = Application::read_alone(FILE, "f").unwrap();
    let (failing, passing) = (Circumstance::default(), Circumstance::default());
    let files = [from.path().join("faultscope.yaml")];
    let reduced = Some(Reduced { files: &files, failing: &failing, passing: &passing });
    let contents = Contents { root: from.path(), application: &application, reduced };
    let out = from.path().join("b.tgz");
    for _ in 0..2 {
        let written = write(&out, &manifest(), &contents).unwrap();
        assert_eq!(written.left_out, [".env", "src/tls.key"].map(PathBuf::from));
        assert_eq!(written.files, 8, "an earlier bundle is not in it");
    }
}

fn collect(root: &Path, application: &Application) -> Collected {
    Collector::new(root, application).unwrap().collect(application).unwrap()
}

/// A folder with these files, each with its own name as text unless it is a `.gitignore`.
fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

/// What a bundle of these files holds and what it leaves to `.gitignore`, each in one line.
fn chosen(below: &str, files: &[(&str, &str)], application: &str) -> (String, String) {
    let folder = tree(files);
    let root = fs::canonicalize(folder.path().join(below)).unwrap();
    let text = format!("services: {{ a: {{ command: [a], {application}\n");
    let Collected { files, ignored, .. } = collect(&root, &Application::read_alone(&text, "f").unwrap());
    let line = |names: Vec<PathBuf>| {
        names.iter().map(|name| name.display().to_string()).collect::<Vec<_>>().join(" ")
    };
    (line(files.into_keys().collect()), line(ignored))
}

#[test]
fn what_git_ignores_stays_and_negations_bring_back() {
    let files = [
        (".gitignore", "*.log\n/dist/\n# a comment\n!keep.log\n"),
        ("a.log", ""),
        ("keep.log", ""),
        ("dist/main.js", ""),
        ("web/dist/main.js", ""),
        ("web/.gitignore", "!a.log\ndist\n!dist\nnode_modules/\n"),
        ("web/a.log", ""),
        ("web/b.log", ""),
        ("web/node_modules/x/index.js", ""),
        ("node_modules", "a file of this name is no folder"),
    ];
    let (kept, ignored) = chosen("", &files, "} }");
    assert_eq!(kept, ".gitignore keep.log node_modules web/.gitignore web/a.log web/dist/main.js");
    assert_eq!(ignored, "a.log dist web/b.log web/node_modules");
}

#[test]
fn the_application_file_outweighs_git() {
    let files = [
        (".gitignore", "dist/\n*.log\n"),
        ("dist/main.js", ""),
        ("dist/lib/util.js", ""),
        ("a.log", ""),
        ("data/big.bin", ""),
        ("target/debug/a", ""),
    ];
    let asked = "} }\nbundle: { exclude: [\"!dist\", \"!target\", data] }";
    assert_eq!(
        chosen("", &files, asked),
        (".gitignore dist/lib/util.js dist/main.js target/debug/a".into(), "a.log".into())
    );
}

#[test]
fn what_the_application_names_comes_along() {
    let files = [
        (".gitignore", "dist/\nconf/\n.env\n"),
        ("dist/main.js", ""),
        ("dist/lib/util.js", ""),
        ("conf/web.conf", ""),
        ("conf/other.conf", ""),
        (".env", ""),
        ("data/x", ""),
    ];
    let named = "env: { MAIN: dist/main.js }, mounts: [ { from: conf/web.conf, to: /etc/web.conf } ] } }";
    let (kept, ignored) = chosen("", &files, named);
    assert_eq!(kept, ".gitignore conf/other.conf conf/web.conf data/x dist/lib/util.js dist/main.js");
    assert_eq!(ignored, ".env");
    // Whoever excludes a folder that is named knows why.
    let (kept, _) = chosen("", &files, &format!("{named}\nbundle: {{ exclude: [dist, data/*] }}"));
    assert_eq!(kept, ".gitignore conf/other.conf conf/web.conf");
}

#[test]
fn a_part_of_a_repository_obeys_the_whole() {
    let files = [
        (".git/HEAD", ""),
        (".gitignore", "node_modules/\nshop/*.tmp\n"),
        ("shop/a.js", ""),
        ("shop/a.tmp", ""),
        ("shop/node_modules/x.js", ""),
    ];
    assert_eq!(chosen("shop", &files, "} }"), ("a.js".into(), "a.tmp node_modules".into()));
    // Without a repository, what lies above is nobody's concern.
    assert_eq!(chosen("shop", &files[1..], "} }").0, "a.js a.tmp node_modules/x.js");
}

#[test]
fn links_are_not_followed() {
    let folder = tree(&[("app/a.js", ""), ("outside/secret", "x")]);
    let root = fs::canonicalize(folder.path().join("app")).unwrap();
    std::os::unix::fs::symlink("../outside", root.join("linked")).unwrap();
    std::os::unix::fs::symlink("../outside/secret", root.join("file")).unwrap();
    let text = "services: { a: { command: [a, linked/secret, file], directory: linked } }";
    let Collected { files, .. } = collect(&root, &Application::read_alone(text, "f").unwrap());
    assert_eq!(files.into_keys().collect::<Vec<_>>(), [PathBuf::from("a.js")]);
}

#[test]
fn the_largest_folders_are_found_where_they_are_large() {
    let sized = |name: &str, bytes| (PathBuf::from(name), bytes);
    let files = Files::from([
        sized("web/node_modules/a/x.js", 50),
        sized("web/node_modules/b/x.js", 40),
        sized("web/src/x.js", 10),
        sized("data/x", 30),
        sized("y", 100),
    ]);
    assert_eq!(largest_folders(&files), [sized("web/node_modules", 90), sized("data", 30)]);
}

#[test]
fn a_pattern_that_is_none_is_known_before() {
    let text = "services: { a: { command: [a] } }\nbundle: { exclude: [\"[z-a]\"] }";
    let error = check(&Application::read_alone(text, "f").unwrap()).unwrap_err();
    assert!(error.to_string().starts_with("`bundle.exclude`: `[z-a]` is not a pattern: "), "{error}");
}

/// Writes a bundle of an application in `app` that `ops/case.yaml` describes, and unpacks it.
fn moved(base: &str, case: &str) -> Result<(tempfile::TempDir, Application), BundleError> {
    let folder = tree(&[("app/a.py", ""), ("ops/base.yaml", base), ("ops/cases/case.yaml", case)]);
    let application = Application::read_alone(FILE, "f").unwrap();
    let files = ["ops/cases/case.yaml", "ops/base.yaml"].map(|name| folder.path().join(name));
    let (failing, passing) = (Circumstance::default(), Circumstance::default());
    let reduced = Some(Reduced { files: &files, failing: &failing, passing: &passing });
    let root = folder.path().join("app");
    let out = folder.path().join("b.tar.gz");
    write(&out, &manifest(), &Contents { root: &root, application: &application, reduced })?;
    let to = tempfile::tempdir().unwrap();
    let (_, file) = unpack(&out, to.path())?;
    let load = |base: &str, path: &str| {
        let next = Path::new(base).parent().unwrap().join(path);
        Ok((fs::read_to_string(&next).map_err(|e| e.to_string())?, next.to_string_lossy().into_owned()))
    };
    let text = fs::read_to_string(&file).unwrap();
    Ok((to, Application::read(&text, &file.to_string_lossy(), &load).unwrap()))
}

#[test]
fn an_application_file_may_lie_outside() {
    let base = format!("directory: ../app\n{FILE}");
    let (to, read) = moved(&base, "extends: ../base.yaml\n").unwrap();
    let application = fs::canonicalize(to.path().join("application")).unwrap();
    assert_eq!(fs::canonicalize(read.folder).unwrap(), application);
    assert!(application.join("a.py").exists());
    assert!(to.path().join("files/base.yaml").exists() && to.path().join("files/cases/case.yaml").exists());
    // A file that only this machine finds makes no bundle.
    let error = moved(&base, "extends: /ops/base.yaml\n").unwrap_err().to_string();
    assert!(error.contains("cannot read `/ops/base.yaml`: it would not be in the bundle"), "{error}");
}

#[test]
fn a_file_with_the_name_of_the_reduced_one_is_named() {
    let from = folder();
    fs::write(from.path().join(MINIMAL), "mine").unwrap();
    let application = Application::read_alone(FILE, "f").unwrap();
    let circumstance = Circumstance::default();
    let files = [from.path().join("faultscope.yaml")];
    let reduced = Some(Reduced { files: &files, failing: &circumstance, passing: &circumstance });
    let contents = Contents { root: from.path(), application: &application, reduced };
    let error = write(&from.path().join("b.tgz"), &manifest(), &contents).unwrap_err();
    assert!(error.to_string().contains("rename it"), "{error}");
}

#[test]
fn names_that_look_like_secrets_are_told() {
    assert_eq!(secrets(&Application::read_alone(FILE, "f").unwrap()), ["order.API_TOKEN"]);
}

/// An archive with one entry whose name and type are written as they are.
fn archive(name: &str, kind: tar::EntryType, twice: bool) -> PathBuf {
    let folder = tempfile::tempdir().unwrap().keep();
    let path = folder.join("b.tar.gz");
    let mut builder = tar::Builder::new(GzEncoder::new(File::create(&path).unwrap(), Compression::default()));
    for _ in 0..=usize::from(twice) {
        let mut header = tar::Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(0);
        header.set_entry_type(kind);
        if kind == tar::EntryType::Symlink {
            header.set_link_name("/etc/passwd").unwrap();
        }
        header.set_cksum();
        builder.append(&header, io::empty()).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap();
    path
}

#[test]
fn hostile_archives_are_refused() {
    for (name, kind, twice) in [
        ("../out", tar::EntryType::Regular, false),
        ("/etc/out", tar::EntryType::Regular, false),
        ("a/../../out", tar::EntryType::Regular, false),
        ("link", tar::EntryType::Symlink, false),
        ("device", tar::EntryType::Char, false),
        ("same", tar::EntryType::Regular, true),
        ("no-manifest", tar::EntryType::Regular, false),
    ] {
        let path = archive(name, kind, twice);
        let to = tempfile::tempdir().unwrap();
        let inner = to.path().join("inner");
        fs::create_dir(&inner).unwrap();
        assert!(unpack(&path, &inner).is_err(), "{name}");
        assert!(!to.path().join("out").exists(), "{name}");
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
    let text = tempfile::NamedTempFile::new().unwrap();
    fs::write(text.path(), "not an archive").unwrap();
    let to = tempfile::tempdir().unwrap();
    assert!(matches!(unpack(text.path(), to.path()), Err(BundleError::Refused(_))));
}

/// A file with twelve secrets: in the environment, in settings, in headers, bodies and addresses of steps, in files.
const LEAKING: &str = r#"name: shop
services:
  order:
    command: [python3, src/order.py]
    ports: [80]
    env:
      DB_PASSWORD: QSECRET-1
      DSN: "postgres://app:QSECRET-2@db/shop"
    versions: { v2: { env: { SIGNING_KEY: QSECRET-3 } } }
tests:
  - name: pay
    steps:
      - post: "http://u:QSECRET-4@order/login?token=QSECRET-5"
        headers:
          Authorization: "Bearer QSECRET-6"
        json: { user: ann, password: QSECRET-7 }
      - post: "http://order/pay"
        body: "user=ann&client_secret=QSECRET-8"
simplest: { config: { order: { env.API_TOKEN: QSECRET-9a } } }
failing: { config: { order: { env.API_TOKEN: QSECRET-9b } } }
"#;

#[test]
fn a_bundle_names_every_secret_or_leaves_it_out() {
    let from = tempfile::tempdir().unwrap();
    let files = [
        ("faultscope.yaml", LEAKING),
        (
            "src/order.py",
            "import os\nPASSWORD = \"QSECRET-10\"\ntoken = os.environ[\"TOKEN\"]\nuser = get_user(token)\n",
        ),
        ("conf/app.properties", "a=1\ndb.password=QSECRET-11\n"),
        ("init.sql", "CREATE USER app IDENTIFIED BY 'QSECRET-12';\n"),
        (".env", "DB_PASSWORD=QSECRET-13\n"),
        ("tls.key", "QSECRET-14"),
    ];
    for (name, text) in files {
        let path = from.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let application = Application::read_alone(LEAKING, "f").unwrap();
    let paths = [from.path().join("faultscope.yaml")];
    let reduced =
        Some(Reduced { files: &paths, failing: &application.failing, passing: &application.simplest });
    let contents = Contents { root: from.path(), application: &application, reduced };
    let out = from.path().join("out/b.tar.gz");
    let written = write(&out, &manifest(), &contents).unwrap();
    let to = tempfile::tempdir().unwrap();
    unpack(&out, to.path()).unwrap();
    let named: Vec<String> = written.secrets.iter().map(ToString::to_string).collect();
    let readme = fs::read_to_string(to.path().join("README.md")).unwrap();
    assert!(named.iter().all(|place| readme.contains(place)), "{readme}");
    // Every line of the bundle that has a secret is named, and no other line.
    let mut open = vec![to.path().to_owned()];
    let mut holding = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.path().is_dir() {
                open.push(entry.path());
                continue;
            }
            let name = entry.path().strip_prefix(to.path()).unwrap().to_owned();
            let name = name.strip_prefix(APPLICATION).unwrap_or(&name).to_owned();
            let text = fs::read_to_string(entry.path()).unwrap();
            let lines = text.lines().enumerate().filter(|(_, line)| line.contains("QSECRET"));
            holding.extend(lines.map(|(at, _)| SecretPlace { file: name.clone(), line: Some(at + 1) }));
        }
    }
    holding.sort();
    assert_eq!(written.secrets, holding);
    assert_eq!(written.left_out, [".env", "tls.key"].map(PathBuf::from));
    assert_eq!(
        secrets(&application),
        ["order.API_TOKEN", "order.DB_PASSWORD", "order.DSN", "order.SIGNING_KEY"]
    );
}

#[test]
fn settings_get_their_secrets_back() {
    let application =
        Application::read_alone(&LEAKING.replace("QSECRET-9b", "postgres://u:QSECRET-9b@db/x"), "f").unwrap();
    let names = SecretNames::default();
    let mut stored = application.failing.clone();
    let value = stored.config.values_mut().next().unwrap().values_mut().next().unwrap();
    *value = "postgres://[redacted]@db/x".into();
    assert_eq!(
        restore_settings(&stored, &names, [&application.failing, &application.simplest]),
        application.failing
    );
}
