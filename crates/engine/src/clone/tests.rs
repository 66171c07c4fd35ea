//! Clones on the shelf, in archives and over the socket, without a platform.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use faultscope_model::application::Expansion;
use faultscope_model::circumstance::Circumstance;
use faultscope_model::plan::Plan;
use faultscope_model::secrets::SecretNames;
use faultscope_model::{Application, SlotId, Treatment};
use faultscope_platform::{DataForm, DataSize, InstanceSnapshot, Snapshot};
use faultscope_store::secrets::{KeyPlace, SecretOptions};
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::sync::mpsc;

use super::manifest::FORMAT;
use super::*;

const APPLICATION: &str = "name: shop\nservices:\n  order: { command: ['${faultscope}', cell], ports: [80], \
                           env: { API_TOKEN: tok-4711, MODE: fast } }\n";

fn plan() -> (Plan, Circumstance) {
    let application = Application::read_alone(APPLICATION, "x.yaml").unwrap();
    let expansion = Expansion { program: "/old/faultscope".into(), slot: SlotId(0) };
    (application.plan(&application.simplest, &expansion).unwrap(), application.simplest.clone())
}

fn manifest(id: CloneId, taken_us: u64) -> Manifest {
    let (plan, circumstance) = plan();
    let instances = vec![InstanceSnapshot {
        id: "order-1".parse().unwrap(),
        ran: true,
        started_us: 1,
        at_us: taken_us,
        pause: std::time::Duration::from_millis(3),
        data: DataSize { files: 1, bytes: 7, left_out: 0 },
        image: None,
    }];
    Manifest {
        format: FORMAT,
        id,
        name: None,
        application: "shop".into(),
        tool: "0".into(),
        kernel: "6".into(),
        campaign: faultscope_store::new_campaign_id(taken_us),
        taken_us,
        trigger: CloneTrigger::Hand,
        treatment: Treatment::Nothing,
        circumstance,
        plan,
        program: "/old/faultscope".into(),
        source: String::new(),
        left_out: Vec::new(),
        instances: Vec::new(),
        snapshot: Snapshot {
            platform: "process".into(),
            form: DataForm::Layers,
            instances,
            shared: Vec::new(),
        },
    }
}

fn shelf(folder: &Path) -> CloneShelf {
    let key = Some(KeyPlace::at(folder.join("key")));
    CloneShelf::open(&folder.join("state"), SecretOptions { key, ..SecretOptions::default() })
}

fn store(shelf: &CloneShelf, taken_us: u64, name: Option<&str>) -> StoredClone {
    let draft = shelf.begin().unwrap();
    fs::write(draft.data().join("file"), "content").unwrap();
    let name = name.map(str::to_owned);
    let manifest = Manifest { name, ..manifest(shelf.unused_id(taken_us), taken_us) };
    shelf.finish(draft, &manifest).unwrap()
}

#[test]
fn clones_are_found_by_id_beginning_name_and_age() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = shelf(folder.path());
    assert!(matches!(shelf.find("last"), Err(CloneError::NotFound { .. })));
    let (old, new) = (store(&shelf, 1, Some("old")), store(&shelf, 2, None));
    let id = |wanted: &str| shelf.find(wanted).unwrap().manifest.id;
    let (first, second) = (old.manifest.id.clone(), new.manifest.id.clone());
    assert_eq!((id("last"), id("old"), id(first.as_str())), (second.clone(), first.clone(), first.clone()));
    let differs_at = first.as_str().bytes().zip(second.as_str().bytes()).position(|(a, b)| a != b).unwrap();
    assert_eq!(id(&first.as_str()[..=differs_at]), first);
    assert!(matches!(shelf.find(""), Err(CloneError::NotFound { .. })));
    assert_eq!(shelf.find("last").unwrap().manifest, new.manifest);
    assert_eq!(fs::read_to_string(new.data.join("file")).unwrap(), "content");
    // Names are kept, others beyond the limit go.
    let newest = store(&shelf, 3, None);
    assert_eq!(shelf.beyond(1).unwrap(), std::slice::from_ref(&second));
    shelf.remove(&second).unwrap();
    let (left, unreadable) = shelf.list().unwrap();
    let left: Vec<&CloneId> = left.iter().map(|clone| &clone.manifest.id).collect();
    assert_eq!((left, unreadable.len()), (vec![&newest.manifest.id, &first], 0));
    for bad in ["", "last", "a/b", "../x", "-x", "0123abcd", "old", &"x".repeat(61)] {
        assert!(shelf.check_name(bad).is_err(), "{bad}");
    }
    shelf.check_name("fixed-2.1_x").unwrap();
}

