//! Several services and several files: merging, `extends`, `include`, profiles.

use super::{import_with, warnings};

#[test]
fn projects() {
    for (yaml, expected) in [
        ("", "compose.yaml: no `services` are given"),
        ("services: {}", "compose.yaml: no `services` are given"),
        ("services: [a]", "compose.yaml:1: `services` is a list, not a mapping"),
        ("[a]", "compose.yaml:1: a Compose file is a mapping with `services`"),
        (
            "services:\n  a: {image: i, extends: {service: b}}",
            "compose.yaml:2: there is no service `b` to extend",
        ),
        ("services:\n  a: {extends: b}\n  b: {extends: a}", "compose.yaml:3: `a` extends itself"),
        (
            "services:\n  a: {image: i, depends_on: [b]}\n  b: {image: i, depends_on: [a]}",
            "compose.yaml:2: these services depend on one another: a, b",
        ),
        (
            "services:\n  '-': {image: i}",
            "compose.yaml:2: service `-` needs another name: a host name, but not `test` or `localhost`",
        ),
        (
            "include: [x.yaml]\nservices: {a: {image: i}}",
            "compose.yaml:1: cannot read `x.yaml`: no such file",
        ),
    ] {
        let error = import_with(&[("compose.yaml", yaml)], &[], &[], &[]).unwrap_err();
        assert_eq!(error.to_string(), expected, "{yaml}");
    }
    let apart = "services:\n  a: {command: x, networks: [m]}\n  b: {command: x, networks: [n]}\n";
    assert!(warnings(apart).contains("`a` and `b` share none"));
    let linked = "services:\n  a: {command: x, links: ['b:data', c]}\n  b: {command: x}\n  c: {command: x}\n";
    let imported = import_with(&[("f", linked)], &[], &[], &[]).unwrap();
    assert_eq!(imported.application.services["b"].aliases, ["data"]);
    assert_eq!(imported.application.services["a"].after, ["b", "c"]);
}

/// Merges two bodies of service `a` and shows it.
fn merged(base: &str, over: &str) -> String {
    let (base, over) = (format!("services: {{a: {base}}}"), format!("services: {{a: {over}}}"));
    let imported = import_with(&[("base", &base), ("over", &over)], &[], &[("SET", "set")], &[]).unwrap();
    serde_json::to_string(&imported.application.services["a"]).unwrap().replace('"', "")
}

#[test]
fn files_are_merged() {
    for (base, over, expected) in [
        ("{image: x}", "{image: y}", "{image:y}"),
        ("{image: x}", "{}", "{image:x}"),
        ("{image: x}", "{image: }", "{image:x}"),
        ("{command: [a, b]}", "{command: c}", "{command:[c]}"),
        ("{entrypoint: [a, b], command: [x]}", "{entrypoint: [c]}", "{entrypoint:[c],command:[x]}"),
        ("{image: x, ports: [1]}", "{ports: ['2:2']}", "{image:x,ports:[1,2],publish:{2:2}}"),
        ("{image: x, expose: [1]}", "{expose: [1, 2]}", "{image:x,ports:[1,2]}"),
        ("{image: x, environment: [A=1, B=2]}", "{environment: {B: 3, C: 4}}", "{image:x,env:{A:1,B:3,C:4}}"),
        ("{image: x, environment: {SET: 1}}", "{environment: [SET]}", "{image:x,env:{SET:set}}"),
        (
            "{image: x, working_dir: /a, volumes: ['v:/a/d']}",
            "{volumes: ['w:/a/d', 'w:/a/e']}",
            "{image:x,working_dir:/a,mounts:[{to:/a/d,volume:w},{to:/a/e,volume:w}]}",
        ),
        (
            "{image: x, healthcheck: {test: [CMD, a], retries: 9}}",
            "{healthcheck: {test: [CMD, b]}}",
            "{image:x,ready:{command:[b],within:270s}}",
        ),
        ("{image: x, ports: [1]}", "{ports: !reset []}", "{image:x}"),
        ("{image: x, ports: [1]}", "{ports: !override [2]}", "{image:x,ports:[2]}"),
        ("{image: x, environment: {A: 1, B: 2}}", "{environment: {A: !reset null}}", "{image:x,env:{B:2}}"),
        ("{image: x, expose: ['1616:1616']}", "{}", "{image:x,ports:[1616]}"),
        ("{build: x, command: c}", "{build: {dockerfile: D}}", "{command:[c],build:./x,directory:x}"),
    ] {
        assert_eq!(merged(base, over), expected, "{base} + {over}");
    }
}

