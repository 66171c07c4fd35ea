//! `faultscope init`: from Compose files and Procfiles to a file that passes `check`.

use insta::assert_snapshot;

use crate::tool;

const COMPOSE: &str = r#"
services:
  web:
    build: .
    command: ["python3", "web.py"]
    ports: ["8080:80"]
    environment:
      BACKEND: http://api:${API_PORT:-5000}
    env_file: [web.env]
    depends_on: [api]
  api:
    image: example/api:1
    command: python3 api.py --port 5000
    expose: ["5000"]
    deploy: { resources: { limits: { memory: 64M } } }
  debug:
    image: example/debug
    profiles: [dev]
    command: ["sleep", "infinity"]
"#;

const OVERRIDE: &str = r#"
services:
  api:
    environment: { LEVEL: high }
    healthcheck: { test: ["CMD", "curl", "-f", "http://localhost:5000/health"] }
"#;

const MORE: &str = r#"
services:
  web:
    environment: { COLOUR: blue }
  cache:
    image: redis:7
    command: ["redis-server"]
    ports: ["6379"]
"#;

fn compose() -> faultscope_testkit::Faultscope {
    let tool = tool();
    tool.write("compose.yaml", COMPOSE)
        .write("compose.override.yaml", OVERRIDE)
        .write("more.yaml", MORE)
        .write(".env", "API_PORT=5000\n")
        .write("web.env", "# of the web\nSECRET=\"a b\"\nCOLOUR=red\n");
    tool
}

