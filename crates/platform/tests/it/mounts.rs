//! What instances see at paths of their own, and that nobody else sees it.

use std::fs;
use std::path::Path;

use faultscope_model::SlotId;
use faultscope_model::mount::{Mount, MountSource};
use faultscope_model::plan::{InstancePlan, Probe, Reset};
use faultscope_model::units::ByteSize;
use faultscope_platform::{Action, Place, Platform, PlatformErrorKind, ProcessPlatform, WantedIsolation};
use tokio_util::sync::CancellationToken;

use crate::support::{App, id, message, plan, platform, run, run_without_privileges, shell};

const SLOT: SlotId = SlotId(0);

fn mount(to: &str, source: MountSource, readonly: bool) -> Mount {
    Mount { to: to.into(), source, readonly, mode: None }
}

fn path(path: &str) -> MountSource {
    MountSource::Path(path.into())
}

fn with_mounts(name: &str, mounts: Vec<Mount>) -> InstancePlan {
    InstancePlan { mounts, ..shell(name, "exec sleep 1000", Probe::Started) }
}

async fn inside(platform: &ProcessPlatform, instance: &str, script: &str) -> String {
    let mut inside = run(script);
    inside.place = Place::Instance(id(instance));
    let exit = platform.exec(SLOT, &inside, &CancellationToken::new()).await.unwrap();
    exit.stdout + &exit.stderr
}

#[tokio::test(flavor = "multi_thread")]
async fn files_texts_volumes_and_memory_are_seen_and_no_file_of_the_user_changes() {
    let app = App::new();
    fs::create_dir(app.path().join("data")).unwrap();
    fs::write(app.path().join("web.conf"), "listen 80\n").unwrap();
    fs::write(app.path().join("data/first"), "1\n").unwrap();
    let platform = platform(WantedIsolation::Netns);
    platform.open_slot(&app.slot(0)).await.unwrap();
    let web = with_mounts(
        "web-1",
        vec![
            mount("/etc/fs-test/web.conf", path("web.conf"), true),
            mount("/etc/fs-test.yaml", MountSource::Content("a: 1\n".into()), false),
            mount("/usr/share/fs-test", path("data"), false),
            mount("/var/lib/fs-test", MountSource::Volume("shared".into()), false),
            mount("/mnt", MountSource::Memory { size: ByteSize(1 << 20) }, false),
            mount("/mnt/deep/web.conf", path("web.conf"), false),
            mount("/fs-test-data/deep", MountSource::Volume("top".into()), false),
            Mount {
                mode: Some(0o700),
                ..mount("/fs-test.sh", MountSource::Content("echo run\n".into()), true)
            },
        ],
    );
    let worker =
        with_mounts("worker-1", vec![mount("/var/lib/other", MountSource::Volume("shared".into()), true)]);
    let wanted = plan(vec![web, worker], Reset::Restart);
    let cancel = CancellationToken::new();
    platform.apply(SLOT, &wanted, &cancel).await.unwrap();
    let seen = inside(
        &platform,
        "web-1",
        "cat /etc/fs-test/web.conf /etc/fs-test.yaml /usr/share/fs-test/first /mnt/deep/web.conf; grep -c web-1 /etc/hosts
         (echo x >> /etc/fs-test/web.conf) 2>/dev/null || echo read-only
         echo 2 >> /usr/share/fs-test/first; echo b >> /etc/fs-test.yaml; echo kept > /var/lib/fs-test/note
         echo top > /fs-test-data/deep/top; cat /fs-test-data/deep/top; sh /fs-test.sh; stat -c %a /fs-test.sh; test -d /usr/bin && echo usr
         echo y > /mnt/y; head -c 2M /dev/zero 2>/dev/null > /mnt/large || echo full",
    );
    assert_eq!(seen.await, "listen 80\na: 1\n1\nlisten 80\n1\nread-only\ntop\nrun\n700\nusr\nfull\n");
    let other = "cat /var/lib/other/note; touch /var/lib/other/x 2>/dev/null || echo read-only; test -e /etc/fs-test.yaml || echo private";
    assert_eq!(inside(&platform, "worker-1", other).await, "kept\nread-only\nprivate\n");
    platform.act(SLOT, &id("web-1"), Action::Restart).await.unwrap();
    let after = "cat /var/lib/fs-test/note; ls /mnt; cat /usr/share/fs-test/first";
    assert_eq!(
        inside(&platform, "web-1", after).await,
        "kept\ndeep\n1\n2\n",
        "what a service writes to a mount survives a restart, but not in memory"
    );
    // The next trial.
    platform.reserve(SLOT, &wanted).await.unwrap();
    platform.apply(SLOT, &wanted, &cancel).await.unwrap();
    assert_eq!(inside(&platform, "web-1", "ls -A /var/lib/fs-test; cat /etc/fs-test.yaml").await, "a: 1\n");
    platform.close_slot(SLOT).await.unwrap();
    assert_eq!(fs::read_to_string(app.path().join("web.conf")).unwrap(), "listen 80\n");
    assert_eq!(fs::read_to_string(app.path().join("data/first")).unwrap(), "1\n");
    for gone in [
        "/etc/fs-test",
        "/etc/fs-test.yaml",
        "/usr/share/fs-test",
        "/var/lib/fs-test",
        "/mnt/y",
        "/fs-test-data",
        "/fs-test.sh",
    ] {
        assert!(!Path::new(gone).exists(), "{gone} is on this machine");
    }
}

