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
    let file = from.path().join("cases/one.yaml");
    let reduced = Some(Reduced { file: &file, failing: &failing, passing: &passing });
    let contents = Contents { root: from.path(), application: &application, reduced };
    let out = from.path().join("out/b.tar.gz");
    let written = write(&out, &manifest(), &contents).unwrap();
    assert_eq!(written, Written { files: 7, left_out: Vec::new() });
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
    let Collected { files, left_out } = collect(&root, &application).unwrap();
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
    let file = from.path().join("faultscope.yaml");
    let reduced = Some(Reduced { file: &file, failing: &failing, passing: &passing });
    let contents = Contents { root: from.path(), application: &application, reduced };
    let out = from.path().join("b.tgz");
    for _ in 0..2 {
        let written = write(&out, &manifest(), &contents).unwrap();
        assert_eq!(written.left_out, [".env", "src/tls.key"].map(PathBuf::from));
        assert_eq!(written.files, 8, "an earlier bundle is not in it");
    }
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
