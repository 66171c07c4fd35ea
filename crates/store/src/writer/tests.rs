//! What both databases rely on.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::error::StoreErrorKind;

/// Keeps numbers; fails at the number 13 and panics at 99.
#[derive(Default)]
struct Numbers {
    batches: Vec<Vec<u32>>,
}

impl Commit for &mut Numbers {
    type Entry = u32;

    fn commit(&mut self, entries: &mut [u32]) -> Result<(), StoreError> {
        assert!(!entries.contains(&99), "asked to panic");
        if entries.contains(&13) {
            return Err(StoreError::new(StoreErrorKind::DiskFull, "write", Path::new("x"), "13"));
        }
        self.batches.push(entries.to_vec());
        Ok(())
    }
}

const ONE: Weight = Weight { items: 1, bytes: 10 };

fn queue(items: usize, bytes: usize) -> Queue<u32> {
    let bounds = Bounds { items, bytes, gather: Duration::from_secs(600), enough: 1000 };
    Queue::new(Path::new("x"), bounds)
}

/// Closes the queue and writes what is left.
fn finish(queue: &Queue<u32>) -> Vec<Vec<u32>> {
    let mut numbers = Numbers::default();
    queue.close();
    write_batches(queue, &mut numbers);
    numbers.batches
}

fn kind(ack: Ack) -> Result<(), StoreErrorKind> {
    ack.committed_blocking().map_err(|error| error.kind)
}

#[test]
fn closing_writes_what_is_queued() {
    let queue = queue(10, 1000);
    (1..=3).for_each(|number| queue.record(number, ONE));
    let ack = queue.submit(4, ONE, None).unwrap();
    assert_eq!(queue.waiting(), 4);
    assert_eq!(finish(&queue), [[1, 2, 3, 4]]);
    assert_eq!(kind(ack), Ok(()));
    assert_eq!((queue.recorded(), queue.commits(), queue.lost(), queue.refused()), (3, 1, 0, 0));
    queue.record(5, ONE);
    assert_eq!(queue.refused(), 1, "what comes later is counted");
    assert_eq!(queue.submit(5, ONE, None).unwrap_err(), Refused::Closed);
    assert_eq!(queue.push(5).unwrap_err().kind, StoreErrorKind::Closed);
    assert_eq!(queue.flush().unwrap_err().kind, StoreErrorKind::Closed);
}

#[test]
fn what_finds_no_room_is_refused_and_counted() {
    for queue in [queue(2, 1000), queue(10, 25)] {
        (1..=3).for_each(|number| queue.record(number, ONE));
        assert_eq!(queue.submit(4, ONE, None).unwrap_err(), Refused::Busy);
        queue.push(5).unwrap();
        assert_eq!((queue.recorded(), queue.refused()), (2, 2));
        assert_eq!(finish(&queue), [[1, 2, 5]], "what must not be lost is taken all the same");
    }
}

#[test]
fn what_is_larger_than_all_room_is_taken_alone_when_its_sender_waits() {
    let large = Weight { items: 1, bytes: 5000 };
    let queue = queue(10, 1000);
    queue.record(1, large);
    assert_eq!((queue.recorded(), queue.refused()), (0, 1));
    let ack = queue.submit(2, large, None).unwrap();
    assert_eq!(queue.submit(3, ONE, None).unwrap_err(), Refused::Busy);
    assert_eq!(finish(&queue), [[2]]);
    assert_eq!(kind(ack), Ok(()));
}

#[test]
fn every_waiter_learns_of_a_lost_batch() {
    let queue = queue(10, 1000);
    queue.record(13, ONE);
    let acks = [queue.submit(1, ONE, None).unwrap(), queue.submit(2, ONE, None).unwrap()];
    let flushes = [queue.flush().unwrap(), queue.flush().unwrap()];
    assert_eq!(finish(&queue), [[0; 0]; 0]);
    for ack in acks.into_iter().chain(flushes) {
        assert_eq!(kind(ack), Err(StoreErrorKind::DiskFull));
    }
    assert_eq!((queue.lost(), queue.commits()), (3, 0));
}

