//! Debuggers, profilers and servers of others, in slots with all restrictions on. `./test.sh profilers`
//! installs what they need.
#![expect(clippy::print_stderr, reason = "what a machine does not allow is read by people")]

use std::path::{Path, PathBuf};

use faultscope_model::SlotId;
use faultscope_model::plan::{Probe, Reset};
use faultscope_platform::{Exit, Place, Platform, ProcessPlatform, Rights, WantedIsolation};
use tokio_util::sync::CancellationToken;

use crate::support::{App, id, plan, platform, run, run_without_privileges, shell};

const SLOT: SlotId = SlotId(0);
/// A program that is busy in a function of this name.
const BUSY: &str = "def spin_for_the_profiler():\n  while True: sum(range(1000))\nprint('up', flush=True)\nspin_for_the_profiler()\n";

fn py_spy() -> PathBuf {
    std::env::var_os("FAULTSCOPE_PY_SPY").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/profilers/bin/py-spy"),
        PathBuf::from,
    )
}

async fn busy(app: &App) -> ProcessPlatform {
    std::fs::write(app.path().join("busy.py"), BUSY).unwrap();
    // The user who runs this may not see the build.
    std::fs::copy(py_spy(), app.path().join("py-spy")).expect("`./test.sh profilers` installs it");
    let platform = platform(WantedIsolation::Netns);
    platform.open_slot(&app.slot(0)).await.unwrap();
    let up = Probe::Log { pattern: "^up$".into() };
    let worker = shell("worker-1", "exec /usr/bin/python3 busy.py", up);
    platform.apply(SLOT, &plan(vec![worker], Reset::Restart), &CancellationToken::new()).await.unwrap();
    platform
}

async fn as_agent(platform: &ProcessPlatform, script: &str) -> Exit {
    let mut inside = run(script);
    (inside.place, inside.rights) = (Place::Instance(id("worker-1")), Rights::Agent);
    platform.exec(SLOT, &inside, &CancellationToken::new()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs py-spy, gdb and perf; see test.sh profilers"]
async fn profilers_and_debuggers_attach() {
    let app = App::new();
    let platform = busy(&app).await;
    // The service is the second process of its own world.
    let dump = as_agent(&platform, "./py-spy dump --pid 2").await;
    assert!(dump.stdout.contains("spin_for_the_profiler"), "{}{}", dump.stdout, dump.stderr);
    let script = "gdb -p 2 -batch -nx -ex 'info proc' -ex detach";
    let attached = as_agent(&platform, script).await;
    assert!(attached.stdout.contains("process 2"), "{}{}", attached.stdout, attached.stderr);
    let record = "perf record -e cpu-clock:u -o /tmp/perf.data -p 2 -- sleep 0.3 && perf script -i /tmp/perf.data | grep -c python3";
    let recorded = as_agent(&platform, record).await;
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let is_allowed =
        rustix::process::geteuid().is_root() || paranoid.trim().parse().is_ok_and(|level: i32| level <= 2);
    if is_allowed {
        let samples = recorded.stdout.trim().parse::<u32>();
        assert!(samples.is_ok_and(|n| n > 0), "{}{}", recorded.stdout, recorded.stderr);
    } else {
        eprintln!(
            "NOT SHOWN: perf; perf_event_paranoid is {}, so that users may not use it",
            paranoid.trim()
        );
        assert_ne!(recorded.code, Some(0), "it works although the kernel forbids it");
    }
    platform.close_slot(SLOT).await.unwrap();
}

#[test]
#[ignore = "needs py-spy, gdb and perf; see test.sh profilers"]
fn profilers_and_debuggers_attach_without_privileges() {
    run_without_privileges("profilers::profilers_and_debuggers_attach");
}

/// As root, which is where restrictions could be in their way: they change their user, and write to `/var`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nginx and PostgreSQL; see test.sh profilers"]
async fn servers_that_change_their_user_start() {
    let app = App::new();
    let platform = platform(WantedIsolation::Netns);
    platform.open_slot(&app.slot(0)).await.unwrap();
    let web = "printf 'user www-data; daemon off; pid web.pid; error_log stderr notice; events {} http { access_log off; \
               client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s; \
               server { listen 80; } }' > nginx.conf; exec nginx -p $PWD -c $PWD/nginx.conf";
    let up = Probe::Log { pattern: "start worker process".into() };
    let data_base = "export PATH=$PATH:$(ls -d /usr/lib/postgresql/*/bin | tail -1); mkdir data; chown postgres data; chmod 755 .; \
                     su postgres -c \"PATH=$PATH; initdb -D data > /dev/null && exec postgres -D data -k /tmp\"";
    let ready = Probe::Log { pattern: "ready to accept connections".into() };
    let wanted = plan(vec![shell("web-1", web, up), shell("store-1", data_base, ready)], Reset::Restart);
    platform.apply(SLOT, &wanted, &CancellationToken::new()).await.unwrap();
    let mut ask = run("cat /proc/[0-9]*/status | grep -c 'Uid:.33'");
    ask.place = Place::Instance(id("web-1"));
    let users = platform.exec(SLOT, &ask, &CancellationToken::new()).await.unwrap();
    assert_ne!(users.stdout.trim(), "0", "workers run as www-data");
    platform.close_slot(SLOT).await.unwrap();
}