#[test]
fn from_compose_with_its_override() {
    let tool = compose();
    assert_snapshot!(tool.run(["init"]).exact(), @"
    exit code 0
    --- stdout
    wrote faultscope.yaml with 2 services
    next: add tests to it, then `faultscope check faultscope.yaml`
    --- stderr
    warning: left out because their profiles are not chosen: `debug` (`--profile dev` adds them)
    ");
    assert_snapshot!(tool.read("faultscope.yaml"), @r#"
    # Made by `faultscope init` from compose.yaml, compose.override.yaml.
    # Replicas and limits of the running system are under `failing`: the simplest circumstance
    # has one instance of each service, without limits.
    name: app
    services:
      web:
        command: ["python3", "web.py"]
        build: "."
        ports: [80]
        publish: { 80: 8080 }
        env:
          BACKEND: "http://api:5000"
          COLOUR: "red"
          SECRET: "a b"
        after: [api]
      api:
        command: ["python3", "api.py", "--port", "5000"]
        image: "example/api:1"
        ports: [5000]
        env:
          LEVEL: "high"
        ready: { http: "/health", within: 90s }
    external: []
    tests: []
    failing:
      config:
        api: { memory: 64MiB }
    "#);
    assert_snapshot!(tool.run(["check"]).exact(), @"
    exit code 0
    --- stdout
    app: 2 services, 0 tests, 1 delta between simplest and failing
    rank  dimension      delta              from   to     cost
    1     configuration  config api.memory  unset  64MiB  60ms
    ");
}

#[test]
fn from_several_files_and_a_profile() {
    let tool = compose();
    let files = ["-f", "compose.yaml", "-f", "compose.override.yaml", "-f", "more.yaml"];
    let words = ["init"].into_iter().chain(files).chain(["--profile", "dev", "-o", "app.yaml"]);
    assert_snapshot!(tool.run(words).exact(), @"
    exit code 0
    --- stdout
    wrote app.yaml with 4 services
    next: add tests to it, then `faultscope check app.yaml`
    ");
    assert_snapshot!(tool.read("app.yaml"), @r#"
    # Made by `faultscope init` from compose.yaml, compose.override.yaml, more.yaml.
    # Replicas and limits of the running system are under `failing`: the simplest circumstance
    # has one instance of each service, without limits.
    name: app
    services:
      web:
        command: ["python3", "web.py"]
        build: "."
        ports: [80]
        publish: { 80: 8080 }
        env:
          BACKEND: "http://api:5000"
          COLOUR: "blue"
          SECRET: "a b"
        after: [api]
      api:
        command: ["python3", "api.py", "--port", "5000"]
        image: "example/api:1"
        ports: [5000]
        env:
          LEVEL: "high"
        ready: { http: "/health", within: 90s }
      debug:
        command: ["sleep", "infinity"]
        image: "example/debug"
      cache:
        command: ["redis-server"]
        image: "redis:7"
        ports: [6379]
    external: []
    tests: []
    failing:
      config:
        api: { memory: 64MiB }
    "#);
    tool.run(["check", "app.yaml"]).expect(0);
}

#[test]
fn printed_or_as_json() {
    let tool = compose();
    let printed = tool.run(["init", "-o", "-"]).expect(0).stdout;
    let json = tool.json(["init"], 0);
    assert_eq!((json["file"].as_str(), json["services"].as_u64()), (Some("faultscope.yaml"), Some(2)));
    assert_eq!(tool.read("faultscope.yaml").trim_end(), printed.trim_end());
}

#[test]
fn refuses_to_overwrite() {
    let tool = compose();
    tool.write("faultscope.yaml", "mine");
    assert_snapshot!(tool.run(["init"]).exact(), @"
    exit code 2
    --- stderr
    warning: left out because their profiles are not chosen: `debug` (`--profile dev` adds them)
    error: cannot write faultscope.yaml
      because: File exists (os error 17)

    hint: `--force` overwrites it, `-o FILE` writes to another one
    ");
    assert_eq!(tool.read("faultscope.yaml"), "mine");
    tool.run(["init", "--force"]).expect(0);
    assert_ne!(tool.read("faultscope.yaml"), "mine");
}

#[test]
fn from_a_procfile_to_a_passing_test() {
    let tool = tool();
    tool.write(
        "Procfile",
        "# ours\nweb: python3 -m http.server $PORT --directory pages\nclock: exec sleep 1000\n",
    )
    .write(".env", "GREETING=hello\n")
    .write("pages/index.html", "front page");
    assert_snapshot!(tool.run(["init"]).exact(), @"
    exit code 0
    --- stdout
    wrote faultscope.yaml with 2 services
    next: add tests to it, then `faultscope check faultscope.yaml`
    --- stderr
    warning: service `clock`: its command does not mention PORT; if it never listens on 5100, remove `ports`
    ");
    let written = tool.read("faultscope.yaml");
    assert_snapshot!(written, @r#"
    # Made by `faultscope init` from Procfile.
    # Each process has its port in PORT, as foreman gives them.
    name: app
    services:
      web:
        command: ["sh", "-c", "exec python3 -m http.server $PORT --directory pages"]
        ports: [5000]
        env:
          GREETING: "hello"
          PORT: "5000"
      clock:
        command: ["sleep", "1000"]
        ports: [5100]
        env:
          GREETING: "hello"
          PORT: "5100"
        ready: { command: ["true"] }
    external: []
    tests: []
    "#);
    assert_snapshot!(tool.run(["check"]).exact(), @"
    exit code 0
    --- stdout
    app: 2 services, 0 tests, 0 deltas between simplest and failing
    no `failing:` circumstance yet, so there is nothing to reduce
    ");
    let test = "tests: [ { name: page, http: { get: \"http://web:5000/\", expect: { body: front } } } ]";
    tool.write("faultscope.yaml", &written.replace("tests: []", test));
    let run = tool.tested([] as [&str; 0], 0);
    assert_eq!(run.calls(), ["test-1 -> web-1 GET / http1 200 root"]);
}

#[test]
fn nothing_to_start_from() {
    assert_snapshot!(tool().run(["init"]).exact(), @"
    exit code 2
    --- stderr
    error: there is no Compose file and no Procfile here

    hint: name one with `-f FILE`, or Kubernetes manifests with `-f FOLDER`
    ");
}

#[test]
fn mistakes_in_compose_files() {
    let tool = tool();
    tool.write("compose.yaml", "services:\n  web:\n    image: x\n    prots: [80]\n");
    assert_snapshot!(tool.run(["init", "-o", "-"]).exact(), @r#"
    exit code 0
    --- stdout
    # Made by `faultscope init` from compose.yaml.
    name: app
    services:
      web:
        image: "x"
    external: []
    tests: []
    --- stderr
    warning: service `web`: no `command` is known: use `--platform docker`, or add one to run without containers
    warning: service `web`: not keys of Compose: prots
    "#);
    tool.write("compose.yaml", "services:\n  web: { image: x, env_file: nowhere.env }\n");
    assert_snapshot!(tool.run(["init", "-o", "-"]).exact(), @"
    exit code 3
    --- stderr
    error: compose.yaml:2: cannot read `nowhere.env`: No such file or directory (os error 2)
    ");
    tool.write("compose.yaml", "services:\n  web: { image: \"${NAME:?must be set}\" }\n");
    assert_snapshot!(tool.run(["init", "-o", "-"]).exact(), @"
    exit code 3
    --- stderr
    error: compose.yaml:2: variable `NAME` is not set: must be set
    ");
    assert_snapshot!(tool.run(["init", "-f", "nowhere.yaml"]).exact(), @"
    exit code 3
    --- stderr
    error: cannot read nowhere.yaml
      because: No such file or directory (os error 2)
    ");
}

#[test]
fn from_a_folder_of_manifests() {
    let tool = tool();
    let deployment = |name: &str, env: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{ name: {name} }}\nspec:\n  template:\n    \
             metadata: {{ labels: {{ app: {name} }} }}\n    spec:\n      containers:\n        \
             - {{ name: server, image: \"shop/{name}\", ports: [{{ containerPort: 8080 }}], env: [{env}] }}\n---\n\
             apiVersion: v1\nkind: Service\nmetadata: {{ name: {name} }}\n\
             spec: {{ selector: {{ app: {name} }}, ports: [{{ port: 80, targetPort: 8080 }}] }}\n"
        )
    };
    tool.write("k8s/api.yaml", &deployment("api", ""))
        .write("k8s/web.yaml", &deployment("web", "{ name: API, value: \"http://api/v1\" }"))
        .write("k8s/notes.txt", "not read");
    assert_snapshot!(tool.run(["init", "-f", "k8s"]).exact(), @"
    exit code 0
    --- stdout
    wrote faultscope.yaml with 2 services
    next: add tests to it, then `faultscope check faultscope.yaml`
    --- stderr
    warning: 2 services (`api`, `web`): no `command` is known: use `--platform docker`, or add one to run without containers
    warning: service `api`: in the cluster port 80 leads to 8080; addresses in `web` were changed
    warning: service `web`: in the cluster port 80 leads to 8080; call it at its own port
    ");
    assert_snapshot!(tool.read("faultscope.yaml"), @r#"
    # Made by `faultscope init` from k8s/api.yaml, k8s/web.yaml.
    name: k8s
    services:
      api:
        image: "shop/api"
        ports: [8080]
      web:
        image: "shop/web"
        ports: [8080]
        env:
          API: "http://api:8080/v1"
    external: []
    tests: []
    "#);
    tool.run(["check"]).expect(0);
}

#[test]
fn a_file_outside_the_sources() {
    let tool = tool();
    tool.write("app/pages/index.html", "front page").write(
        "tests/faultscope.yaml",
        "directory: ../app\nservices: { web: { command: python3 -m http.server 5000, directory: pages, ports: [5000] } }\n\
         tests: [ { name: page, http: { get: \"http://web:5000/\", expect: { body: front } } } ]\n",
    );
    tool.run(["test", "tests"]).expect(0);
    let shown = tool.run(["runs", "show", "--folder", "tests"]).expect(0).stdout;
    assert!(shown.contains("GET /"), "{shown}");
}

#[test]
fn mounts_of_a_project_in_another_folder() {
    let tool = tool();
    tool.write(
        "deploy/compose.yaml",
        "services:\n  web:\n    image: nginx\n    entrypoint: [nginx]\n    command: [-g, daemon off;]\n    user: '101'\n    \
         volumes: ['./web.conf:/etc/nginx/nginx.conf:ro', '../site:/site', './data:/data', '/var/run/docker.sock:/s']\n",
    )
    .write("deploy/web.conf", "events {}\n")
    .write("site/index.html", "hi\n")
    .write(".git/HEAD", "ref: refs/heads/main\n");
    assert_snapshot!(tool.run(["init", "-f", "deploy/compose.yaml"]).exact(), @"
    exit code 0
    --- stdout
    wrote faultscope.yaml with 1 service
    next: add tests to it, then `faultscope check faultscope.yaml`
    --- stderr
    warning: service `web`: there is no `data`: a fresh volume takes its place at `/data`
    warning: service `web`: `/var/run/docker.sock` is a socket of this machine, which no trial shares; it is left out
    ");
    assert_snapshot!(tool.read("faultscope.yaml"), @r#"
    # Made by `faultscope init` from deploy/compose.yaml.
    name: deploy
    services:
      web:
        entrypoint: ["nginx"]
        command: ["-g", "daemon off;"]
        image: "nginx"
        directory: "deploy"
        user: "101"
        ports: [80] # 80: usual for image nginx
        mounts:
          - { from: "./deploy/web.conf", to: "/etc/nginx/nginx.conf", readonly: true }
          - { from: "./site", to: "/site" }
          - { volume: data, to: "/data" }
    external: []
    tests: []
    "#);
    // A file in another folder names the one that its paths are relative to.
    tool.write("other/faultscope.yaml", "");
    assert_eq!(
        tool.run(["init", "-f", "deploy/compose.yaml", "-o", "other/faultscope.yaml", "--force"]).code,
        Some(0)
    );
    assert!(tool.read("other/faultscope.yaml").contains("directory: \"..\"\n"));
    assert_eq!(tool.run(["check", "other/faultscope.yaml", "--platform", "docker"]).code, Some(0));
}
