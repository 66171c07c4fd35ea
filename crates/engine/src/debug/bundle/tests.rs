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
    assert_eq!(write(&out, &manifest(), &contents).unwrap(), 7);
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
fn only_what_is_named_of_a_large_folder() {
    let from = folder();
    fs::write(from.path().join("huge.bin"), vec![0; (files::WHOLE_BYTES + 1) as usize]).unwrap();
    let application = Application::read_alone(FILE, "f").unwrap();
    let root = fs::canonicalize(from.path()).unwrap();
    let files: Vec<_> = collect(&root, &application).unwrap().into_keys().collect();
    assert_eq!(files, ["faultscope.yaml", "pay.sh", "src/order.py"].map(PathBuf::from));
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
