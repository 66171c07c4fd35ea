//! What a slot of containers needs and leaves.

use std::process::Command;
use std::time::Duration;

use faultscope_model::SlotId;
use faultscope_model::mount::{Mount, MountSource};
use faultscope_model::plan::{Probe, Reset};
use faultscope_model::units::ByteSize;
use faultscope_platform::{Action, Execution, Place, Platform, PlatformErrorKind, PlatformEvent, Rights};
use tokio_util::sync::CancellationToken;

use crate::support::{App, instance, plan, platform};

const SLOT: SlotId = SlotId(0);

fn docker(words: &[&str]) -> String {
    let output = Command::new("docker").args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Docker engine: ./test.sh docker"]
async fn a_lost_sidecar_spoils_the_trial_and_is_replaced() {
    let (app, platform, cancel) = (App::new(), platform().await, CancellationToken::new());
    let spec = app.slot(0);
    platform.open_slot(&spec).await.unwrap();
    let wanted = plan(vec![instance("order-1", 8080)], Reset::Restart);
    platform.apply(SLOT, &wanted, &cancel).await.unwrap();
    platform.intact(SLOT).await.unwrap();
    docker(&["rm", "-f", &format!("faultscope-{}-sidecar", spec.label)]);
    let error = platform.intact(SLOT).await.unwrap_err();
    assert_eq!(error.kind, PlatformErrorKind::Infrastructure);
    platform.clear_slot(SLOT).await.unwrap();
    platform.apply(SLOT, &wanted, &cancel).await.unwrap();
    platform.intact(SLOT).await.unwrap();
    let id = &wanted.instances[0].id;
    platform.dial(SLOT, id, 8080).await.unwrap();
    platform.act(SLOT, id, Action::Restart).await.unwrap();
    platform.dial(SLOT, id, 8080).await.unwrap();
    platform.close_slot(SLOT).await.unwrap();
    let label = format!("label=faultscope.slot={}", spec.label);
    assert_eq!(docker(&["ps", "-aq", "--filter", &label]), "");
    assert_eq!(docker(&["network", "ls", "-q", "--filter", &label]), "");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Docker engine: ./test.sh docker"]
async fn exits_are_reported_and_commands_run_inside() {
    let (app, platform, cancel) = (App::new(), platform().await, CancellationToken::new());
    platform.open_slot(&app.slot(0)).await.unwrap();
    let mut order = instance("order-1", 8080);
    let script = "trap 'exit 5' TERM; touch up; echo up; while :; do sleep 0.1; done";
    order.command = ["sh", "-c", script].map(String::from).to_vec();
    order.ready.probe = Probe::Command { command: ["ls", "up"].map(String::from).to_vec() };
    platform.apply(SLOT, &plan(vec![order.clone()], Reset::Restart), &cancel).await.unwrap();
    let mut events = platform.events(SLOT);
    let run = Execution {
        command: ["sh", "-c", "hostname; kill -TERM 1"].map(String::from).to_vec(),
        env: Default::default(),
        directory: String::new(),
        within: Duration::from_secs(20),
        output_limit: 4096,
        place: Place::Instance(order.id.clone()),
        rights: Rights::Service,
    };
    let exit = platform.exec(SLOT, &run, &cancel).await.unwrap();
    assert_eq!((exit.code, exit.stdout.as_str()), (Some(0), "order-1\n"));
    let event = tokio::time::timeout(Duration::from_secs(20), events.recv()).await.unwrap().unwrap();
    let (instance, out_of_memory) = (order.id.clone(), false);
    assert_eq!(event, PlatformEvent::Exited { instance, code: Some(5), signal: None, out_of_memory });
    let refused = platform.dial(SLOT, &order.id, 8080).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    platform.close_slot(SLOT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Docker engine: ./test.sh docker"]
async fn entry_point_working_directory_and_user_take_the_place_of_the_image_s_own() {
    let (app, platform, cancel) = (App::new(), platform().await, CancellationToken::new());
    platform.open_slot(&app.slot(0)).await.unwrap();
    let mut web = instance("web-1", 8080);
    let program = web.command.remove(0);
    web.entrypoint = Some(vec!["/bin/busybox".into(), "env".into(), "FIRST=1".into(), program]);
    web.working_dir = Some("/etc".into());
    web.user = Some("1000:1000".into());
    // A folder of this machine says nothing about the image.
    web.directory = "order".into();
    let mut plain = instance("plain-1", 8081);
    plain.directory = "order".into();
    let wanted = plan(vec![web, plain], Reset::Restart);
    platform.reserve(SLOT, &wanted).await.unwrap();
    platform.apply(SLOT, &wanted, &cancel).await.unwrap();
    let inside = async |name: &str, script: &str| {
        let run = Execution {
            command: ["sh", "-c", script].map(String::from).to_vec(),
            env: Default::default(),
            directory: String::new(),
            within: Duration::from_secs(20),
            output_limit: 1 << 10,
            place: Place::Instance(name.parse().unwrap()),
            rights: Rights::Service,
        };
        platform.exec(SLOT, &run, &cancel).await.unwrap().stdout
    };
    let script = "busybox tr '\\0' ' ' < /proc/1/cmdline; echo; busybox id -u; busybox pwd; \
                  busybox tr '\\0' '\\n' < /proc/1/environ | busybox grep FIRST";
    assert_eq!(inside("web-1", script).await, "/faultscope-launch service 8080 \n1000\n/etc\nFIRST=1\n");
    assert_eq!(inside("plain-1", "busybox id -u; busybox pwd").await, "0\n/work\n");
    platform.close_slot(SLOT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Docker engine: ./test.sh docker"]
async fn mounts_are_seen_and_no_file_of_the_user_changes() {
    let (app, platform, cancel) = (App::new(), platform().await, CancellationToken::new());
    let spec = app.slot(0);
    std::fs::write(spec.application.join("web.conf"), "listen 80\n").unwrap();
    platform.open_slot(&spec).await.unwrap();
    let mount = |to: &str, source, readonly| Mount { to: to.into(), source, readonly, mode: None };
    let mut web = instance("web-1", 8080);
    web.mounts = vec![
        mount("/etc/web.conf", MountSource::Path("web.conf".into()), true),
        mount("/etc/own.conf", MountSource::Path("web.conf".into()), false),
        mount("/etc/app.yaml", MountSource::Content("a: 1\n".into()), true),
        mount("/var/lib/shared", MountSource::Volume("shared".into()), false),
        mount("/run/memory", MountSource::Memory { size: ByteSize(1 << 20) }, false),
    ];
    let mut worker = instance("worker-1", 8081);
    worker.mounts = vec![mount("/data", MountSource::Volume("shared".into()), true)];
    let wanted = plan(vec![web, worker], Reset::Restart);
    let inside = async |name: &str, script: &str| {
        let run = Execution {
            command: ["sh", "-c", script].map(String::from).to_vec(),
            env: Default::default(),
            directory: String::new(),
            within: Duration::from_secs(20),
            output_limit: 1 << 10,
            place: Place::Instance(name.parse().unwrap()),
            rights: Rights::Service,
        };
        platform.exec(SLOT, &run, &cancel).await.unwrap().stdout
    };
    for _ in 0..2 {
        platform.reserve(SLOT, &wanted).await.unwrap();
        platform.apply(SLOT, &wanted, &cancel).await.unwrap();
        let script = "cat /etc/web.conf /etc/own.conf /etc/app.yaml; ls /var/lib/shared /run/memory; \
                      (echo x >> /etc/web.conf) 2>/dev/null || echo read-only; echo x >> /etc/own.conf; \
                      echo kept > /var/lib/shared/note; touch /run/memory/y";
        let seen = inside("web-1", script).await;
        let expected = "listen 80\nlisten 80\na: 1\n/run/memory:\n\n/var/lib/shared:\nread-only\n";
        assert_eq!(seen, expected, "every trial begins with the same");
        assert_eq!(inside("worker-1", "cat /data/note").await, "kept\n");
        platform.act(SLOT, &"web-1".parse().unwrap(), Action::Restart).await.unwrap();
        assert_eq!(inside("web-1", "cat /var/lib/shared/note; ls /run/memory").await, "kept\n");
    }
    platform.close_slot(SLOT).await.unwrap();
    assert_eq!(std::fs::read_to_string(spec.application.join("web.conf")).unwrap(), "listen 80\n");
    let label = format!("label=faultscope.slot={}", spec.label);
    assert_eq!(docker(&["volume", "ls", "-q", "--filter", &label]), "");
}
