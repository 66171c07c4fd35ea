//! What services see at paths of their own, from Compose files and manifests.

use std::collections::BTreeMap;

use super::{ComposeInput, Imported, ManifestInput, PathKind, from_compose, from_manifests, reads_back};

/// Imports a project of which only some paths exist; two folders above belong to its repository.
fn import(yaml: &str) -> Imported {
    let look = |path: &str| match path.trim_start_matches("../") {
        "." | "src" | "conf" | "shared" | "order" => PathKind::Folder,
        "nginx.conf" | "conf/app.yaml" | "token.txt" | "shared/common.yaml" => PathKind::File,
        "run/app.socket" => PathKind::Other,
        _ => PathKind::Missing,
    };
    let imported = from_compose(&ComposeInput {
        name: "project",
        files: &[("compose.yaml".to_owned(), yaml.to_owned())],
        environment: &BTreeMap::from([("TOKEN".to_owned(), "t0".to_owned())]),
        env_files: &[],
        keep_tracing: false,
        profiles: &[],
        load: &|_| Err("no such file".to_owned()),
        look: &look,
        folder: "/home/me/repository/deploy/docker",
        parents: &["deploy".to_owned(), "docker".to_owned()],
    })
    .unwrap();
    reads_back(&imported);
    imported
}

/// The mounts of service `a` and the warnings, with the definitions of the project below the service.
fn mounts(body: &str, definitions: &str) -> String {
    let imported = import(&format!("services:\n  a: {{image: i, command: c, {body}}}\n{definitions}"));
    let text = imported.application.to_yaml();
    let lines = text.lines().map(str::trim).filter(|line| line.starts_with("- {"));
    lines.chain(imported.warnings.iter().map(String::as_str)).collect::<Vec<_>>().join("\n")
}