#[test]
fn an_unawaited_lost_batch_is_reported_at_the_next_flush() {
    let (ready, go_on) = mpsc::channel::<()>();
    let bounds = Bounds { items: 10, bytes: 1000, gather: Duration::ZERO, enough: 1 };
    let writer = Writer::start("test", Queue::new(Path::new("x"), bounds), move |queue| {
        go_on.recv().unwrap();
        write_batches(queue, &mut Numbers::default());
    })
    .unwrap();
    // The sender of the failed batch is told; that says nothing to those who recorded beside it.
    writer.record(13, ONE);
    let ack = writer.submit(1, ONE, None).unwrap();
    ready.send(()).unwrap();
    assert_eq!(kind(ack), Err(StoreErrorKind::DiskFull));
    let ack = writer.submit(2, ONE, None).unwrap();
    assert_eq!(kind(ack), Ok(()), "an earlier loss is not this sender's");
    assert_eq!(kind(writer.flush().unwrap()), Err(StoreErrorKind::DiskFull));
    assert_eq!(kind(writer.flush().unwrap()), Ok(()), "it is told once");
}

#[test]
fn a_writer_that_panics_leaves_nobody_waiting() {
    let bounds = Bounds { items: 10, bytes: 1000, gather: Duration::ZERO, enough: 1 };
    let (at_work, seen) = mpsc::channel();
    let (ready, go_on) = mpsc::channel::<()>();
    let writer = Writer::start("test", Queue::new(Path::new("x"), bounds), move |queue| {
        let mut batch = Batch::default();
        assert!(queue.take(&mut batch));
        at_work.send(()).unwrap();
        go_on.recv().unwrap();
        let _ = (&mut Numbers::default()).commit(&mut batch.entries);
    })
    .unwrap();
    let first = writer.submit(99, ONE, None).unwrap();
    seen.recv().unwrap();
    // It comes while the writer is on its way to the panic.
    let second = writer.submit(1, ONE, None).unwrap();
    let flush = writer.flush().unwrap();
    ready.send(()).unwrap();
    for ack in [first, second, flush] {
        assert_eq!(kind(ack), Err(StoreErrorKind::Closed));
    }
    assert_eq!(writer.submit(2, ONE, None).unwrap_err(), Refused::Closed);
}

#[test]
fn a_panic_loses_a_batch_and_not_the_writer() {
    let bounds = Bounds { items: 10, bytes: 1000, gather: Duration::ZERO, enough: 1 };
    let writer = Writer::start("test", Queue::new(Path::new("x"), bounds), |queue| {
        write_batches(queue, &mut Numbers::default());
    })
    .unwrap();
    for (number, expected, health) in [
        (1, Ok(()), WriterHealth::Well),
        (99, Err(StoreErrorKind::Other), WriterHealth::Failing { kind: StoreErrorKind::Other }),
        (13, Err(StoreErrorKind::DiskFull), WriterHealth::Failing { kind: StoreErrorKind::DiskFull }),
        (2, Ok(()), WriterHealth::Well),
    ] {
        assert_eq!(kind(writer.submit(number, ONE, None).unwrap()), expected);
        assert_eq!(writer.health(), health, "after {number}");
    }
    writer.close();
    assert_eq!(writer.health(), WriterHealth::Ended);
}

#[test]
fn memory_is_held_until_the_batch_is_written() {
    let budget = crate::Budget::new(10 << 10);
    let hold = || {
        let mut hold = budget.hold_nothing();
        assert!(hold.grow(4 << 10));
        Some(hold)
    };
    let queue = queue(10, 1000);
    let ack = queue.submit(1, ONE, hold()).unwrap();
    // Whoever waited is gone, but the entry is not.
    drop(ack);
    let _ack = queue.submit(2, ONE, hold()).unwrap();
    assert_eq!(budget.free(), 2 << 10);
    finish(&queue);
    assert_eq!(budget.free(), 10 << 10);
}
