//! RR-1 to RR-25: "Replay debugging", Appendix A.

use super::FaultGroup::RecordReplay as RR;
use super::Symptom::{Delay, Error, Output, Resource};
use super::{Fault, fault};
use crate::operator::Operator as O;

/// Zhou et al., the survey that several faults come from.
const SURVEY: &str = "Zhou et al., Fault analysis and debugging of microservice systems, TSE 2018";
/// Cinque et al., two faults of the Clearwater telephone system.
const CLEARWATER: &str =
    "Cinque et al., Microservices monitoring with event logs and black box execution tracing, TSC 2019";

pub(super) const FAULTS: [Fault; 25] = [
    fault(
        "RR-1",
        RR,
        Error,
        [
            "deleting telephone accounts is answered with 502, twice",
            "one service fails to talk to its Cassandra database",
            CLEARWATER,
        ],
        &[O::Abort],
    ),
    fault(
        "RR-2",
        RR,
        Error,
        [
            "a service that is shutting down keeps throwing exceptions",
            "the thread that sends state updates is not stopped with the service it reports to",
            "https://github.com/sitewhere/sitewhere/issues/726",
        ],
        &[O::Abort],
    ),
    fault(
        "RR-3",
        RR,
        Error,
        [
            "a POST to one route ends in an exception that nobody handles",
            "the contract of the route does not say that a field is required, and callers leave it out",
            "https://github.com/sitewhere/sitewhere/issues/607",
        ],
        &[O::FieldChange],
    ),
    fault(
        "RR-4",
        RR,
        Error,
        ["payments fail", "a third-party service gets more requests than it accepts and denies them", SURVEY],
        &[O::FewerReplicas, O::HighCpu, O::LessCpu],
    ),
    fault(
        "RR-5",
        RR,
        Error,
        [
            "a client cannot load its settings from the configuration server",
            "the property that switches remote configuration on is missing",
            "https://stackoverflow.com/questions/37074642",
        ],
        &[O::Flag],
    ),
    fault(
        "RR-6",
        RR,
        Error,
        [
            "the page with traces and logs of services answers `unauthorized`",
            "security of the management endpoints is on where it was meant to be off",
            "https://stackoverflow.com/questions/42648060",
        ],
        &[O::Flag],
    ),
    fault(
        "RR-7",
        RR,
        Error,
        [
            "the gateway answers 500 once the services run in containers",
            "services are not on one network, and the gateway's routes are not configured for it",
            "https://stackoverflow.com/questions/55026430",
        ],
        &[O::Environment],
    ),
    fault(
        "RR-8",
        RR,
        Error,
        [
            "a service throws transport exceptions because it finds no registry",
            "it registers itself by default, and the two flags that switch this off are not set",
            "https://stackoverflow.com/questions/46131196",
        ],
        &[O::Flag],
    ),
    fault(
        "RR-9",
        RR,
        Error,
        [
            "a service with an empty prefix fails without saying so",
            "an attribute that was meant to be optional is required",
            "https://github.com/nytimes/gizmo/issues/26",
        ],
        &[O::FieldChange],
    ),
    fault(
        "RR-10",
        RR,
        Delay,
        [
            "a call attempt is answered with 504 after a while",
            "three services further on, the database of profiles refuses connections",
            CLEARWATER,
        ],
        &[O::Timeout],
    ),
    fault(
        "RR-11",
        RR,
        Delay,
        [
            "services give up on the database while the system starts",
            "they wait 30 s for a replica set that may need longer to come up",
            "https://github.com/sitewhere/sitewhere/issues/721",
        ],
        &[O::Timeout, O::RestartOrTimeout],
    ),
    fault(
        "RR-12",
        RR,
        Delay,
        [
            "long inserts with some character sets take far longer than others",
            "a conversion is called again and again inside a loop",
            "https://bugs.mysql.com/bug.php?id=15811",
        ],
        &[O::ConsistentDelay],
    ),
    fault(
        "RR-13",
        RR,
        Delay,
        [
            "a replica with much data times out before it is in sync",
            "the output buffer of the master is limited too tightly for its replicas",
            "https://github.com/antirez/redis/issues/957",
        ],
        &[O::Timeout],
    ),
    fault(
        "RR-14",
        RR,
        Delay,
        [
            "services of a social network miss their latency goals now and then",
            "contention for a cache, and long waits for locks in the remote call layer",
            "Gan et al., Seer, ASPLOS 2019",
        ],
        &[O::RandomDelay],
    ),
    fault(
        "RR-15",
        RR,
        Delay,
        [
            "for three minutes of every hour all reads of a data store take 45 ms more",
            "injected on purpose to evaluate a root cause analysis",
            "Jayathilaka et al., Performance monitoring and root cause analysis for cloud-hosted web applications, WWW 2017",
        ],
        &[O::RandomDelay],
    ),
    fault(
        "RR-16",
        RR,
        Delay,
        [
            "a service gets slower and slower and ends with an error",
            "an SQL error of a dependency makes it repeat its request without end",
            SURVEY,
        ],
        &[O::Abort],
    ),
    fault(
        "RR-17",
        RR,
        Resource,
        [
            "the application server uses more and more memory, and the web server in front logs errors",
            "a leak in the application",
            "Arora et al., Replay without recording of production bugs for service oriented applications, ASE 2018",
        ],
        &[O::MemoryLeak],
    ),
    fault(
        "RR-18",
        RR,
        Resource,
        [
            "memory grows with every request after an upgrade of the language",
            "the router keeps the context of each request in a global table that nothing empties any more",
            "https://github.com/nytimes/gizmo/issues/74",
        ],
        &[O::MemoryLeak],
    ),
    fault(
        "RR-19",
        RR,
        Resource,
        [
            "memory of a Redis master grows under concurrent requests",
            "a leak in the master's handling of clients",
            "https://github.com/antirez/redis/pull/417",
        ],
        &[O::MemoryLeak],
    ),
    fault(
        "RR-20",
        RR,
        Resource,
        [
            "looking up one event by its id exhausts memory",
            "the query loads all events, because the store has no index on the id",
            "https://github.com/sitewhere/sitewhere/issues/655",
        ],
        &[O::LessMemory],
    ),
    fault(
        "RR-21",
        RR,
        Output,
        [
            "messages are shown in the wrong order",
            "nothing controls the order in which asynchronous messages arrive",
            SURVEY,
        ],
        &[O::OutOfOrder],
    ),
    fault(
        "RR-22",
        RR,
        Output,
        [
            "a report shows some of its data in the wrong place",
            "answers to several requests for one report come back in another order than assumed",
            SURVEY,
        ],
        &[O::OutOfOrder],
    ),
    fault(
        "RR-23",
        RR,
        Output,
        [
            "a page preselects another entry than it should",
            "one service does not pass a key of its request on to the next",
            SURVEY,
        ],
        &[O::IncompleteResponse],
    ),
    fault(
        "RR-24",
        RR,
        Output,
        [
            "a parts list is wrong after it was updated",
            "several services update it in an order that nobody planned",
            SURVEY,
        ],
        &[O::OutOfOrder],
    ),
    fault(
        "RR-25",
        RR,
        Output,
        [
            "some levels are missing in a list on the administration page",
            "the page size is left out of the request, so only the first page comes back",
            "https://github.com/DivanteLtd/open-loyalty/issues/78",
        ],
        &[O::IncompleteResponse],
    ),
];
