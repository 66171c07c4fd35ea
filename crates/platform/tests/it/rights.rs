//! What services may do: as much as in a container, and there is no way out of the slot.

use std::fs;
use std::path::Path;

use faultscope_model::SlotId;
use faultscope_model::plan::{InstancePlan, Probe, Reset};
use faultscope_platform::{Place, Platform, ProcessPlatform, Rights, WantedIsolation};
use tokio_util::sync::CancellationToken;

use crate::support::{App, id, plan, platform, run, run_without_privileges, shell};

const SLOT: SlotId = SlotId(0);
/// What Docker gives a container by default, as `/proc/<pid>/status` shows it.
const DOCKERS: u64 = 0xa804_25fb;
const MKNOD: u64 = 1 << 27;
const SYS_PTRACE: u64 = 1 << 19;
const SYS_ADMIN: u64 = 1 << 21;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

async fn started(app: &App, isolation: WantedIsolation, privileged: bool) -> ProcessPlatform {
    let platform = platform(isolation);
    platform.open_slot(&app.slot(0)).await.unwrap();
    let worker = InstancePlan { privileged, ..shell("worker-1", "exec sleep 1000", Probe::Started) };
    platform.apply(SLOT, &plan(vec![worker], Reset::Restart), &CancellationToken::new()).await.unwrap();
    platform
}

async fn inside(platform: &ProcessPlatform, script: &str, rights: Rights) -> String {
    let mut inside = run(script);
    (inside.place, inside.rights) = (Place::Instance(id("worker-1")), rights);
    let exit = platform.exec(SLOT, &inside, &CancellationToken::new()).await.unwrap();
    exit.stdout + &exit.stderr
}

