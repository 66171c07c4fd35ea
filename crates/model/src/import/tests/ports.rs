//! Ports that no key declares, and services that collect traces.

use super::import_with;

/// The lines about ports and variables of a project, and its warnings about missing ports.
fn ports(yaml: &str, loadable: &[(&str, &str)]) -> String {
    let imported = import_with(&[("compose.yaml", yaml)], loadable, &[], &[]).unwrap();
    let text = imported.application.to_yaml();
    let is_shown =
        |line: &&str| line.contains("ports:") || (line.starts_with("  ") && !line.starts_with("    "));
    let warnings = imported.warnings.iter().filter(|w| w.contains("port is known"));
    let lines = text.lines().filter(is_shown).map(str::to_owned);
    lines.chain(warnings.cloned()).collect::<Vec<_>>().join("\n")
}

#[test]
fn services_without_ports_are_reachable() {
    let yaml = "\
services:
  web: {build: ./web, environment: {API_URL: 'http://api:3000', CACHE_HOST: cache}, depends_on: [api, mailer]}
  api: {build: {context: ., dockerfile: api/Dockerfile, target: run, args: {P: '4000'}}, environment: {DB: 'postgres://db/x'}}
  admin: {build: {context: ., dockerfile_inline: \"FROM scratch\\nEXPOSE 9999\\n\"}}
  proxy: {image: 'nginx:1', volumes: ['./nginx.conf:/etc/nginx/nginx.conf']}
  stats: {image: corp/stats}
  mailer: {image: corp/mailer}
  worker: {image: corp/worker}
  cache: {image: 'redis:7'}
  db: {image: 'postgres:17'}
";
    let loadable = [
        ("web/Dockerfile", "FROM node:20\nCMD [\"serve\", \"--port\", \"8088\"]\n"),
        ("api/Dockerfile", "FROM x AS run\nARG P\nEXPOSE $P\nFROM y\nEXPOSE 1\n"),
        ("nginx.conf", "location / { proxy_pass http://stats:7070; }"),
    ];
    insta::assert_snapshot!(ports(yaml, &loadable), @"
      web:
        ports: [8088] # 8088: its command
      api:
        ports: [3000] # 3000: called by web (API_URL)
      admin:
        ports: [9999] # 9999: EXPOSE in dockerfile_inline
      proxy:
        ports: [80] # 80: usual for image nginx:1
      stats:
        ports: [7070] # 7070: called by proxy (nginx.conf)
      mailer:
      worker:
      cache:
        ports: [6379] # 6379: usual for image redis:7
      db:
        ports: [5432] # 5432: called by api (DB)
    service `mailer`: no port is known, but `web` may call it; add `ports`
    ");
}

#[test]
fn the_built_in_collector_takes_the_place_of_others() {
    let yaml = "\
services:
  web: {command: web, environment: {ZIPKIN_URL: 'http://zipkin:9411/api/v2/spans', EXPORTER: zipkin}, depends_on: [zipkin]}
  api: {command: [api, '--otlp=otel:4317'], environment: {OTEL_HOST: otel}}
  zipkin: {image: openzipkin/zipkin, ports: ['9411:9411']}
  otel: {image: 'otel/opentelemetry-collector:1', volumes: ['./otel.yaml:/etc/otel.yaml']}
  store: {image: 'jaegertracing/all-in-one:1'}
";
    let loadable = [("otel.yaml", "exporters: {otlp: {endpoint: 'store:4317'}}")];
    let imported = import_with(&[("compose.yaml", yaml)], &loadable, &[], &[]).unwrap();
    insta::assert_snapshot!(imported.application.to_yaml(), @r#"
    # Made by `faultscope init` from compose.yaml.
    # zipkin, otel, store are left out: services report to the built-in collector, faultscope-collector.
    name: project
    services:
      web:
        command: ["web"]
        env:
          EXPORTER: "zipkin"
          ZIPKIN_URL: "http://faultscope-collector:9411/api/v2/spans"
      api:
        command: ["api", "--otlp=faultscope-collector:4317"]
        env:
          OTEL_HOST: "faultscope-collector"
    external: []
    tests: []
    "#);
    insta::assert_snapshot!(imported.warnings.join("\n"), @"`zipkin`, `otel`, `store` are left out: services report to the built-in collector, `faultscope-collector`; `--keep-tracing` keeps them");
    // A protocol that the built-in collector does not speak keeps it.
    let thrift = "services:\n  web: {command: web, environment: {J: 'http://jaeger:14268/api/traces'}}\n  \
                  jaeger: {image: jaegertracing/all-in-one}\n";
    let imported = import_with(&[("compose.yaml", thrift)], &[], &[], &[]).unwrap();
    assert!(imported.application.services.contains_key("jaeger"));
    insta::assert_snapshot!(imported.warnings.join("\n"), @"
    service `jaeger`: no `command` is known: use `--platform docker`, or add one to run without containers
    service `jaeger`: Jaeger could be replaced by the built-in collector, but `web` uses it in another way; let them report to `http://faultscope-collector:4318` (OTLP) or `:9411` (Zipkin) and remove it
    ");
}

#[test]
fn missing_variables_point_at_the_example() {
    let files = [("compose.yaml".to_owned(), "services: {a: {command: 'x $ONE $TWO'}}".to_owned())];
    let load = |path: &str| if path == ".env.example" { Ok(String::new()) } else { Err("none".to_owned()) };
    let imported = super::from_compose(&super::ComposeInput {
        name: "n",
        files: &files,
        environment: &std::collections::BTreeMap::new(),
        env_files: &[],
        keep_tracing: false,
        profiles: &[],
        load: &load,
        look: &|_| super::PathKind::File,
        folder: "/srv/project",
        parents: &[],
    })
    .unwrap();
    assert_eq!(
        imported.warnings,
        ["2 variables are not set and empty in the result: `ONE`, `TWO`; `.env.example` may have values: \
          copy it to `.env`, or add `--env-file .env.example`"]
    );
}