#[test]
fn a_clone_is_private_sealed_and_never_half_there() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = shelf(folder.path());
    let clone = store(&shelf, 1, None);
    let own = clone.data.parent().unwrap();
    assert_eq!(fs::metadata(own).unwrap().mode() & 0o777, 0o700);
    let stored = fs::read(own.join("clone.json")).unwrap();
    assert!(!stored.windows(8).any(|part| part == b"tok-4711" || part == b"/old/fau"));
    // A draft that is dropped is gone; one of a killed tool is removed by the next.
    drop(shelf.begin().unwrap());
    let clones = own.parent().unwrap();
    fs::create_dir_all(clones.join(".unfinished-1/data/deep")).unwrap();
    assert_eq!(shelf.list().unwrap().0.len(), 1);
    assert_eq!((shelf.sweep(), shelf.sweep()), (1, 0));
    // Of damaged clones the others do not suffer.
    let other = store(&shelf, 2, None);
    fs::write(own.join("clone.json"), &stored[..stored.len() / 2]).unwrap();
    let (readable, unreadable) = shelf.list().unwrap();
    assert_eq!((readable.len(), unreadable.len()), (1, 1));
    assert_eq!(readable[0].manifest.id, other.manifest.id);
    let newer = serde_json::json!({ "format": FORMAT + 1 }).to_string();
    fs::write(own.join("clone.json"), newer).unwrap();
    assert!(matches!(shelf.read(&clone.manifest.id), Err(CloneError::Newer { .. })));
    shelf.remove(&clone.manifest.id).unwrap();
    assert!(matches!(shelf.remove(&clone.manifest.id), Err(CloneError::NotFound { .. })));
}

#[test]
fn an_archive_carries_everything_but_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let (here, there) = (shelf(&folder.path().join("here")), shelf(&folder.path().join("there")));
    fs::create_dir_all(folder.path().join("here")).unwrap();
    fs::create_dir_all(folder.path().join("there")).unwrap();
    let clone = store(&here, 1, Some("one"));
    let data = &clone.data;
    fs::create_dir_all(data.join("instances/order-1/deep")).unwrap();
    let at = data.join("instances/order-1");
    fs::write(at.join("deep/large"), vec![0; 3 << 20]).unwrap();
    fs::set_permissions(at.join("deep/large"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("/etc/passwd", at.join("link")).unwrap();
    let (device, none) = (rustix::fs::FileType::CharacterDevice, rustix::fs::Mode::empty());
    rustix::fs::mknodat(rustix::fs::CWD, at.join("gone"), device, none, 0).unwrap();
    let opaque = rustix::fs::XattrFlags::empty();
    let has_attributes = rustix::fs::lsetxattr(at.join("deep"), c"user.overlay.opaque", b"y", opaque).is_ok();
    fs::set_permissions(at.join("deep"), fs::Permissions::from_mode(0o550)).unwrap();
    let file = folder.path().join("one.tar.gz");
    let exported = export_clone(&clone, &file, Some(&SecretNames::default())).unwrap();
    assert_eq!(exported.left_out, ["API_TOKEN"]);
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    let copy = import_clone(&there, &file).unwrap();
    assert_eq!(
        (copy.manifest.id.clone(), copy.manifest.name.as_deref()),
        (clone.manifest.id.clone(), Some("one"))
    );
    let env = &copy.manifest.plan.instances[0].env;
    assert_eq!((env.get("API_TOKEN"), env.get("MODE").map(String::as_str)), (None, Some("fast")));
    let at = copy.data.join("instances/order-1");
    let about = |path: &str| fs::symlink_metadata(at.join(path)).unwrap();
    assert_eq!((about("deep/large").len(), about("deep/large").mode() & 0o777), (3 << 20, 0o640));
    assert!(about("deep/large").blocks() < 100, "zeros become holes");
    assert_eq!(fs::read_link(at.join("link")).unwrap(), Path::new("/etc/passwd"));
    assert!(about("gone").file_type().is_char_device() && about("gone").rdev() == 0);
    assert_eq!(about("deep").mode() & 0o777, 0o550);
    let mut value = [0_u8; 4];
    let opaque = rustix::fs::lgetxattr(at.join("deep"), c"user.overlay.opaque", &mut value[..]);
    assert_eq!(opaque.is_ok(), has_attributes);
    // Once more into the same place: another id, and no second clone of the same name.
    let again = import_clone(&there, &file).unwrap();
    assert!(again.manifest.id != clone.manifest.id && again.manifest.name.is_none());
    // What was left out comes from the application file.
    let (mut plan, _) = plan();
    StartPoint::from_clone(copy).adapt(&mut plan, "/new/faultscope");
    assert_eq!(plan.instances[0].env["API_TOKEN"], "tok-4711");
    assert_eq!(plan.instances[0].command[0], "/new/faultscope");
}

/// An archive with one entry after the manifest.
fn archive(path: &str, kind: tar::EntryType, link: Option<&str>) -> Vec<u8> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let text = serde_json::to_vec(&manifest("0123abcd".parse().unwrap(), 1)).unwrap();
    let mut header = tar::Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_cksum();
    builder.append_data(&mut header, "clone.json", text.as_slice()).unwrap();
    if let Some(link) = link {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        builder.append_link(&mut header, "data/link", link).unwrap();
    }
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(0);
    // As an attacker writes it: the library would refuse `..`.
    let name = header.as_old_mut();
    name.name[..path.len()].copy_from_slice(path.as_bytes());
    header.set_cksum();
    builder.append(&header, std::io::empty()).unwrap();
    builder.into_inner().unwrap().finish().unwrap()
}