/// The values of a field in the statuses of some processes.
fn values(statuses: &str, field: &str, radix: u32) -> Vec<u64> {
    let value = |line: &str| line.strip_prefix(field)?.strip_prefix(":\t").map(ToOwned::to_owned);
    statuses.lines().filter_map(value).map(|text| u64::from_str_radix(&text, radix).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn services_have_at_most_the_capabilities_of_a_container() {
    let app = App::new();
    let platform = started(&app, WantedIsolation::Netns, false).await;
    // The init, the service, and a command beside it.
    let read = "cat /proc/1/status /proc/2/status /proc/self/status";
    let of_service = inside(&platform, read, Rights::Service).await;
    let of_test =
        platform.exec(SLOT, &run("cat /proc/self/status"), &CancellationToken::new()).await.unwrap();
    let statuses = of_service + &of_test.stdout;
    for field in ["CapInh", "CapAmb"] {
        assert_eq!(values(&statuses, field, 16), [0; 4], "{field}");
    }
    for field in ["CapPrm", "CapEff", "CapBnd"] {
        let found = values(&statuses, field, 16);
        assert!(found.len() == 4 && found.iter().all(|set| set & !DOCKERS == 0), "{field} {found:x?}");
    }
    let expected = if is_root() { DOCKERS & !MKNOD } else { 0 };
    assert_eq!(values(&statuses, "CapEff", 16), [expected; 4]);
    // An ordinary user gains nothing by setuid programs in a slot; root may need them, as in a container.
    assert_eq!(values(&statuses, "NoNewPrivs", 10), [u64::from(!is_root()); 4]);
    platform.close_slot(SLOT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn services_have_them_also_where_ports_keep_them_apart() {
    let app = App::new();
    let platform = started(&app, WantedIsolation::Ports, false).await;
    let statuses = inside(&platform, "cat /proc/$PPID/status /proc/self/status", Rights::Service).await;
    for field in ["CapPrm", "CapEff", "CapInh", "CapAmb"] {
        let found = values(&statuses, field, 16);
        assert!(found.len() == 2 && found.iter().all(|set| set & !DOCKERS == 0), "{field} {found:x?}");
    }
    platform.close_slot(SLOT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_leads_back_to_the_machine() {
    let app = App::new();
    fs::create_dir(app.path().join(".faultscope")).unwrap();
    fs::write(app.path().join(".faultscope/secret"), "secret").unwrap();
    let platform = started(&app, WantedIsolation::Netns, false).await;
    let state = app.path().join(".faultscope").display().to_string();
    let script = format!(
        "export LC_ALL=C
         try() {{ (\"$@\") > /dev/null 2>&1 && echo \"could $*\"; }}
         try mount -t tmpfs none /mnt
         try umount /proc/sys
         try mount -o remount,rw /sys
         try unshare --mount true
         try nsenter --target 1 --mount true
         try sh -c 'echo 3 > /proc/sys/vm/drop_caches'
         try sh -c 'echo h > /proc/sysrq-trigger'
         try sh -c 'head -c 1 /proc/kcore | grep -q .'
         try mknod /tmp/disk b 8 0
         try touch /dev/left
         for group in $(grep cgroup /proc/mounts | cut -d' ' -f2); do
           try mkdir $group/fs-test-left
           try sh -c \"echo 0 > $group/cgroup.procs\"
         done
         try ls {state}/slots
         try cat {state}/secret
         ls -x -w 200 /dev; ls -A {state} | wc -l"
    );
    let devices = "fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero";
    let found = inside(&platform, &script, Rights::Service).await;
    let words: Vec<&str> = found.split_whitespace().collect();
    assert_eq!(words.join(" "), format!("{devices} 0"));
    // The devices work, and so does a terminal.
    let works = "echo x > /dev/null; head -c 4 /dev/urandom | wc -c; echo 1 | cat /dev/stdin; exec 3<>/dev/ptmx && echo terminal";
    assert_eq!(inside(&platform, works, Rights::Service).await, "4\n1\nterminal\n");
    // Limits are still there to read: runtimes choose their sizes by them.
    let limits =
        "cat $(awk '$3 ~ /^cgroup/ { print $2; exit }' /proc/mounts)/cgroup.procs > /dev/null && echo read";
    if Path::new("/sys/fs/cgroup").is_dir() {
        assert_eq!(inside(&platform, limits, Rights::Service).await, "read\n");
    }
    platform.close_slot(SLOT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn privileged_services_and_agents_may_do_more() {
    let app = App::new();
    let platform = started(&app, WantedIsolation::Netns, true).await;
    let look = "cat /proc/2/status; ls -A /dev | sort > /tmp/devices; wc -l < /tmp/devices";
    let found = inside(&platform, look, Rights::Service).await;
    let devices = fs::read_dir("/dev").unwrap().count();
    assert!(found.ends_with(&format!("\n{devices}\n")), "{devices} devices: {found}");
    assert_eq!(values(&found, "CapEff", 16)[0] & SYS_ADMIN, if is_root() { SYS_ADMIN } else { 0 });
    platform.close_slot(SLOT).await.unwrap();
    let platform = started(&app, WantedIsolation::Netns, false).await;
    for (rights, has) in [(Rights::Service, 0), (Rights::Agent, SYS_PTRACE)] {
        let status = inside(&platform, "cat /proc/self/status", rights).await;
        assert_eq!(values(&status, "CapEff", 16)[0] & SYS_PTRACE, has, "{rights:?}");
    }
    platform.close_slot(SLOT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_base_starts() {
    let app = App::new();
    let platform = platform(WantedIsolation::Netns);
    platform.open_slot(&app.slot(0)).await.unwrap();
    let ready = Probe::Log { pattern: "Ready to accept connections".into() };
    let store = shell("store-1", "exec redis-server --port 6379", ready);
    platform.apply(SLOT, &plan(vec![store], Reset::Restart), &CancellationToken::new()).await.unwrap();
    platform.close_slot(SLOT).await.unwrap();
}

/// The same as nobody.
#[test]
fn all_of_this_without_privileges() {
    for test in [
        "rights::services_have_at_most_the_capabilities_of_a_container",
        "rights::nothing_leads_back_to_the_machine",
        "rights::privileged_services_and_agents_may_do_more",
        "rights::a_data_base_starts",
    ] {
        run_without_privileges(test);
    }
}
