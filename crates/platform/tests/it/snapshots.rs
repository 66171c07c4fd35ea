//! What a snapshot of processes has, whatever they did to their data, and how long they stand still for it.
#![expect(clippy::print_stderr, reason = "timings are read by people")]

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use faultscope_model::SlotId;
use faultscope_model::mount::{Mount, MountSource};
use faultscope_model::plan::{Plan, Probe, Reset};
use faultscope_platform::{
    Action, Execution, Place, Platform, ProcessPlatform, SharedData, Snapshot, WantedIsolation,
};
use tokio_util::sync::CancellationToken;

use crate::support::{App, id, message, plan, platform, run, run_without_privileges, shell};

const SLOT: SlotId = SlotId(0);

fn snapshot_folder(app: &App) -> PathBuf {
    let folder = app.path().join(".faultscope/snapshots").join(app.number().to_string());
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn inside(instance: &str, script: &str) -> Execution {
    Execution { place: Place::Instance(id(instance)), ..run(script) }
}

async fn output(platform: &ProcessPlatform, instance: &str, script: &str) -> String {
    let exit = platform.exec(SLOT, &inside(instance, script), &CancellationToken::new()).await.unwrap();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    exit.stdout
}

async fn restore(platform: &ProcessPlatform, folder: &std::path::Path, snapshot: &Snapshot, wanted: &Plan) {
    platform.restore(SLOT, folder, snapshot).await.unwrap();
    platform.reserve(SLOT, wanted).await.unwrap();
    platform.apply(SLOT, wanted, &CancellationToken::new()).await.unwrap();
}

/// Deleted, replaced, linked and special files, a volume of two services, and a write into the home.
#[tokio::test(flavor = "multi_thread")]
async fn a_layer_comes_back_as_it_was() {
    let app = App::new();
    let home = app.path().canonicalize().unwrap().join("home");
    fs::create_dir_all(home.join(".ssh")).unwrap();
    fs::write(home.join(".ssh/id"), "secret").unwrap();
    let shop = app.path().join("shop");
    for (path, text) in [("old", "old"), ("folder/a", "a"), ("folder/b", "b"), ("edited", "before")] {
        let path = shop.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let platform = platform(WantedIsolation::Netns);
    let mut spec = app.slot(0);
    (spec.application, spec.state) = (shop.clone(), shop.join(".faultscope"));
    spec.home = Some(home.clone());
    platform.open_slot(&spec).await.unwrap();
    let mount = Mount {
        to: "/var/shared".into(),
        source: MountSource::Volume("common".into()),
        readonly: false,
        mode: None,
    };
    let service = |name: &str| {
        let mut instance = shell(name, "exec sleep 1000", Probe::Started);
        instance.mounts = vec![mount.clone()];
        instance
    };
    let wanted = plan(vec![service("one-1"), service("two-1")], Reset::Restart);
    platform.reserve(SLOT, &wanted).await.unwrap();
    platform.apply(SLOT, &wanted, &CancellationToken::new()).await.unwrap();
    let at = home.display();
    let changes = format!(
        "rm old; rm -r folder; mkdir folder; echo c > folder/c; echo after > edited; ln edited linked; \
         ln -s edited symbolic; mkfifo pipe; truncate -s 100M hole; echo tail >> hole; chmod 750 folder; \
         echo shared > /var/shared/from-one; mkdir -p {at}/.cache; echo cached > {at}/.cache/file"
    );
    output(&platform, "one-1", &changes).await;
    let show = format!(
        "ls; ls folder; stat -c %a folder; cat edited linked symbolic; stat -c '%h %s' linked hole; tail -c 5 hole; \
         test -p pipe && echo pipe; du -m hole | cut -f1; cat /var/shared/from-one {at}/.cache/file; ls {at}/.ssh 2>&1 | wc -l"
    );
    let before = output(&platform, "one-1", &show).await;
    let folder = snapshot_folder(&app);
    let snapshot = platform.snapshot(SLOT, &folder).await.unwrap();
    let shared: Vec<&SharedData> = snapshot.shared.iter().map(|shared| &shared.of).collect();
    assert_eq!(shared, [&SharedData::Volume("common".into()), &SharedData::Home]);
    assert!(snapshot.instances[0].data.bytes < 1 << 20, "{:?}", snapshot.instances[0].data);
    output(&platform, "one-1", "rm -r folder edited; echo new > old; rm /var/shared/from-one").await;
    restore(&platform, &folder, &snapshot, &wanted).await;
    assert_eq!(output(&platform, "one-1", &show).await, before);
    assert_eq!(
        output(&platform, "two-1", "cat old folder/b edited /var/shared/from-one").await,
        "oldbbeforeshared\n"
    );
    platform.close_slot(SLOT).await.unwrap();
    assert_eq!(fs::read_to_string(shop.join("edited")).unwrap(), "before");
    assert!(!home.join(".cache").exists() && home.join(".ssh/id").exists());
}

#[test]
fn a_layer_comes_back_without_privileges() {
    run_without_privileges("snapshots::a_layer_comes_back_as_it_was");
}

/// A paused instance stays paused, one that has ended has its data, and everybody else goes on.
#[tokio::test(flavor = "multi_thread")]
async fn instances_stay_what_they_were() {
    let app = App::new();
    let platform = platform(WantedIsolation::Netns);
    platform.open_slot(&app.slot(0)).await.unwrap();
    let wanted = plan(
        ["ended-1", "going-1", "paused-1"]
            .map(|name| shell(name, "echo $HOSTNAME > name; exec sleep 1000", Probe::Started))
            .to_vec(),
        Reset::Restart,
    );
    platform.apply(SLOT, &wanted, &CancellationToken::new()).await.unwrap();
    output(&platform, "ended-1", "until grep -q ended name; do sleep 0.01; done").await;
    platform.act(SLOT, &id("ended-1"), Action::Kill).await.unwrap();
    platform.act(SLOT, &id("paused-1"), Action::Pause).await.unwrap();
    let folder = snapshot_folder(&app);
    let snapshot = platform.snapshot(SLOT, &folder).await.unwrap();
    let ran: Vec<bool> = snapshot.instances.iter().map(|instance| instance.ran).collect();
    assert_eq!(ran, [false, true, true]);
    assert_eq!(snapshot.instances[2].pause, Duration::ZERO, "it stood still before and after");
    output(&platform, "going-1", "cat name").await;
    platform.act(SLOT, &id("paused-1"), Action::Resume).await.unwrap();
    output(&platform, "paused-1", "cat name").await;
    restore(&platform, &folder, &snapshot, &wanted).await;
    assert_eq!(output(&platform, "ended-1", "cat name").await, "ended-1\n");
    let gone = fs::remove_dir_all(folder.join("instances/going-1"));
    gone.unwrap();
    let error = platform.restore(SLOT, &folder, &snapshot).await.unwrap_err();
    assert!(message(&error).contains("its files are gone"), "{}", message(&error));
    platform.close_slot(SLOT).await.unwrap();
}

/// A snapshot that nobody waits for any more leaves nothing frozen.
#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_snapshot_lets_everything_go_on() {
    let app = App::new();
    let platform = platform(WantedIsolation::Netns);
    platform.open_slot(&app.slot(0)).await.unwrap();
    let wanted = plan(vec![shell("one-1", "exec sleep 1000", Probe::Started)], Reset::Restart);
    platform.apply(SLOT, &wanted, &CancellationToken::new()).await.unwrap();
    output(&platform, "one-1", "head -c 50000000 /dev/zero > large").await;
    let folder = snapshot_folder(&app);
    let taking = platform.snapshot(SLOT, &folder);
    let _ = tokio::time::timeout(Duration::from_millis(1), taking).await;
    assert_eq!(output(&platform, "one-1", "echo alive").await, "alive\n");
    platform.close_slot(SLOT).await.unwrap();
}

/// The goal is 10 ms for each service and 5 ms for each MiB of changed data. Test machines are busy, so that the bound
/// is generous and the figures are printed.
#[tokio::test(flavor = "multi_thread")]
async fn services_stand_still_for_milliseconds() {
    let app = App::new();
    let platform = platform(WantedIsolation::Netns);
    platform.open_slot(&app.slot(0)).await.unwrap();
    let names: Vec<String> = (1..=8).map(|n| format!("service-{n}")).collect();
    let wanted = plan(
        names.iter().map(|name| shell(name, "exec sleep 1000", Probe::Started)).collect(),
        Reset::Restart,
    );
    platform.apply(SLOT, &wanted, &CancellationToken::new()).await.unwrap();
    let mut mib = 0_u32;
    for grown in [0_u32, 1, 7] {
        mib += grown;
        for name in &names {
            let script = format!("head -c {} /dev/urandom > data.{mib}", u64::from(grown) << 20);
            output(&platform, name, &script).await;
        }
        let snapshot = platform.snapshot(SLOT, &snapshot_folder(&app)).await.unwrap();
        let longest = snapshot.instances.iter().map(|instance| instance.pause).max().unwrap();
        eprintln!("{mib} MiB in each of 8: longest pause {longest:?}, spread {:?}", snapshot.spread());
        let goal = Duration::from_millis(10 * 8 + 5 * 8 * u64::from(mib));
        assert!(longest < goal * 10, "{longest:?}");
    }
    platform.close_slot(SLOT).await.unwrap();
}
