//! Services, tests and machines that misbehave.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use faultscope_model::SlotId;
use faultscope_model::plan::{Probe, Reset};
use faultscope_platform::{Platform, PlatformErrorKind, PlatformEvent, ProcessPlatform, WantedIsolation};
use tokio_util::sync::CancellationToken;

use crate::support::{
    App, id, instance, message, plan, platform, processes, run, run_as_root_of_its_own, shell,
    until_processes,
};

const SLOT: SlotId = SlotId(0);

fn up() -> Probe {
    Probe::Log { pattern: "^up$".into() }
}

async fn each(check: impl AsyncFn(ProcessPlatform, App)) {
    for isolation in [WantedIsolation::Netns, WantedIsolation::Ports] {
        let app = App::new();
        let platform = platform(isolation);
        platform.open_slot(&app.slot(0)).await.unwrap();
        check(platform, app).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_port_is_named() {
    let app = App::new();
    let platform = platform(WantedIsolation::Ports);
    platform.open_slot(&app.slot(0)).await.unwrap();
    let taken = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let wanted = plan(vec![instance("order-1", port, &[])], Reset::Restart);
    let error = platform.apply(SLOT, &wanted, &CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.kind, PlatformErrorKind::BadPlan);
    let expected = format!("port {port} of order is taken: another process listens on it");
    assert!(message(&error).contains(&expected), "{error:?}");
    let two = plan(vec![instance("order-1", port, &[]), instance("order-2", port, &[])], Reset::Restart);
    let error = platform.reserve(SLOT, &two).await.unwrap_err();
    assert!(message(&error).contains("`isolation: netns`"), "{error:?}");
    platform.close_slot(SLOT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_spoils_the_trial_only() {
    if !rustix::process::geteuid().is_root() {
        return run_as_root_of_its_own("bad::a_full_disk_spoils_the_trial_only");
    }
    let app = App::new();
    let state = app.path().join(".faultscope");
    fs::create_dir(&state).unwrap();
    let mount =
        |args: &[&str]| Command::new(args[0]).args(&args[1..]).arg(&state).status().unwrap().success();
    assert!(mount(&["mount", "-t", "tmpfs", "-o", "size=256k", "none"]));
    let platform = platform(WantedIsolation::Netns);
    platform.open_slot(&app.slot(0)).await.unwrap();
    let fill = state.join("fill");
    let _ = fs::write(&fill, vec![1; 1 << 20]);
    let wanted = plan(vec![shell("order-1", "echo up; exec sleep 1000", up())], Reset::Restart);
    let error = platform.apply(SLOT, &wanted, &CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.kind, PlatformErrorKind::Infrastructure);
    assert!(message(&error).contains("No space left"), "{error:?}");
    fs::remove_file(fill).unwrap();
    platform.apply(SLOT, &wanted, &CancellationToken::new()).await.unwrap();
    platform.close_slot(SLOT).await.unwrap();
    assert!(mount(&["umount"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_cannot_run_are_named() {
    each(async |platform, app| {
        let script = app.path().join("serve");
        fs::write(&script, "#!/bin/sh\necho up\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o600)).unwrap();
        let mut service = shell("order-1", "", up());
        for (command, folder, expected) in [
            ("./serve", "", "not allowed to run ./serve"),
            ("./absent", "", "no such program: `./absent`"),
            ("true", "nowhere", "cannot go to its folder"),
            ("true", "../outside", "leads out of the application"),
        ] {
            service.command = vec![command.into()];
            service.directory = folder.into();
            let wanted = plan(vec![service.clone()], Reset::Restart);
            let error = platform.apply(SLOT, &wanted, &CancellationToken::new()).await.unwrap_err();
            assert_eq!(error.kind, PlatformErrorKind::BadPlan, "{error:?}");
            assert!(message(&error).contains(expected), "{error:?}");
        }
        platform.close_slot(SLOT).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn services_that_cling_to_life_are_gone() {
    each(async |platform, app| {
        let mark = format!("{}.5", 100_000 + app.number());
        let script =
            format!("trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep {mark}' &); echo up; while :; do sleep {mark}; done");
        let mut service = shell("order-1", &script, up());
        service.stop_within = Duration::from_millis(100);
        let wanted = plan(vec![service], Reset::Restart);
        platform.apply(SLOT, &wanted, &CancellationToken::new()).await.unwrap();
        until_processes(&mark, 2).await;
        platform.reserve(SLOT, &plan(Vec::new(), Reset::Restart)).await.unwrap();
        assert_eq!(processes(&mark), 0, "nothing outlives its instance");
        platform.apply(SLOT, &wanted, &CancellationToken::new()).await.unwrap();
        platform.clear_slot(SLOT).await.unwrap();
        assert_eq!(processes(&mark), 0, "nothing outlives a cleared slot");
        platform.close_slot(SLOT).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tests_leave_nothing_behind() {
    each(async |platform, app| {
        let mark = format!("{}.25", 100_000 + app.number());
        let never = CancellationToken::new();
        let forking = run(&format!("(setsid sleep {mark} &) ; echo forked; exit 1"));
        let exit = platform.exec(SLOT, &forking, &never).await.unwrap();
        assert_eq!((exit.code, exit.stdout.as_str(), processes(&mark)), (Some(1), "forked\n", 0));
        let mut hanging = run(&format!("(setsid sleep {mark} &) ; sleep {mark}"));
        hanging.within = Duration::from_millis(200);
        let exit = platform.exec(SLOT, &hanging, &never).await.unwrap();
        assert!(exit.timed_out && processes(&mark) == 0, "{exit:?}");
        platform.close_slot(SLOT).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_lines_slows_nothing_down() {
    each(async |platform, app| {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let flooding = instance("order-1", port, &["flood", "200000000", "say", "the end"]);
        platform.apply(SLOT, &plan(vec![flooding], Reset::Restart), &CancellationToken::new()).await.unwrap();
        let mut log = platform.log(SLOT, &id("order-1")).await.unwrap();
        // The last lines may still be on their way when the port answers.
        while log.lines.last().is_none_or(|line| line.text != "the end") {
            tokio::task::yield_now().await;
            log = platform.log(SLOT, &id("order-1")).await.unwrap();
        }
        assert!((1..=500).contains(&log.lines.len()) && log.bytes() <= 65 << 10, "{}", log.lines.len());
        assert!(log.dropped > 0, "what is not kept is counted");
        let folder =
            fs::read_dir(app.path().join(".faultscope/slots")).unwrap().next().unwrap().unwrap().path();
        let logs = fs::read_dir(folder.join("logs")).unwrap().map(|f| f.unwrap().metadata().unwrap().len());
        assert!(logs.sum::<u64>() <= 1 << 20);
        platform.close_slot(SLOT).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unexpected_end_is_an_event() {
    each(async |platform, _app| {
        let wanted = plan(vec![shell("order-1", "echo up; sleep 0.2; kill -9 $$", up())], Reset::Restart);
        let mut events = platform.events(SLOT);
        platform.apply(SLOT, &wanted, &CancellationToken::new()).await.unwrap();
        let exited = PlatformEvent::Exited {
            instance: id("order-1"),
            code: None,
            signal: Some(9),
            out_of_memory: false,
        };
        assert_eq!(events.recv().await.unwrap(), PlatformEvent::Ready { instance: id("order-1") });
        assert_eq!(events.recv().await.unwrap(), exited);
        platform.close_slot(SLOT).await.unwrap();
    })
    .await;
}
