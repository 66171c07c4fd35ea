//! Whole imports: many short cases, one realistic project, and texts nobody would write.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::application::Application;

mod manifests;
mod mounts;
mod ports;
mod projects;
mod services;

/// Imports files; the first line of a text may not name a file. `loadable` are files it may ask for.
fn import_with(
    files: &[(&str, &str)],
    loadable: &[(&str, &str)],
    environment: &[(&str, &str)],
    profiles: &[&str],
) -> Result<Imported, ImportError> {
    let files: Vec<(String, String)> =
        files.iter().map(|(n, t)| ((*n).to_owned(), (*t).to_owned())).collect();
    let environment: BTreeMap<String, String> =
        environment.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    let profiles: Vec<String> = profiles.iter().map(|p| (*p).to_owned()).collect();
    let load = |path: &str| {
        let found = loadable.iter().find(|(name, _)| *name == path);
        found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| "no such file".to_owned())
    };
    let imported = from_compose(&ComposeInput {
        name: "project",
        files: &files,
        environment: &environment,
        env_files: &[(".env".to_owned(), "FROM_DOTENV=dotted\nSET=overruled\n".to_owned())],
        keep_tracing: false,
        profiles: &profiles,
        load: &load,
        look: &|_| PathKind::File,
        folder: "/srv/project",
        parents: &[],
    })?;
    reads_back(&imported);
    Ok(imported)
}

/// What comes out is always an application file that our own parser takes.
fn reads_back(imported: &Imported) {
    let text = imported.application.to_yaml();
    if let Err(error) = Application::read_alone(&text, "faultscope.yaml") {
        panic!("{error}\n{text}");
    }
}

/// The warnings about a project.
fn warnings(yaml: &str) -> String {
    let imported = import_with(&[("compose.yaml", yaml)], &[], &[], &[]).unwrap();
    imported.warnings.join("\n")
}