#[test]
fn volumes_of_compose() {
    for (volumes, expected) in [
        ("'./src:/app'", r#"- { from: "./src", to: "/app" }"#),
        ("'.:/app:cached'", r#"- { from: ".", to: "/app" }"#),
        (
            "'./nginx.conf:/etc/nginx/nginx.conf:ro'",
            r#"- { from: "./nginx.conf", to: "/etc/nginx/nginx.conf", readonly: true }"#,
        ),
        ("'/home/me/repository/deploy/docker/conf:/conf'", r#"- { from: "./conf", to: "/conf" }"#),
        ("'data:/var/lib/db:rw,z'", r#"- { volume: data, to: "/var/lib/db" }"#),
        ("/app/node_modules", r#"- { volume: "${instance}-app-node_modules", to: "/app/node_modules" }"#),
        ("{type: tmpfs, target: /run, tmpfs: {size: 16m}}", r#"- { tmpfs: "/run", size: 16MiB }"#),
        ("{type: tmpfs, target: /run, tmpfs: {size: 1048576}}", r#"- { tmpfs: "/run", size: 1MiB }"#),
        (
            "{type: volume, source: data, target: /d, read_only: true}",
            r#"- { volume: data, to: "/d", readonly: true }"#,
        ),
        (
            "{type: bind, source: ./conf/app.yaml, target: /etc/app.yaml}",
            r#"- { from: "./conf/app.yaml", to: "/etc/app.yaml" }"#,
        ),
        ("'bound:/d'", r#"- { from: "./conf", to: "/d" }"#),
        ("'memory:/d'", r#"- { tmpfs: "/d" }"#),
        (
            "'./data/db:/var/lib/db'",
            "- { volume: data-db, to: \"/var/lib/db\" }\n\
             service `a`: there is no `data/db`: a fresh volume takes its place at `/var/lib/db`",
        ),
        (
            "'./tls/key.pem:/key.pem:ro'",
            "- { from: \"./tls/key.pem\", to: \"/key.pem\", readonly: true }\n\
             service `a`: there is no `tls/key.pem` to mount at `/key.pem`; make it first",
        ),
        (
            "'/var/run/docker.sock:/var/run/docker.sock'",
            "service `a`: `/var/run/docker.sock` is a socket of this machine, which no trial shares; it is left out",
        ),
        (
            "'./run/app.socket:/s'",
            "service `a`: `run/app.socket` is a socket of this machine, which no trial shares; it is left out",
        ),
        (
            "'/proc:/host/proc:ro'",
            "service `a`: `/proc` belongs to the machine, not to the project; it is left out",
        ),
        ("'/:/rootfs'", "service `a`: `/` belongs to the machine, not to the project; it is left out"),
        ("'data:/dev/shm'", "service `a`: a mount is left out: nothing can be mounted at `/dev/shm`"),
        (
            "'/srv/media:/media'",
            "- { volume: srv-media, to: \"/media\" }\n\
             service `a`: `/srv/media` is outside of the project: a fresh volume takes its place at `/media`",
        ),
        ("{type: npipe, source: x, target: /p}", "service `a`: the npipe at `/p` is not mounted"),
    ] {
        let definitions = "volumes: {data: , bound: {driver_opts: {type: none, o: bind, device: ./conf}}, \
                           memory: {driver_opts: {type: tmpfs, device: tmpfs}}}\n";
        assert_eq!(mounts(&format!("volumes: [{volumes}]"), definitions), expected, "{volumes}");
    }
    assert_eq!(mounts("tmpfs: /run", ""), r#"- { tmpfs: "/run" }"#);
    assert_eq!(
        mounts("tmpfs: ['/run:size=1m,mode=755', /tmp]", ""),
        "- { tmpfs: \"/run\", size: 1MiB }\n- { tmpfs: \"/tmp\" }"
    );
}

#[test]
fn configs_and_secrets_of_compose() {
    let definitions = "configs:\n  app: {file: ./conf/app.yaml}\n  inline: {content: \"user: $TOKEN\\n\"}\n  \
                       swarm: {external: true}\nsecrets:\n  token: {environment: TOKEN}\n  none: {environment: NONE}\n  \
                       file: {file: token.txt}\n";
    for (body, expected) in [
        ("configs: [app]", r#"- { from: "./conf/app.yaml", to: "/app", readonly: true }"#),
        (
            "configs: [{source: inline, target: /etc/app.yaml, mode: 0440}]",
            r#"- { content: "user: t0\n", to: "/etc/app.yaml", readonly: true, mode: "0440" }"#,
        ),
        ("secrets: [token]", r#"- { content: "t0", to: "/run/secrets/token", readonly: true }"#),
        (
            "secrets: [{source: file, target: db}]",
            r#"- { from: "./token.txt", to: "/run/secrets/db", readonly: true }"#,
        ),
        ("secrets: [none]", "service `a`: `NONE` is not set, so nothing is mounted at `/run/secrets/none`"),
        (
            "configs: [swarm]",
            "service `a`: the project has no text of `swarm`: add a mount with `from` or `content` at `/swarm`",
        ),
        (
            "secrets: [unknown]",
            "service `a`: the project has no text of `unknown`: add a mount with `from` or `content` at \
             `/run/secrets/unknown`",
        ),
    ] {
        assert_eq!(mounts(body, definitions), expected, "{body}");
    }
}

#[test]
fn paths_above_the_project_widen_the_application() {
    let yaml = "services:\n  order:\n    build: ../../order\n    command: run\n    working_dir: /app\n    \
                volumes: ['../../order:/app', '../shared/common.yaml:/etc/common.yaml:ro', './conf:/conf']\n  \
                far: {image: i, command: c, volumes: ['../../../x:/x']}\n";
    let imported = import(yaml);
    insta::assert_snapshot!(imported.application.to_yaml(), @r#"
    # Made by `faultscope init` from compose.yaml.
    name: project
    directory: "../.."
    services:
      order:
        command: ["run"]
        build: "./order"
        directory: "order"
        working_dir: "/app"
        mounts:
          - { from: "./order", to: "/app" }
          - { from: "./deploy/shared/common.yaml", to: "/etc/common.yaml", readonly: true }
          - { from: "./deploy/docker/conf", to: "/conf" }
      far:
        command: ["c"]
        image: "i"
        directory: "deploy/docker"
        mounts:
          - { volume: x, to: "/x" }
    external: []
    tests: []
    "#);
    insta::assert_snapshot!(imported.warnings.join("\n"), @"service `far`: `../../../x` is outside of the project: a fresh volume takes its place at `/x`");
}

fn cluster(text: &str) -> Imported {
    let files = [("manifests.yaml".to_owned(), text.to_owned())];
    let imported =
        from_manifests(&ManifestInput { name: "shop", files: &files, keep_tracing: false }).unwrap();
    reads_back(&imported);
    imported
}

/// The mounts and warnings of a pod with these volumes and mounts.
fn pod_mounts(volume: &str, mount: &str) -> String {
    let text = format!(
        "kind: Deployment\nmetadata: {{name: web}}\nspec:\n  template:\n    metadata: {{labels: {{app: web}}}}\n    spec:\n      \
         containers: [{{name: web, image: i, command: [x], volumeMounts: [{{name: v, {mount}}}]}}]\n      \
         volumes: [{{name: v, {volume}}}]\n\
         ---\nkind: ConfigMap\nmetadata: {{name: conf}}\ndata: {{a.conf: 'a=1', b.conf: 'b=2'}}\n\
         binaryData: {{text: aGk=, image: /w==}}\n\
         ---\nkind: Secret\nmetadata: {{name: keys}}\ndata: {{key: c2VjcmV0}}\nstringData: {{plain: p}}\n"
    );
    let imported = cluster(&text);
    let yaml = imported.application.to_yaml();
    let lines = yaml.lines().map(str::trim).filter(|line| line.starts_with("- {"));
    lines.chain(imported.warnings.iter().map(String::as_str)).collect::<Vec<_>>().join("\n")
}

#[test]
fn volumes_of_pods() {
    for (volume, mount, expected) in [
        (
            "configMap: {name: conf, items: [{key: a.conf, path: sub/a.conf}]}",
            "mountPath: /etc/web/",
            r#"- { content: "a=1", to: "/etc/web/sub/a.conf", readonly: true }"#,
        ),
        (
            "configMap: {name: conf, defaultMode: 0755, items: [{key: a.conf, path: a}, {key: text, path: t, mode: 256}]}",
            "mountPath: /x",
            "- { content: \"a=1\", to: \"/x/a\", readonly: true, mode: \"0755\" }\n\
             - { content: \"hi\", to: \"/x/t\", readonly: true, mode: \"0400\" }",
        ),
        (
            "configMap: {name: conf}",
            "mountPath: /etc/b.conf, subPath: b.conf",
            r#"- { content: "b=2", to: "/etc/b.conf", readonly: true }"#,
        ),
        (
            "configMap: {name: conf, items: [{key: image, path: image.png}]}",
            "mountPath: /x",
            "service `web`: `/x/image.png` is no text; put it into a file and mount that",
        ),
        (
            "configMap: {name: conf}",
            "mountPath: /x, subPath: none",
            "service `web`: `none` is not among the files for `/x`",
        ),
        (
            "configMap: {name: other}",
            "mountPath: /x",
            "service `web`: ConfigMap `other` is not in the manifests, so `/x` is missing",
        ),
        ("configMap: {name: other, optional: true}", "mountPath: /x", ""),
        (
            "secret: {secretName: keys}",
            "mountPath: /keys",
            "- { content: \"secret\", to: \"/keys/key\", readonly: true }\n- { content: \"p\", to: \"/keys/plain\", readonly: true }",
        ),
        ("emptyDir: {}", "mountPath: /tmp/x", r#"- { volume: "${instance}-v", to: "/tmp/x" }"#),
        ("emptyDir: ", "mountPath: /tmp/x", r#"- { volume: "${instance}-v", to: "/tmp/x" }"#),
        (
            "emptyDir: {medium: Memory, sizeLimit: 16Mi}",
            "mountPath: /cache",
            r#"- { tmpfs: "/cache", size: 16MiB }"#,
        ),
        (
            "persistentVolumeClaim: {claimName: data}",
            "mountPath: /d, subPath: a/b",
            r#"- { volume: data-a-b, to: "/d" }"#,
        ),
        (
            "downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}, {path: labels, fieldRef: {fieldPath: metadata.labels}}]}",
            "mountPath: /pod",
            "- { content: \"web-1\", to: \"/pod/name\", readonly: true }\n- { content: \"app=\\\"web\\\"\\n\", to: \"/pod/labels\", readonly: true }",
        ),
        (
            "projected: {sources: [{secret: {name: keys, items: [{key: key, path: k}]}}, {serviceAccountToken: {path: t}}]}",
            "mountPath: /all",
            r#"- { content: "secret", to: "/all/k", readonly: true }"#,
        ),
        (
            "hostPath: {path: /var/run/docker.sock}",
            "mountPath: /s",
            "service `web`: `/var/run/docker.sock` is a socket of this machine, which no trial shares; it is left out",
        ),
        ("nfs: {server: n, path: /}", "mountPath: /n", "service `web`: the nfs at `/n` is not mounted"),
    ] {
        assert_eq!(pod_mounts(volume, mount), expected, "{volume}, {mount}");
    }
}

#[test]
fn folders_of_several_containers_and_claims_of_each_instance() {
    let imported = cluster(
        "kind: StatefulSet\nmetadata: {name: db}\nspec:\n  template:\n    spec:\n      containers:\n      \
         - {name: db, image: i, command: [x], volumeMounts: [{name: data, mountPath: /data}, {name: both, mountPath: /both}]}\n      \
         - {name: side, image: i, command: [x], volumeMounts: [{name: both, mountPath: /b}]}\n      \
         volumes: [{name: both, emptyDir: {}}]\n  volumeClaimTemplates: [{metadata: {name: data}}]\n",
    );
    let yaml = imported.application.to_yaml();
    let lines: Vec<&str> = yaml.lines().map(str::trim).filter(|line| line.starts_with("- {")).collect();
    assert_eq!(
        lines,
        [
            "- { volume: \"${instance}-data\", to: \"/data\" }",
            "- { volume: db-both, to: \"/both\" }",
            "- { volume: db-both, to: \"/b\" }",
        ]
    );
}

#[test]
fn entry_points_users_and_folders() {
    let imported = import(
        "services:\n  own: {image: i, entrypoint: /start.sh --fast, command: [serve], user: '1000:1000', working_dir: /srv}\n  \
         off: {image: i, entrypoint: [], command: [sh]}\n  kept: {image: i, entrypoint: , command: [sh]}\n",
    );
    let pod = cluster(
        "kind: Pod\nmetadata: {name: p}\nspec:\n  securityContext: {runAsUser: 5, runAsGroup: 6}\n  containers:\n  \
         - {name: p, image: i, command: [/start, $(A)], args: [x], workingDir: /w, env: [{name: A, value: a}]}\n",
    );
    let show =
        |imported: &Imported| serde_json::to_string(&imported.application.services).unwrap().replace('"', "");
    assert_eq!(
        show(&imported),
        "{own:{entrypoint:[/start.sh,--fast],command:[serve],image:i,working_dir:/srv,user:1000:1000},\
         off:{entrypoint:[],command:[sh],image:i},kept:{command:[sh],image:i}}"
    );
    assert_eq!(
        show(&pod),
        "{p:{entrypoint:[/start,a],command:[x],image:i,working_dir:/w,user:5:6,env:{A:a}}}"
    );
}