#[test]
fn hostile_archives_are_refused_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = shelf(folder.path());
    let (file, outside) = (folder.path().join("x.tar.gz"), folder.path().join("outside"));
    fs::create_dir(&outside).unwrap();
    let regular = tar::EntryType::Regular;
    let whole = archive("data/file", regular, None);
    for (what, bytes) in [
        ("parent", archive("data/../../escaped", regular, None)),
        ("absolute", archive("/tmp/escaped-clone", regular, None)),
        ("beside", archive("other/file", regular, None)),
        ("manifest again", archive("clone.json", regular, None)),
        ("through a link", archive("data/link/escaped", regular, outside.to_str())),
        ("block device", archive("data/disk", tar::EntryType::Block, None)),
        ("hard link", archive("data/hard", tar::EntryType::Link, None)),
        ("nothing", Vec::new()),
        ("text", b"not an archive".to_vec()),
        ("cut off", whole[..whole.len() / 2].to_vec()),
    ] {
        fs::write(&file, bytes).unwrap();
        assert!(import_clone(&shelf, &file).is_err(), "{what}");
        assert_eq!(shelf.list().unwrap().0.len(), 0, "{what}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{what}");
    }
    fs::write(&file, whole).unwrap();
    import_clone(&shelf, &file).unwrap();
    let left = fs::read_dir(folder.path().join("state/clones")).unwrap().flatten();
    assert_eq!(left.filter(|entry| entry.path().is_dir()).count(), 1, "only the good one is there");
}

#[tokio::test]
async fn a_client_asks_over_a_socket_of_any_length() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("a-folder-with-a-long-name".repeat(4)).join("x".repeat(60));
    fs::create_dir_all(&state).unwrap();
    assert!(matches!(ask_for_clone(&state, None, None).await, Err(CloneError::NotUp)));
    let (_, circumstance) = plan();
    let (desk, cloner) = CloneDesk::open(shelf(folder.path()), (Treatment::Nothing, circumstance), 1);
    let campaign = faultscope_store::new_campaign_id(1);
    let server = ControlServer::open(&state, &campaign).unwrap();
    let socket = state.join("up").join(format!("{campaign}.sock"));
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
    let (reports, _taken) = mpsc::channel(1);
    let serving = tokio::spawn(server.serve(desk, reports));
    // Nobody takes clones any more, as when the application is ending.
    drop(cloner);
    let refused = ask_for_clone(&state, None, None).await.unwrap_err();
    assert!(matches!(&refused, CloneError::Refused { reason } if reason.contains("is ending")), "{refused}");
    let other = ask_for_clone(&state, Some("no-such-campaign"), None).await;
    assert!(matches!(other, Err(CloneError::NotUp)));
    serving.abort();
    let _ = serving.await;
    assert!(!socket.exists(), "the socket goes with the server");
    assert!(matches!(ask_for_clone(&state, None, None).await, Err(CloneError::NotUp)));
}
