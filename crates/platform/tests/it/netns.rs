//! What namespaces make possible: names, fixed ports, fresh disks, commands inside.

use std::fs;
use std::process::Command;

use faultscope_model::SlotId;
use faultscope_model::plan::{Probe, Reset};
use faultscope_platform::{Action, Place, Platform, PlatformErrorKind, ProcessPlatform, WantedIsolation};
use tokio::io::AsyncWriteExt;
use tokio_util::sync::CancellationToken;

use crate::support::{
    App, id, instance, message, plan, platform, processes, run, run_as_root_of_its_own, shell,
};

const SLOT: SlotId = SlotId(0);

async fn opened(app: &App) -> ProcessPlatform {
    let platform = platform(WantedIsolation::Netns);
    platform.open_slot(&app.slot(0)).await.unwrap();
    platform
}

#[tokio::test(flavor = "multi_thread")]
async fn tests_reach_services_by_name_and_on_localhost() {
    let app = App::new();
    let platform = opened(&app).await;
    let plan = plan(vec![instance("order-1", 8080, &[]), instance("stock-1", 80, &[])], Reset::Restart);
    let reservation = platform.reserve(SLOT, &plan).await.unwrap();
    for listener in reservation.listeners {
        let name = format!("{} {}", listener.spec.callee, listener.spec.caller.is_some());
        let socket = tokio::net::TcpListener::from_std(listener.socket).unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, peer)) = socket.accept().await {
                let _ = stream.write_all(format!("{name} {}\n", peer.ip()).as_bytes()).await;
            }
        });
    }
    let cancel = CancellationToken::new();
    platform.apply(SLOT, &plan, &cancel).await.unwrap();
    let script = "import socket,sys\nfor a in sys.argv[1:]:\n  h,p=a.rsplit('+',1)\n  print(socket.create_connection((h,int(p))).makefile().readline(),end='')";
    let mut python = run("");
    python.command =
        ["python3", "-c", script, "order+8080", "stock+80", "localhost+8080", "127.0.0.1+80", "::1+80"]
            .map(String::from)
            .to_vec();
    let exit = platform.exec(SLOT, &python, &cancel).await.unwrap();
    let own = "10.200.1.3";
    let expected = format!(
        "order false {own}\nstock false {own}\norder true ::1\nstock true 127.0.0.1\nstock true ::1\n"
    );
    assert_eq!((exit.stdout, exit.stderr.as_str()), (expected, ""));
    let look = run("cat /proc/net/dev | grep -c :; getent hosts example.com; exit 0");
    let exit = platform.exec(SLOT, &look, &cancel).await.unwrap();
    assert_eq!(exit.stdout, "2\n", "loopback and one wire, and no other names");
    platform.close_slot(SLOT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_inside_instances_and_prove_readiness() {
    let app = App::new();
    let platform = opened(&app).await;
    let mark = format!("{}.75", 100_000 + app.number());
    let probe = Probe::Command { command: ["test", "-e", "up"].map(String::from).to_vec() };
    let plan = plan(vec![shell("worker-1", "touch up; exec sleep 1000", probe)], Reset::Restart);
    let cancel = CancellationToken::new();
    platform.apply(SLOT, &plan, &cancel).await.unwrap();
    let mut inside = run(&format!("hostname; ls; cat /proc/2/comm; (setsid sleep {mark} &) ; exit 5"));
    inside.place = Place::Instance(id("worker-1"));
    let exit = platform.exec(SLOT, &inside, &cancel).await.unwrap();
    assert_eq!((exit.code, exit.stdout.as_str()), (Some(5), "worker-1\nup\nsleep\n"), "{}", exit.stderr);
    assert_eq!(processes(&mark), 0, "what it forked is gone, the instance is not");
    assert_eq!(platform.metrics(SLOT).await.unwrap().len(), 1);
    assert!(
        fs::read_dir(app.path()).unwrap().all(|e| e.unwrap().file_name() == ".faultscope"),
        "the tree is untouched"
    );
    platform.close_slot(SLOT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn setup_runs_once_and_is_what_every_trial_starts_from() {
    let app = App::new();
    fs::write(app.path().join("seed"), "seed").unwrap();
    let platform = platform(WantedIsolation::Netns);
    let mut spec = app.slot(0);
    spec.setup = Some(["sh", "-c", "cat seed > made; date +%N >> made; rm seed"].map(String::from).to_vec());
    platform.open_slot(&spec).await.unwrap();
    let cancel = CancellationToken::new();
    let look = run("cat made; ls; echo changed > made; ls -a .faultscope | wc -l");
    let first = platform.exec(SLOT, &look, &cancel).await.unwrap();
    // Of the tool's folder, tests see the way to the files that they exchange with the tool.
    assert!(first.stdout.starts_with("seed") && first.stdout.ends_with("\nmade\n3\n"), "{first:?}");
    let again = platform.exec(SLOT, &look, &cancel).await.unwrap();
    assert_eq!(again.stdout, first.stdout, "nobody changes the template");
    platform.clear_slot(SLOT).await.unwrap();
    let mut other = app.slot(1);
    other.setup = spec.setup.clone();
    platform.open_slot(&other).await.unwrap();
    for slot in [SLOT, SlotId(1)] {
        assert_eq!(
            platform.exec(slot, &look, &cancel).await.unwrap().stdout,
            first.stdout,
            "one template for all"
        );
        platform.close_slot(slot).await.unwrap();
    }
    let mut failing = app.slot(2);
    failing.template = "2".into();
    failing.setup = Some(["sh", "-c", "echo no database; exit 3"].map(String::from).to_vec());
    let error = platform.open_slot(&failing).await.unwrap_err();
    assert_eq!(error.kind, PlatformErrorKind::BadPlan);
    assert!(
        message(&error).contains("exited with 3") && message(&error).contains("no database"),
        "{error:?}"
    );
    assert!(fs::read_dir(app.path().join(".faultscope/slots")).unwrap().next().is_none(), "nothing is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn services_start_after_the_ones_they_need() {
    let app = App::new();
    let platform = opened(&app).await;
    let mut front = instance("front-1", 8080, &[]);
    front.after = vec!["back".parse().unwrap()];
    let mut wanted =
        plan(vec![front, instance("back-1", 8081, &[]), instance("back-2", 8081, &[])], Reset::Restart);
    let mut events = platform.events(SLOT);
    platform.apply(SLOT, &wanted, &CancellationToken::new()).await.unwrap();
    let mut order = Vec::new();
    while let Ok(event) = events.try_recv() {
        order.push(format!("{event:?}"));
    }
    assert!(order.len() == 3 && order[2].contains("front"), "{order:?}");
    wanted.instances[1].after = vec!["front".parse().unwrap()];
    let error = platform.apply(SLOT, &wanted, &CancellationToken::new()).await.unwrap_err();
    assert_eq!(
        (error.kind.clone(), message(&error).contains("back, front")),
        (PlatformErrorKind::BadPlan, true)
    );
    platform.act(SLOT, &id("front-1"), Action::Kill).await.unwrap();
    platform.close_slot(SLOT).await.unwrap();
}

/// A state folder whose file system overlays refuse: layers go into memory, and all the rest holds.
#[tokio::test(flavor = "multi_thread")]
async fn data_layers_fall_back_to_memory() {
    if !rustix::process::geteuid().is_root() {
        return run_as_root_of_its_own("netns::data_layers_fall_back_to_memory");
    }
    let app = App::new();
    let state = app.path().join(".faultscope");
    let base = tempfile::tempdir().unwrap();
    for folder in [state.clone(), base.path().join("upper"), base.path().join("work")] {
        fs::create_dir_all(folder).unwrap();
    }
    let options = format!("lowerdir=/etc,upperdir={0}/upper,workdir={0}/work", base.path().display());
    let mount =
        Command::new("mount").args(["-t", "overlay", "none", "-o", &options]).arg(&state).status().unwrap();
    assert!(mount.success());
    let platform = platform(WantedIsolation::Netns);
    let mut spec = app.slot(0);
    spec.setup = Some(["sh", "-c", "echo made > made"].map(String::from).to_vec());
    platform.open_slot(&spec).await.unwrap();
    let notes = platform.capabilities().notes;
    let mut order = instance("order-1", 8080, &[]);
    order.durable = vec!["data".into()];
    let cancel = CancellationToken::new();
    platform.apply(SLOT, &plan(vec![order], Reset::Restart), &cancel).await.unwrap();
    let mut inside = run("cat made; ls data; echo x > data/kept; echo x > made");
    inside.place = Place::Instance(id("order-1"));
    assert_eq!(platform.exec(SLOT, &inside, &cancel).await.unwrap().stdout, "made\n");
    platform.act(SLOT, &id("order-1"), Action::Restart).await.unwrap();
    assert_eq!(platform.exec(SLOT, &inside, &cancel).await.unwrap().stdout, "made\nkept\n");
    platform.clear_slot(SLOT).await.unwrap();
    assert_eq!(platform.exec(SLOT, &run("cat made; ls"), &cancel).await.unwrap().stdout, "made\nmade\n");
    platform.close_slot(SLOT).await.unwrap();
    assert!(Command::new("umount").arg(&state).status().unwrap().success());
    assert!(notes.iter().any(|note| note.contains("in memory")), "{notes:?}");
}