#[test]
fn procfiles() {
    let text = "# comment\nweb: bundle exec rails s -p $PORT\n\nworker:  python3 worker.py --queue 'a b'\nclock: A=1 node clock.js\nlog: tail -f x | cat\n";
    let imported = from_procfile("app", "Procfile", text, Some("KEY=value\n")).unwrap();
    reads_back(&imported);
    insta::assert_snapshot!(imported.application.to_yaml(), @r##"
    # Made by `faultscope init` from Procfile.
    # Each process has its port in PORT, as foreman gives them.
    name: app
    services:
      web:
        command: ["sh", "-c", "exec bundle exec rails s -p $PORT"]
        ports: [5000]
        env:
          KEY: "value"
          PORT: "5000"
      worker:
        command: ["python3", "worker.py", "--queue", "a b"]
        ports: [5100]
        env:
          KEY: "value"
          PORT: "5100"
        ready: { command: ["true"] }
      clock:
        command: ["sh", "-c", "A=1 node clock.js"]
        ports: [5200]
        env:
          KEY: "value"
          PORT: "5200"
        ready: { command: ["true"] }
      log:
        command: ["sh", "-c", "tail -f x | cat"]
        ports: [5300]
        env:
          KEY: "value"
          PORT: "5300"
        ready: { command: ["true"] }
    external: []
    tests: []
    "##);
    for (text, expected) in [
        ("", "Procfile: no process is given"),
        ("web", "Procfile:1: a line reads `name: command`"),
        ("\nweb:", "Procfile:2: `web` has no command"),
        ("a: b\na: c", "Procfile:2: `a` is given twice"),
        ("a b: c", "Procfile:1: `a b` cannot name a service"),
        ("a: 'b", "Procfile:1: a single quote is not closed"),
    ] {
        assert_eq!(from_procfile("app", "Procfile", text, None).unwrap_err().to_string(), expected, "{text}");
    }
    let own = "a: PORT=8080 python3 a.py\nb: redis-server --port 6379\nc: d -p=99\ne: f --port x";
    let own = from_procfile("app", "Procfile", own, None).unwrap();
    let ports: Vec<_> = own.application.services.values().map(|s| s.env["PORT"].clone()).collect();
    assert_eq!(ports, ["8080", "6379", "99", "5300"], "a port that a command names is its port");
    assert_eq!(own.warnings.len(), 1, "{:?}", own.warnings);
    let moved = from_procfile("app", "Procfile", "a: b\nc: d", Some("PORT=7000")).unwrap();
    assert_eq!(moved.application.services["c"].env["PORT"], "7100");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_text_panics(text in "\\PC{0,200}", other in "[a-z:\\[\\]{}'\"$&*!<>|\\-# \n]{0,200}") {
        for text in [&text, &other] {
            let _ = import_with(&[("f", text)], &[], &[], &[]);
            let _ = from_procfile("n", "f", text, Some(text));
            let files = [("f".to_owned(), text.clone())];
            let _ = from_manifests(&ManifestInput { name: "n", files: &files, keep_tracing: true });
        }
    }

    #[test]
    fn no_service_panics_and_all_read_back(
        keys in proptest::collection::btree_map(
            prop::sample::select(vec![
                "image", "command", "entrypoint", "ports", "expose", "volumes", "environment", "env_file",
                "working_dir", "build", "depends_on", "healthcheck", "deploy", "extends", "networks", "links",
                "mem_limit", "scale", "stop_grace_period", "hostname", "extra_hosts", "profiles",
            ]),
            prop::sample::select(vec![
                "x", "[x]", "[]", "{}", "{x: y}", "80", "[80]", "['81:80']", "'/app'", "['./x:/app/x']", "[{target: 80}]",
                "{test: x}", "{test: [CMD, curl, localhost:9/x]}", "{replicas: 3}", "!reset null", "!override [y]", "",
                "'\"\\\\'", "[[x]]", "{x: {y: z}}", "1s", "[x=1, y]", "'${A:-b}'", "-1", "é", "[b, 'b:c']", "../y",
            ]),
            0..8,
        ),
        over in prop::sample::select(vec!["x", "[x]", "{x: y}", "!reset []", "80"]),
    ) {
        let body: String = keys.iter().map(|(key, value)| format!("    {key}: {value}\n")).collect();
        let file = format!("services:\n  a:\n{body}  b:\n    image: i\n    depends_on: [a]\n");
        let first = keys.keys().next().copied().unwrap_or("image");
        let second = format!("services:\n  a:\n    {first}: {over}\n");
        let _ = import_with(&[("f", &file)], &[("x", "X=1")], &[], &[]);
        let _ = import_with(&[("f", &file), ("g", &second)], &[("x", "X=1")], &[], &[]);
    }
}

#[test]
fn a_realistic_project() {
    let compose = include_str!("testdata/shop.yaml");
    let imported = import_with(
        &[("compose.yaml", compose), ("compose.prod.yaml", include_str!("testdata/shop.prod.yaml"))],
        &[("./order.env", "LOG_LEVEL=info\n"), ("order.env", "LOG_LEVEL=info\n")],
        &[("REGISTRY", "registry.example")],
        &[],
    )
    .unwrap();
    insta::assert_snapshot!(imported.application.to_yaml(), @r##"
    # Made by `faultscope init` from compose.yaml, compose.prod.yaml.
    # Replicas and limits of the running system are under `failing`: the simplest circumstance
    # has one instance of each service, without limits.
    name: shop
    services:
      gateway:
        image: "nginx:1.27"
        ports: [80]
        publish: { 80: 8080 }
        after: [order, catalogue]
        mounts:
          - { from: "./gateway/nginx.conf", to: "/etc/nginx/nginx.conf", readonly: true }
      order:
        command: ["python3", "-m", "order", "--port", "8081"]
        image: "registry.example/order:latest"
        build: "./order"
        directory: "order"
        working_dir: "/app"
        ports: [8081]
        env:
          DATABASE_URL: "postgres://shop:${PASSWORD}@db:5432/shop"
          LOG_LEVEL: "info"
          OTEL_EXPORTER: "none"
          PYTHONUNBUFFERED: "1"
          STOCK_URL: "http://stock:8082"
        ready: { http: "/health", within: 30s }
        after: [db, queue]
        mounts:
          - { volume: orders, to: "/app/data" }
      stock:
        entrypoint: ["python3"]
        command: ["stock.py"]
        build: "./stock"
        directory: "stock"
        aliases: [inventory]
        ports: [8082]
        env:
          OTEL_EXPORTER: "none"
          PYTHONUNBUFFERED: "1"
        stop_within: 3s
      catalogue:
        command: ["node", "server.js"]
        build: "./catalogue"
        directory: "catalogue"
        ports: [3000]
        env:
          CACHE: "redis://cache:6379"
          PORT: "3000"
        after: [cache]
      db:
        image: "postgres:17"
        ports: [5432]
        env:
          POSTGRES_PASSWORD: "secret"
        ready: { command: ["sh", "-c", "pg_isready -U postgres"], within: 30s }
        mounts:
          - { volume: db, to: "/var/lib/postgresql/data" }
      cache:
        image: "redis:7"
        aliases: [redis]
        ports: [6379]
        ready: { command: ["sh", "-c", "redis-cli ping || exit 1"], within: 10s }
      queue:
        image: "rabbitmq:4"
        aliases: [rabbit]
        ports: [5672, 15672]
        publish: { 5672: 5672, 15672: 15672 }
      migrate:
        command: ["python3", "-m", "order.migrate"]
        build: "./order"
        directory: "order"
        after: [db]
    external: []
    tests: []
    failing:
      instances: { order: 4, stock: 2 }
      config:
        order: { cpu: 0.5, memory: 256MiB }
        stock: { memory: 64MiB, pids: 100 }
    "##);
    insta::assert_snapshot!(imported.warnings.join("\n"), @r##"
    left out because their profiles are not chosen: `debug` (`--profile debug` adds them)
    4 services (`gateway`, `db`, `cache`, `queue`): no `command` is known: use `--platform docker`, or add one to run without containers
    service `order`: waits until `migrate` has ended; make that the `setup` of the application
    "##);
}