#[test]
fn extends_include_and_profiles() {
    let loadable = [
        (
            "common/base.yaml",
            "services:\n  base:\n    build: ./src\n    env_file: b.env\n    command: run\n    ports: [80]\n    extends: {file: ../deep.yaml, service: deep}\n",
        ),
        ("common/b.env", "B=1\n"),
        ("deep.yaml", "services: {deep: {environment: {D: 4}, ports: [70]}}"),
        ("sub/compose.yaml", "services: {db: {build: ., command: db}}"),
    ];
    let file = "include: [sub/compose.yaml]\nservices:\n  a:\n    extends: {file: common/base.yaml, service: base}\n    ports: [90]\n  \
                dev: {image: i, profiles: [debug]}\n  same: {extends: a, environment: {D: 5}}\n";
    let imported = import_with(&[("compose.yaml", file)], &loadable, &[], &[]).unwrap();
    let json = serde_json::to_string(&imported.application.services).unwrap().replace('"', "");
    assert_eq!(
        json,
        "{db:{command:[db],build:./sub,directory:sub},\
         a:{command:[run],build:./common/src,directory:common/src,ports:[70,80,90],env:{B:1,D:4}},\
         same:{command:[run],build:./common/src,directory:common/src,ports:[70,80,90],env:{B:1,D:5}}}"
    );
    assert_eq!(
        imported.warnings,
        ["left out because their profiles are not chosen: `dev` (`--profile debug` adds them)"]
    );
    for profiles in [["debug"], ["*"]] {
        let all = import_with(&[("compose.yaml", file)], &loadable, &[], &profiles).unwrap();
        assert!(all.application.services.contains_key("dev"));
    }
    let by_variable =
        import_with(&[("compose.yaml", file)], &loadable, &[("COMPOSE_PROFILES", "x, debug")], &[]).unwrap();
    assert!(by_variable.application.services.contains_key("dev"));
    // A file that includes itself ends with an error, not with a full stack.
    let circle = import_with(&[("f", "include: [f]")], &[("f", "include: [f]")], &[], &[]);
    assert!(circle.unwrap_err().message.contains("deeper"));
}

#[test]
fn included_projects_in_long_form() {
    let loadable = [
        (
            "db/compose.yaml",
            "services: {db: {image: 'postgres:${PG}', volumes: ['./init:/init:ro'], configs: [c]}}\nconfigs: {c: {content: x}}",
        ),
        ("db/more.yaml", "services: {db: {environment: {LEVEL: '${LEVEL:-low}'}}}"),
        ("db/db.env", "PG=17\nLEVEL=high\n"),
        ("q.yaml", "services: {queue: {image: nats, build: ./q}}"),
    ];
    let file = "include:\n  - {path: [db/compose.yaml, db/more.yaml], env_file: db/db.env}\n  \
                - {path: q.yaml, project_directory: sub}\nservices:\n  a:\n    command: x\n    develop: {watch: []}\n    \
                depends_on: {db: {condition: service_healthy, restart: true}, queue: {condition: service_started}}\n";
    let imported = import_with(&[("compose.yaml", file)], &loadable, &[], &[]).unwrap();
    let json = serde_json::to_string(&imported.application.services).unwrap().replace('"', "");
    assert_eq!(
        json,
        "{db:{image:postgres:17,ports:[5432],env:{LEVEL:high},mounts:[{to:/init,from:db/init,readonly:true},\
         {to:/c,content:x,readonly:true}]},queue:{image:nats,build:./sub/q,directory:sub/q,ports:[4222]},\
         a:{command:[x],after:[db,queue]}}"
    );
}

