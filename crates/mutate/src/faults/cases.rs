//! DD-F1 to DD-F4 of the delta debugging paper, and the TrainTicket cases MS-F1 to MS-F13 whose code is known.

use super::FaultGroup::{DeltaDebugging as DD, Microservices as MS};
use super::Symptom::{Delay, Error, Output};
use super::{Fault, fault};
use crate::operator::Operator as O;

const DELTA: &str = "Zhou et al., Delta debugging microservice systems, Table 2";
const TRAIN: &str =
    "FudanSELab/train-ticket-fault-replicate, and FudanSELab/train-ticket, branches istio-error-*";

pub(super) const FAULTS: [Fault; 14] = [
    fault(
        "DD-F1",
        DD,
        Output,
        [
            "a request that visits one service twice gets answers that contradict each other",
            "two instances of the service serve the two calls, and their states differ",
            DELTA,
        ],
        &[O::LocalState],
    ),
    fault(
        "DD-F2",
        DD,
        Error,
        [
            "a service is killed now and then, and requests to it fail",
            "its heap may grow beyond the memory limit of its container",
            DELTA,
        ],
        &[O::ResourceHungry, O::LessMemory],
    ),
    fault(
        "DD-F3",
        DD,
        Output,
        [
            "a request that is correct on its own ends in a wrong state",
            "asynchronous calls return in another order than the caller assumes",
            DELTA,
        ],
        &[O::ConcurrentCalls, O::OutOfOrder],
    ),
    fault(
        "DD-F4",
        DD,
        Output,
        [
            "some requests of a series fail, others succeed",
            "asynchronous updates arrive out of order, and instances of another service do not share what would repair it",
            DELTA,
        ],
        &[O::ConcurrentCalls, O::LocalState],
    ),
    fault(
        "MS-F1",
        MS,
        Error,
        [
            "cancelling an order fails although both of its steps report success",
            "refund and cancellation run at once, and the order stays in `cancelling` when the refund writes last",
            TRAIN,
        ],
        &[O::ConcurrentCalls, O::OutOfOrder],
    ),
    fault(
        "MS-F2",
        MS,
        Output,
        [
            "the second of two quick reservations answers first and is reported as wrong",
            "answers are released as they come, not in the order of the requests of one user",
            TRAIN,
        ],
        &[O::RandomDelay, O::OutOfOrder],
    ),
    fault(
        "MS-F3",
        MS,
        Error,
        [
            "a search fails after some seconds, then the service refuses connections until it is back",
            "the largest heap is above the memory limit of the container, and the kernel kills the process",
            TRAIN,
        ],
        &[O::ResourceHungry, O::LessMemory],
    ),
    fault(
        "MS-F4",
        MS,
        Delay,
        [
            "complex requests take very long, with correct answers",
            "every internal call is encrypted anew, and long chains pay for each hop",
            TRAIN,
        ],
        &[O::HighCpu, O::ResourceHungry],
    ),
    fault(
        "MS-F5",
        MS,
        Delay,
        [
            "a harmless request times out while others are running",
            "slow queries hold all threads of a small pool that it shares with them",
            TRAIN,
        ],
        &[O::ConsistentDelay, O::LessCpu],
    ),
    fault(
        "MS-F7",
        MS,
        Error,
        [
            "a payment fails and the order stays unpaid",
            "the service waits 2 s for an outside service that needs at least as long",
            TRAIN,
        ],
        &[O::RestartOrTimeout, O::ConsistentDelay],
    ),
    fault(
        "MS-F8",
        MS,
        Error,
        [
            "cancelling fails for users of one kind, who are told that they are not logged in",
            "for them the login id is passed on in place of the token, and the next service does not find it",
            TRAIN,
        ],
        &[O::LocalState, O::FieldChange],
    ),
    fault(
        "MS-F11",
        MS,
        Error,
        [
            "some of ten cancellations fail with a wrong status",
            "status writes overtake each other, and the switch for the check that repairs it is in one instance's memory",
            TRAIN,
        ],
        &[O::LocalState, O::ConcurrentCalls],
    ),
    fault(
        "MS-F12",
        MS,
        Output,
        [
            "an order can be cancelled although its stations are locked, but not always",
            "the lock is in the memory of one of several instances",
            TRAIN,
        ],
        &[O::LocalState],
    ),
    fault(
        "MS-F13",
        MS,
        Error,
        [
            "a payment fails because the order was cancelled before it was processed",
            "a later request of the same user overtakes the earlier one that it depends on",
            TRAIN,
        ],
        &[O::OutOfOrder, O::ConcurrentCalls],
    ),
];
