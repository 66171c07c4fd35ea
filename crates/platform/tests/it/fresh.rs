//! Trials begin afresh: temporary folders are empty, the user's home is as it was, and its secrets are nowhere.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use faultscope_model::SlotId;
use faultscope_model::plan::{Probe, Reset};
use faultscope_platform::{Place, Platform, PlatformErrorKind, ProcessPlatform, SlotSpec, WantedIsolation};
use tokio_util::sync::CancellationToken;

use crate::support::{App, id, message, plan, platform, run, run_without_privileges, shell};

const SLOT: SlotId = SlotId(0);

/// A home with an interpreter, settings and secrets.
fn furnish_home(home: &Path) {
    for (path, text) in [
        (".bashrc", "mine\n"),
        (".ssh/id_ed25519", "secret"),
        (".aws/credentials", "secret"),
        (".config/gcloud/key", "secret"),
        (".config/app/conf", "settings\n"),
        (".docker/config.json", "secret"),
        (".kube/config", "secret"),
        (".gnupg/key", "secret"),
        (".netrc", "secret"),
        (".npmrc", "secret"),
        (".pypirc", "secret"),
        (".git-credentials", "secret"),
        (".cargo/credentials.toml", "secret"),
        (".cargo/config.toml", "settings\n"),
        (".cache/shared", "old\n"),
        ("bin/tool", "#!/bin/sh\necho tool\n"),
    ] {
        let path = home.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fs::set_permissions(home.join("bin/tool"), fs::Permissions::from_mode(0o755)).unwrap();
}

async fn inside(platform: &ProcessPlatform, script: &str) -> String {
    let mut inside = run(script);
    inside.place = Place::Instance(id("worker-1"));
    let exit = platform.exec(SLOT, &inside, &CancellationToken::new()).await.unwrap();
    exit.stdout + &exit.stderr
}

async fn check(home: PathBuf, application: PathBuf, mut spec: SlotSpec) {
    fs::create_dir_all(&application).unwrap();
    fs::write(application.join("main"), "main\n").unwrap();
    furnish_home(&home);
    let mark = format!("fs-test-{}", spec.label);
    let outside = ["/tmp", "/var/tmp", "/dev/shm"].map(|folder| Path::new(folder).join(&mark));
    for path in &outside {
        fs::write(path, "old\n").unwrap();
    }
    (spec.application, spec.state) = (application.clone(), application.join(".faultscope"));
    spec.home = Some(home.clone());
    spec.shared = vec![home.join(".cache/shared"), outside[2].clone()];
    let platform = platform(WantedIsolation::Netns);
    platform.open_slot(&spec).await.unwrap();
    let wanted = plan(vec![shell("worker-1", "exec sleep 1000", Probe::Started)], Reset::Restart);
    let cancel = CancellationToken::new();
    let (at, there) = (home.display(), application.display());
    let look = format!(
        "cat {at}/.bashrc {at}/.config/app/conf {at}/.cargo/config.toml; {at}/bin/tool; cat {there}/main main
         grep -rlx secret {at} | wc -l; ls -A {at}/.ssh 2>/dev/null | wc -l
         ls /tmp/{mark} /var/tmp/{mark} 2>/dev/null; ls -A /var/tmp | wc -l
         find /tmp {at} {there} -name '*left*'"
    );
    let fresh = "mine\nsettings\nsettings\ntool\nmain\nmain\n0\n0\n0\n";
    for trial in ["first", "second"] {
        platform.reserve(SLOT, &wanted).await.unwrap();
        platform.apply(SLOT, &wanted, &cancel).await.unwrap();
        assert_eq!(inside(&platform, &look).await, fresh, "the {trial} trial");
        let write = format!(
            "echo changed > {at}/.bashrc; mkdir {at}/.ssh; touch {at}/left {at}/.ssh/left main.left
             touch /tmp/left /var/tmp/left /dev/shm/left; rm {at}/bin/tool
             echo {trial} >> {at}/.cache/shared; echo {trial} >> /dev/shm/{mark}; ls /dev/shm"
        );
        assert_eq!(inside(&platform, &write).await, format!("{mark}\nleft\n"), "the {trial} trial");
        // One home for all of a trial, as on one machine.
        let test =
            platform.exec(SLOT, &run(&format!("ls {at}/left; cat {at}/.bashrc")), &cancel).await.unwrap();
        assert_eq!(test.stdout, format!("{at}/left\nchanged\n"), "{}", test.stderr);
    }
    platform.close_slot(SLOT).await.unwrap();
    assert_eq!(fs::read_to_string(home.join(".bashrc")).unwrap(), "mine\n");
    assert!(
        !home.join("left").exists() && !home.join(".ssh/left").exists() && home.join("bin/tool").exists()
    );
    for folder in ["/tmp", "/var/tmp", "/dev/shm"] {
        assert!(!Path::new(folder).join("left").exists(), "{folder}");
    }
    for (path, text) in outside.iter().zip(["old\n", "old\n", "old\nfirst\nsecond\n"]) {
        assert_eq!(fs::read_to_string(path).unwrap(), text, "{}", path.display());
        fs::remove_file(path).unwrap();
    }
    let shared = fs::read_to_string(home.join(".cache/shared")).unwrap();
    assert_eq!(shared, "old\nfirst\nsecond\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_application_in_the_home() {
    let app = App::new();
    let home = app.path().canonicalize().unwrap().join("home");
    check(home.clone(), home.join("projects/shop"), app.slot(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_application_elsewhere() {
    let app = App::new();
    let folder = app.path().canonicalize().unwrap();
    check(folder.join("home"), folder.join("shop"), app.slot(0)).await;
}

/// They are in memory: one that writes without end gets an error, and the machine does not end.
#[tokio::test(flavor = "multi_thread")]
async fn temporary_folders_are_bounded() {
    let app = App::new();
    let platform = platform(WantedIsolation::Netns);
    platform.open_slot(&app.slot(0)).await.unwrap();
    let wanted = plan(vec![shell("worker-1", "exec sleep 1000", Probe::Started)], Reset::Restart);
    platform.apply(SLOT, &wanted, &CancellationToken::new()).await.unwrap();
    let look =
        "df -k --output=size /tmp /var/tmp /dev/shm | tail -n 3; grep MemTotal /proc/meminfo | tr -dc 0-9";
    let seen = inside(&platform, look).await;
    let kib: Vec<u64> = seen.split_whitespace().map(|number| number.parse().unwrap()).collect();
    let [folders @ .., memory] = &kib[..] else { panic!("{seen}") };
    assert!(folders.len() == 3 && folders.iter().all(|size| size * 9 < *memory), "{seen}");
    platform.close_slot(SLOT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_shared_must_exist() {
    let app = App::new();
    let platform = platform(WantedIsolation::Netns);
    let mut spec = app.slot(0);
    spec.shared = vec!["/no/such/folder".into()];
    platform.open_slot(&spec).await.unwrap();
    let wanted = plan(vec![shell("worker-1", "exec sleep 1000", Probe::Started)], Reset::Restart);
    let error = platform.apply(SLOT, &wanted, &CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.kind, PlatformErrorKind::BadPlan, "{error:?}");
    let reason = "`shared` names `/no/such/folder`, which this machine does not have";
    assert!(message(&error).contains(reason), "{}", message(&error));
    platform.close_slot(SLOT).await.unwrap();
}

/// The same as nobody.
#[test]
fn all_of_this_without_privileges() {
    run_without_privileges("fresh::with_the_application_in_the_home");
    run_without_privileges("fresh::with_the_application_elsewhere");
}
