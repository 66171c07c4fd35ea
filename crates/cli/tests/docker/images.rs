//! Services that come as images, as they are: fixed ports, host names, tests in a container of their own.

use faultscope_testkit::{Faultscope, cells};

use crate::{IMAGE, tool_with};

fn shop(tests: &str) -> Faultscope {
    let text = format!(
        "name: shop\nservices:\n  \
         order: {{ image: {IMAGE}, command: [/faultscope-launch, service, \"8080\"], ports: [8080], \
         env: {{ PEER: \"stock:8080\" }}, ready: {{ http: /health }}, calls: [stock] }}\n  \
         stock: {{ image: {IMAGE}, command: [/faultscope-launch, service, \"8080\"], ports: [8080], ready: {{ http: /health }} }}\n\
         tests:\n{tests}"
    );
    tool_with(&cells().application(&text))
}

#[test]
#[ignore = "needs a Docker engine: ./test.sh docker"]
fn call_one_another_by_name_on_the_same_port() {
    let tool = shop(
        "  - { name: by name, run: [sh, -c, \"wget -qO- http://order:8080/peer/name\"] }\n  \
         - { name: on localhost, run: [wget, -qO-, \"http://localhost:8080/name\"] }\n  \
         - { name: files, run: [cat, cells.yaml] }\n",
    );
    let run = tool.tested(["--platform", "docker"], 0);
    assert_eq!((run.output("by name"), run.output("on localhost")), ("stock-1", "order-1"));
    assert!(run.output("files").contains("services:"), "tests see the application's files");
    let callers: Vec<_> =
        run.spans_to("stock").iter().map(|s| s["caller"].as_str().unwrap().to_owned()).collect();
    assert_eq!(callers, ["order-1"], "{:?}", run.calls());
    let callers: Vec<_> =
        run.spans_to("order").iter().map(|s| s["caller"].as_str().unwrap().to_owned()).collect();
    assert_eq!(callers, ["test-1", "test-1"], "{:?}", run.calls());
}

#[test]
#[ignore = "needs a Docker engine: ./test.sh docker"]
fn nothing_leads_out() {
    // Neither a name of the world nor an address beyond the slot's own network.
    let tool = shop(
        "  - { name: names, run: [\"${faultscope}\", fetch, \"http://example.com/\"], within: 20s }\n  \
         - { name: addresses, run: [\"${faultscope}\", fetch, \"http://198.51.100.1/\"], within: 3s }\n",
    );
    let run = tool.tested(["--platform", "docker"], 1);
    assert_eq!(run.failed(), ["names", "addresses"]);
    assert!(run.output("names").contains("lookup"), "{}", run.output("names"));
}

#[test]
#[ignore = "needs a Docker engine: ./test.sh docker"]
fn a_missing_image_is_named() {
    let tool = tool_with(&cells().application(
        "name: shop\nservices:\n  order: { image: no-such-image, ports: [8080] }\ntests:\n  - { name: a, run: [sh] }\n",
    ));
    let output = tool.run(["test", "--platform", "docker"]).expect(3);
    assert!(
        output.stderr.contains("order-1") && output.stderr.contains("no-such-image"),
        "{}",
        output.stderr
    );
}