#[test]
fn providers_are_left_out() {
    let file = "services:\n  a: {command: x, depends_on: [model]}\n  model: {provider: {type: model}}\n";
    let imported = import_with(&[("compose.yaml", file)], &[], &[], &[]).unwrap();
    assert_eq!(imported.application.services.len(), 1);
    assert_eq!(imported.warnings[0], "left out, because a provider of the machine runs them: `model`");
}

#[test]
fn a_service_cannot_be_called_test() {
    let file = "services:\n  test: {image: i, ports: [80]}\n  web: {command: [web, 'http://test:80/'], depends_on: [test], \
                links: ['test:t'], environment: {T_HOST: test, MODE: test, URL: 'http://test/x'}}\n";
    let imported = import_with(&[("compose.yaml", file)], &[], &[], &[]).unwrap();
    let json = serde_json::to_string(&imported.application.services).unwrap().replace('"', "");
    assert_eq!(
        json,
        "{test-service:{image:i,aliases:[t],ports:[80]},web:{command:[web,http://test-service:80/],\
         env:{MODE:test,T_HOST:test-service,URL:http://test-service/x},after:[test-service]}}"
    );
    assert!(imported.warnings[0].contains("`test` is called `test-service` here"), "{:?}", imported.warnings);
}

#[test]
fn resets_beside_extends_reach_earlier_files() {
    let base = "services: {a: {image: x, ports: [1], environment: {A: 1}, command: [run]}}";
    let over = "services:\n  common: {image: y, ports: [2]}\n  a: {extends: common, ports: !reset [], \
                environment: !override {B: 2}}\n";
    let imported = import_with(&[("base", base), ("over", over)], &[], &[], &[]).unwrap();
    let a = serde_json::to_string(&imported.application.services["a"]).unwrap().replace('"', "");
    assert_eq!(a, "{command:[run],image:y,env:{B:2}}");
}

#[test]
fn the_name_of_the_project_is_known() {
    let own = "services: {a: {image: 'x', container_name: '${COMPOSE_PROJECT_NAME}_a'}}";
    for (file, expected) in [(own.to_owned(), "project_a"), (format!("name: Shop.1\n{own}"), "shop1_a")] {
        let imported = import_with(&[("compose.yaml", &file)], &[], &[], &[]).unwrap();
        assert_eq!(imported.application.services["a"].aliases, [expected]);
        assert!(!imported.warnings.iter().any(|w| w.contains("COMPOSE_PROJECT_NAME")));
    }
}

/// The message and the hint of a refused project.
fn refusal(files: &[(&str, &str)], loadable: &[(&str, &str)]) -> String {
    let error = import_with(files, loadable, &[], &[]).unwrap_err();
    format!("{error}; {}", error.hint.clone().unwrap_or_default())
}

#[test]
fn refusals_say_what_to_do() {
    let all_behind = "services: {a: {image: x, profiles: [dev, test]}, b: {image: x, profiles: [dev]}}";
    assert_eq!(
        refusal(&[("compose.yaml", all_behind)], &[]),
        "compose.yaml: every service is behind a profile: `dev`, `test`; \
         choose some with `--profile dev`, or all with `--profile '*'`"
    );
    let over = [("docker-compose.prod.yml", "services: {a: {restart: always}}")];
    assert_eq!(
        refusal(&over, &[("docker-compose.yml", "services: {a: {image: x}}")]),
        "docker-compose.prod.yml:1: service `a` has no image, build or command; this looks like an override file: \
         name the file below it first, `-f docker-compose.yml -f docker-compose.prod.yml`"
    );
    let missing = [("compose.yaml", "services: {a: {image: x, env_file: app.env}}")];
    assert_eq!(
        refusal(&missing, &[("app.env.sample", "")]),
        "compose.yaml:1: cannot read `app.env`: no such file; copy `app.env.sample` to `app.env` first"
    );
}
