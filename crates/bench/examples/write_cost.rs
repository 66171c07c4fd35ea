//! How much CPU one recorded span costs, from the call to the commit: `write_cost [spans] [threads]`.

use std::error::Error;
use std::thread;

use faultscope_model::span::{Parentage, Payload, Span, Wire};
use faultscope_model::{InstanceId, NodeId, SlotId, SpanId, TraceId, TrialId};
use faultscope_store::{CampaignMeta, Store, new_campaign_id};
use rustix::time::{ClockId, clock_gettime};

/// Spans that are recorded at once.
const BATCH: u64 = 200;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let spans: u64 = arguments.next().map_or(Ok(500_000), |text| text.parse())?;
    let threads: u64 = arguments.next().map_or(Ok(2), |text| text.parse())?;
    for payload in [false, true] {
        measure(spans, threads, payload)?;
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the figures are the purpose")]
fn measure(spans: u64, threads: u64, payload: bool) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let store = Store::open(folder.path().join(".faultscope"))?;
    let campaign = store.campaign(CampaignMeta {
        id: new_campaign_id(1),
        kind: faultscope_model::CampaignKind::Bench,
        application: "bench".to_owned(),
        started_us: 1,
        command_line: Vec::new(),
        seed: 0,
    })?;
    let order: InstanceId = "order-1".parse()?;
    let (wall, cpu) = (now(ClockId::Monotonic), now(ClockId::ProcessCPUTime));
    let (making, recording): (f64, f64) = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                let (sink, order) = (campaign.sink(), order.clone());
                scope.spawn(move || {
                    let (mut making, mut recording) = (0.0, 0.0);
                    for batch in 0..spans / threads / BATCH {
                        let start = now(ClockId::ThreadCPUTime);
                        let made: Vec<Span> = (0..BATCH)
                            .map(|n| span(worker << 40 | (batch * BATCH + n), &order, payload))
                            .collect();
                        let made_at = now(ClockId::ThreadCPUTime);
                        for span in made {
                            sink.record(TrialId::chosen(1 + (batch / 50) as u32), SlotId(0), span);
                        }
                        making += made_at - start;
                        recording += now(ClockId::ThreadCPUTime) - made_at;
                        // A pace the writer can follow, as that of a mesh.
                        thread::sleep(std::time::Duration::from_millis(10));
                    }
                    (making, recording)
                })
            })
            .collect();
        let ended = workers.into_iter().map(|worker| worker.join().unwrap_or_default());
        ended.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    });
    campaign.flush_blocking()?;
    let (wall, cpu) = (now(ClockId::Monotonic) - wall, now(ClockId::ProcessCPUTime) - cpu);
    let kept = campaign.reader()?.span_count()?;
    let per = |seconds: f64| seconds * 1e6 / kept as f64;
    println!(
        "payload {payload}: {kept} spans kept, {} dropped, {wall:.2} s; {:.2} us CPU per span, of it {:.2} in record()",
        campaign.dropped(),
        per(cpu - making),
        per(recording),
    );
    let folder = campaign.folder().to_owned();
    drop(campaign);
    let size = std::fs::metadata(folder.join("store.sqlite"))?.len();
    println!("  {} bytes per span on disk", size / kept.max(1));
    Ok(())
}

fn span(n: u64, caller: &InstanceId, payload: bool) -> Span {
    let callee = caller.service.clone();
    let headers = || {
        vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("user-agent".to_owned(), "python-requests/2.32".to_owned()),
            ("traceparent".to_owned(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
        ]
    };
    let payload = payload.then(|| {
        Box::new(Payload {
            request_headers: headers(),
            response_headers: headers(),
            request_body: vec![b'x'; 200],
            response_body: vec![b'y'; 1024],
            decoded: None,
        })
    });
    Span {
        // Spread over all values, as random trace ids are.
        trace: TraceId(u128::from((n / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1 << 100),
        id: SpanId(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
        parent: Some(SpanId(n | 1)),
        parentage: Parentage::Propagated,
        caller: caller.clone(),
        caller_node: NodeId(0),
        callee_instance: Some(InstanceId::new(callee.clone(), 1)),
        callee,
        callee_node: NodeId(0),
        port: 8080,
        wire: Wire::Http1,
        method: "GET".to_owned(),
        path: "/orders/42?full=1".to_owned(),
        start_us: 1_700_000_000_000_000 + n,
        duration_us: 812,
        first_byte_us: Some(700),
        request_bytes: 0,
        response_bytes: 310,
        status: Some(200),
        grpc_status: None,
        error: None,
        rules: Vec::new(),
        target: None,
        extent: Default::default(),
        payload,
    }
}

fn now(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