#[test]
fn mounts_without_privileges() {
    run_without_privileges("mounts::files_texts_volumes_and_memory_are_seen_and_no_file_of_the_user_changes");
}

/// What a container sees below its working directory, a process sees below its `directory`.
#[tokio::test(flavor = "multi_thread")]
async fn working_directories_of_containers() {
    let app = App::new();
    fs::create_dir_all(app.path().join("src/deep")).unwrap();
    fs::write(app.path().join("src/name"), "src\n").unwrap();
    let platform = platform(WantedIsolation::Netns);
    platform.open_slot(&app.slot(0)).await.unwrap();
    let script = "(pwd; cat name; ls) > seen; echo written; exec sleep 1000";
    let written = Probe::Log { pattern: "written".to_owned() };
    let service = |name: &str, directory: &str, mounts| InstancePlan {
        entrypoint: Some(["sh", "-c"].map(str::to_owned).into()),
        command: vec![script.to_owned()],
        working_dir: Some("/fs-test-app".into()),
        directory: directory.into(),
        mounts,
        ..shell(name, "", written.clone())
    };
    let shown = service("shown-1", "", vec![mount("/fs-test-app", path("src"), false)]);
    let stands =
        service("stands-1", "src", vec![mount("/fs-test-app/data", MountSource::Volume("d".into()), false)]);
    let wanted = plan(vec![shown, stands], Reset::Restart);
    platform.apply(SLOT, &wanted, &CancellationToken::new()).await.unwrap();
    let seen = inside(&platform, "shown-1", "cat /fs-test-app/seen").await;
    assert_eq!(seen, "/fs-test-app\nsrc\ndeep\nname\nseen\n");
    let folder = app.path().canonicalize().unwrap().join("src");
    let expected = format!("{}\nsrc\ndata\ndeep\nname\nseen\n", folder.display());
    assert_eq!(inside(&platform, "stands-1", "cat src/seen").await, expected);
    platform.close_slot(SLOT).await.unwrap();
    assert!(!app.path().join("src/seen").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_mounted_is_named() {
    // Below `/tmp`, which is every instance's own, any path can be mounted.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let beside = folder.path().parent().unwrap().join("fs-test-no-such-folder/x");
    let app = App::new();
    let mut spec = app.slot(0);
    (spec.application, spec.state) = (folder.path().to_owned(), folder.path().join(".faultscope"));
    let cancel = CancellationToken::new();
    for (isolation, mounts, reason) in [
        (
            WantedIsolation::Netns,
            mount("/etc/x", path("no/such"), true),
            "`no/such` does not exist below the folder",
        ),
        (
            WantedIsolation::Netns,
            mount("/etc", path("file"), true),
            "one of the two is a folder and the other a file",
        ),
        (
            WantedIsolation::Netns,
            mount(&beside.to_string_lossy(), path("file"), true),
            "there is no such path on this machine",
        ),
        (WantedIsolation::Ports, mount("/etc/x", path("file"), true), "use `--isolation netns`"),
    ] {
        let platform = platform(isolation);
        platform.open_slot(&spec).await.unwrap();
        let wanted = plan(vec![with_mounts("web-1", vec![mounts])], Reset::Restart);
        let error = platform.apply(SLOT, &wanted, &cancel).await.unwrap_err();
        assert_eq!(error.kind, PlatformErrorKind::BadPlan, "{error:?}");
        assert!(message(&error).contains(reason), "{}", message(&error));
        platform.close_slot(SLOT).await.unwrap();
    }
}
