//! Single services: what their keys become, and what is said about the rest.

use super::{import_with, warnings};

/// The one service `a` of a file, without the head and the tail of the application file.
fn service(yaml: &str) -> String {
    match import_with(&[("compose.yaml", yaml)], &[("a.env", "W=$SET\nX=1\nZ")], &[("SET", "set")], &[]) {
        Ok(imported) => {
            let text = imported.application.to_yaml();
            let lines = text.lines().skip_while(|line| *line != "  a:").skip(1);
            lines.take_while(|line| line.starts_with("    ")).map(str::trim).collect::<Vec<_>>().join("\n")
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn keys_of_a_service() {
    for (body, expected) in [
        ("{image: i}", "image: \"i\""),
        ("{command: python3 -m 'my app'}", "command: [\"python3\", \"-m\", \"my app\"]"),
        ("{command: [run, 1, true]}", "command: [\"run\", \"1\", \"true\"]"),
        ("{entrypoint: [e], command: [c, $$X]}", "entrypoint: [\"e\"]\ncommand: [\"c\", \"$X\"]"),
        ("{build: ./x, command: c}", "command: [\"c\"]\nbuild: \"./x\"\ndirectory: \"x\""),
        ("{build: ., command: c}", "command: [\"c\"]\nbuild: \".\""),
        (
            "{build: {context: x}, working_dir: sub, command: c}",
            "command: [\"c\"]\nbuild: \"./x\"\ndirectory: \"x/sub\"",
        ),
        ("{build: ../x, command: c}", "command: [\"c\"]\nbuild: \"../x\""),
        (
            "{image: i, working_dir: /app, volumes: ['./src:/app', 'v:/app/data', 'w:/var/lib']}",
            "image: \"i\"\ndirectory: \"src\"\nworking_dir: \"/app\"\nmounts:\n- { from: \"./src\", to: \"/app\" }\n\
             - { volume: v, to: \"/app/data\" }\n- { volume: w, to: \"/var/lib\" }",
        ),
        (
            "{build: x, volumes: ['./x/data:/srv/data']}",
            "build: \"./x\"\ndirectory: \"x\"\nmounts:\n- { from: \"./x/data\", to: \"/srv/data\" }",
        ),
        (
            "{image: i, environment: [B=2, 'A=x=y', SET, NONE]}",
            "image: \"i\"\nenv:\nA: \"x=y\"\nB: \"2\"\nSET: \"set\"",
        ),
        (
            "{image: i, environment: {A: true, B: , SET: , C: ''}}",
            "image: \"i\"\nenv:\nA: \"true\"\nC: \"\"\nSET: \"set\"",
        ),
        ("{image: i, env_file: a.env}", "image: \"i\"\nenv:\nW: \"set\"\nX: \"1\""),
        ("{image: i, env_file: [a.env], environment: {X: 2}}", "image: \"i\"\nenv:\nW: \"set\"\nX: \"2\""),
        ("{image: i, env_file: [{path: none.env, required: false}]}", "image: \"i\""),
        ("{image: i, env_file: none.env}", "compose.yaml:2: cannot read `none.env`: no such file"),
        ("{image: 'i:${TAG:-1.2}', environment: {A: $FROM_DOTENV}}", "image: \"i:1.2\"\nenv:\nA: \"dotted\""),
        ("{image: '${TAG:?which one}'}", "compose.yaml:2: variable `TAG` is not set: which one"),
        (
            "{image: i, ports: ['80:8080', 9090], expose: ['8080', 7000]}",
            "image: \"i\"\nports: [8080, 9090, 7000]\npublish: { 8080: 80 }",
        ),
        ("{image: i, ports: [x]}", "compose.yaml:2: `x` is not a port"),
        (
            "{image: i, ports: [80], healthcheck: {test: 'curl -f localhost:81/h'}}",
            "image: \"i\"\nports: [80, 81] # 81: its health check\nready: { http: \"/h\", port: 81, within: 90s }",
        ),
        (
            "{image: i, healthcheck: {test: [CMD, x]}}",
            "image: \"i\"\nready: { command: [\"x\"], within: 90s }",
        ),
        ("{image: i, stop_grace_period: 1m30s}", "image: \"i\"\nstop_within: 90s"),
        (
            "{image: i, hostname: other, container_name: a, networks: {n: {aliases: [third]}}}",
            "image: \"i\"\naliases: [other, third]",
        ),
        ("{build: {dockerfile_inline: FROM x}, command: c}", "command: [\"c\"]\nbuild: \".\""),
        ("{ports: [80]}", "compose.yaml:2: service `a` has no image, build or command"),
        ("[x]", "compose.yaml:2: service `a` is a list, not a mapping"),
        ("{image: i, depends_on: [a]}", "compose.yaml:2: service `a` depends on itself"),
        ("{image: i, x-more: {y: 1}}", "image: \"i\""),
        ("{image: i, scale: 2}", "image: \"i\""),
    ] {
        assert_eq!(service(&format!("services:\n  a: {body}\n")), expected, "{body}");
    }
}

#[test]
fn what_is_lost_is_said() {
    for (body, expected) in [
        ("{command: x}", ""),
        (
            "{image: i}",
            "service `a`: no `command` is known: use `--platform docker`, or add one to run without containers",
        ),
        (
            "{build: .}",
            "service `a`: only `build` is known: add the `command` that starts it, or, for `--platform docker`, the \
             `image` that you have built from it",
        ),
        (
            "{command: x, environment: {CART_ADDR: 'cart:7070', SHOP_URL: 'http://shop.example.com'}}",
            "`cart` is not among the services, but `a` may call it (CART_ADDR); add it to `services`, or to \
             `external` if it is outside",
        ),
        ("{command: x, restart: always, labels: [q], tty: true}", ""),
        ("{command: x, privileged: true, user: root}", "service `a`: not carried over: privileged"),
        ("{command: x, comand: y}", "service `a`: not keys of Compose: comand"),
        ("{command: x, ports: ['53:53/udp']}", "service `a`: only TCP is carried: 53:53/udp left out"),
        ("{command: x, volumes: ['v:/data'], working_dir: /app}", ""),
        (
            "{command: x, build: ../../x}",
            "service `a`: directory `../../x` is outside of the project; move the file or set `directory`",
        ),
        (
            "{command: x, network_mode: host}",
            "service `a`: network mode `host` is not kept: it gets a host name of its own",
        ),
        ("{command: x, stop_signal: SIGINT}", "service `a`: it is stopped by SIGTERM, not SIGINT"),
        ("{command: x, depends_on: {b: {condition: service_started, required: false}}}", ""),
        (
            "{command: x, depends_on: [b]}",
            "service `a`: `depends_on` names `b`, which is not among the services",
        ),
        ("{command: x, environment: [NONE]}", "service `a`: not set in the environment, left out: `NONE`"),
        ("{command: x $NONE}", "1 variable is not set and empty in the result: `NONE`"),
        (
            "{command: x, extra_hosts: ['pay.example:10.0.0.1']}",
            "host `pay.example` is outside: calls to it are refused unless `external` allows them",
        ),
        ("{command: x, hostname: 'a b'}", "service `a`: the name `a b` cannot be a host name"),
    ] {
        assert_eq!(warnings(&format!("services:\n  a: {body}\n")), expected, "{body}");
    }
}
