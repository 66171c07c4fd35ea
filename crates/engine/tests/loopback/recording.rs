//! Recording a system that the tool did not start: through proxies, into a campaign that can be replayed.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use faultscope_engine::record::{LiveRecording, RecordOptions, RecordedService};
use faultscope_engine::replay::ReplayVerdict;
use faultscope_engine::views::{Archive, Subject, find_trace, list_services};
use faultscope_model::CampaignKind;
use faultscope_model::record::SecretRules;
use faultscope_model::wiring::RecordLevel;
use faultscope_store::secrets::SecretOptions;

use crate::bed::{Bed, close};
use crate::greeter::greeter;
use crate::mocks::{last_recording, replay_mocked};
use crate::people::{get, up};

/// Records a service that listens at this address, as `front`.
async fn record(bed: &Bed, port: u16) -> (LiveRecording, SocketAddr) {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    let address = socket.local_addr().unwrap();
    let service = RecordedService { name: "front".parse().unwrap(), host: "localhost".into(), port, socket };
    let options = RecordOptions {
        state: bed.folder.path().join(".faultscope"),
        application: "elsewhere".into(),
        command_line: vec!["faultscope".into(), "record".into()],
        seed: 7,
        level: RecordLevel::Bodies { most: 1 << 20 },
        rules: Vec::new(),
        sample: None,
        secrets: SecretOptions {
            rules: SecretRules { drop: true, ..SecretRules::default() },
            ..SecretOptions::default()
        },
    };
    (LiveRecording::start(vec![service], options).await.unwrap(), address)
}

#[tokio::test]
async fn a_running_system_is_recorded_and_replayed() {
    let running = greeter("");
    let mut live = up(&running).await;
    let front = (&mut live.opened).await.unwrap()[0].address;
    let bed = greeter("");
    let (recording, address) = record(&bed, front.port()).await;
    let campaigns = bed.store().campaigns().unwrap();
    assert_eq!(campaigns[0].meta.kind, CampaignKind::Record, "it can be read from the first moment");
    let answer = get(address, "/hello").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(r#"{"said":"hello world"}"#), "{answer}");
    get(address, "/nowhere").await;
    let (run, counts) = recording.finish().await.unwrap();
    assert_eq!((run.evidence.spans, counts.calls, counts.failed), (2, 2, 0));
    assert!(TcpListener::bind(address).is_ok(), "the port is free again");

    let found = last_recording(&bed, &[]);
    assert_eq!((found.kind, found.run.id), (CampaignKind::Record, run.id));
    let asked: Vec<_> = found.recording.requests.iter().map(|request| request.operation()).collect();
    assert_eq!(asked, ["front GET /hello", "front GET /nowhere"]);
    assert!(found.recording.requests.iter().all(|request| request.port == 8080), "that of this application");
    let archive = Archive::open(&bed.folder.path().join(".faultscope"), Subject::Trace).unwrap();
    assert_eq!(find_trace(&archive, "last").unwrap().len(), 1);
    assert!(list_services(&archive).unwrap().iter().any(|line| line.service == "front"));

    let done = replay_mocked(&bed, last_recording(&bed, &[]), &[], 2).await;
    assert_eq!(done.report.verdict, ReplayVerdict::Reproduced, "{:?}", done.report);
    live.until.cancel();
    live.running.await.unwrap();
    close(live.session).await;
}

#[tokio::test]
async fn a_target_that_is_gone_is_recorded_as_such() {
    let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = gone.local_addr().unwrap().port();
    drop(gone);
    let bed = greeter("");
    let (recording, address) = record(&bed, port).await;
    // The caller sees a connection that ends without an answer.
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.writable().await.unwrap();
    stream.try_write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let mut rest = Vec::new();
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut { stream }, &mut rest).await;
    assert!(rest.is_empty());
    let (_, counts) = recording.finish().await.unwrap();
    assert_eq!((counts.calls, counts.failed), (1, 1));
}
