use super::*;

fn service(image: &str, env: &[(&str, &str)], command: &[&str], ports: &[u16]) -> ImportedService {
    ImportedService {
        image: (!image.is_empty()).then(|| image.to_owned()),
        env: env.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        command: command.iter().map(|w| (*w).to_owned()).collect(),
        ports: ports.iter().map(|p| ImportedPort::Plain(*p)).collect(),
        ..ImportedService::default()
    }
}

/// The ports and origins of service `a`, called by `b` if at all.
fn inferred(a: ImportedService, b: ImportedService, clues: Clues) -> String {
    let mut services = IndexMap::from([("a".to_owned(), a), ("b".to_owned(), b)]);
    let unreachable = infer_ports(&mut services, &BTreeMap::from([("a".to_owned(), clues)]));
    let a = &services["a"];
    let ports = a.ports.iter().map(|port| {
        let origin = a.port_origins.iter().find(|(known, _)| *known == port.number());
        match origin {
            Some((port, origin)) => format!("{port} {origin}"),
            None => port.number().to_string(),
        }
    });
    let left = unreachable.iter().map(|u| format!("{} needed by {}", u.service, u.needed_by.join(" ")));
    ports.chain(left).collect::<Vec<_>>().join("; ")
}

#[test]
fn where_ports_come_from() {
    let quiet = || service("x", &[], &[], &[]);
    for (a, b, expected) in [
        (quiet(), quiet(), ""),
        (quiet(), service("x", &[("A_URL", "http://a:81/x")], &[], &[]), "81 called by b (A_URL)"),
        (quiet(), service("x", &[("A_URL", "http://a")], &[], &[]), "80 called by b (A_URL)"),
        (quiet(), service("x", &[], &["run", "--to", "a:81"], &[]), "81 called by b (command)"),
        (
            quiet(),
            service("x", &[("A_HOST", "a"), ("A_PORT", "82")], &[], &[]),
            "82 called by b (A_HOST, A_PORT)",
        ),
        (quiet(), service("x", &[("A_HOST", "a")], &[], &[]), "a needed by b"),
        (quiet(), service("x", &[("LEVEL", "a")], &[], &[]), ""),
        (service("x", &[("PORT", "83")], &[], &[]), quiet(), "83 its variable PORT"),
        (
            service("x", &[("ASPNETCORE_URLS", "http://+:84;https://+:85")], &[], &[]),
            quiet(),
            "84 its variable ASPNETCORE_URLS; 85 its variable ASPNETCORE_URLS",
        ),
        (service("x", &[("PORT", "83")], &[], &[90]), quiet(), "90"),
        (service("x", &[], &[], &[90]), service("x", &[("T", "a:91")], &[], &[]), "90; 91 called by b (T)"),
        (service("redis:7", &[], &[], &[]), quiet(), "6379 usual for image redis:7"),
        (service("rabbitmq:4", &[], &[], &[15672]), quiet(), "15672; 5672 usual for image rabbitmq:4"),
        (service("redis", &[], &["redis-server", "--port", "7000"], &[]), quiet(), "7000 its command"),
        (service("nginx", &[], &[], &[8080]), quiet(), "8080"),
        (
            service("mongo", &[], &[], &[]),
            service("x", &[("M", "mongodb://a/x")], &[], &[]),
            "27017 called by b (M)",
        ),
    ] {
        assert_eq!(inferred(a, b, Clues::default()), expected);
    }
}

#[test]
fn dockerfiles_count_when_nothing_else_does() {
    let clues = || {
        let text = "FROM nginx:1\nEXPOSE 3000\nENV B_URL=http://b:99\n";
        let dockerfile = Dockerfile::parse(text, &BTreeMap::new(), None).unwrap();
        Clues { dockerfile: Some(("./a/Dockerfile".to_owned(), dockerfile)), ..Clues::default() }
    };
    let quiet = || service("", &[], &[], &[]);
    assert_eq!(inferred(quiet(), quiet(), clues()), "3000 EXPOSE in ./a/Dockerfile");
    let caller = service("", &[("A", "a:4000")], &[], &[]);
    assert_eq!(inferred(quiet(), caller, clues()), "4000 called by b (A)");
    let mut services = IndexMap::from([("a".to_owned(), quiet()), ("b".to_owned(), quiet())]);
    infer_ports(&mut services, &BTreeMap::from([("a".to_owned(), clues())]));
    assert_eq!(services["b"].ports, [ImportedPort::Plain(99)]);
}

#[test]
fn labels_files_and_needs() {
    let mut clues = Clues::default();
    clues.labels.insert("traefik.http.services.a.loadbalancer.server.port".to_owned(), "85".to_owned());
    let place = "nginx.conf".to_owned();
    let text = "proxy_pass http://b:3000/;".to_owned();
    clues.texts.push(Text { place, text, style: Style::Value });
    clues.needs.insert("c".to_owned());
    let quiet = || service("x", &[], &[], &[]);
    let names = ["a", "b", "c"].map(str::to_owned);
    let mut services: IndexMap<String, ImportedService> =
        names.iter().map(|n| (n.clone(), quiet())).collect();
    let left = infer_ports(&mut services, &BTreeMap::from([("a".to_owned(), clues)]));
    assert_eq!(services["a"].ports, [ImportedPort::Plain(85)]);
    assert_eq!(services["b"].port_origins[0].1.to_string(), "called by a (nginx.conf)");
    assert_eq!(left, [Unreachable { service: "c".to_owned(), needed_by: vec!["a".to_owned()] }]);
}

#[test]
fn workers_need_no_port() {
    for (name, command, works) in [
        ("celery-beat", &[][..], true),
        ("jobs", &["celery", "-A", "app", "worker"], true),
        ("jobs", &["sh", "-c", "exec sleep infinity"], true),
        ("jobs", &["bundle", "exec", "sidekiq"], true),
        ("api", &["node", "server.js"], false),
        ("network", &["serve", "worker.js", "a", "b", "worker"], true),
    ] {
        assert_eq!(only_works(name, &service("x", &[], command, &[])), works, "{name} {command:?}");
    }
    let waiting = Clues { needs: BTreeSet::from(["b-worker".to_owned()]), ..Clues::default() };
    let clues = BTreeMap::from([("a".to_owned(), waiting)]);
    for (env, n_left) in [(&[][..], 0), (&[("B_HOST", "b-worker")], 1)] {
        let mut services = IndexMap::from([
            ("a".to_owned(), service("x", env, &[], &[])),
            ("b-worker".to_owned(), service("x", &[], &[], &[])),
        ]);
        assert_eq!(infer_ports(&mut services, &clues).len(), n_left, "{env:?}");
    }
}
