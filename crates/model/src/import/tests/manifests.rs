//! Kubernetes manifests.

use super::{ImportError, Imported, ManifestInput, from_manifests, reads_back};

fn import(text: &str) -> Result<Imported, ImportError> {
    let files = [("manifests.yaml".to_owned(), text.to_owned())];
    let imported = from_manifests(&ManifestInput { name: "shop", files: &files, keep_tracing: false })?;
    reads_back(&imported);
    Ok(imported)
}

#[test]
fn a_realistic_cluster() {
    let imported = import(include_str!("../testdata/cluster.yaml")).unwrap();
    insta::assert_snapshot!(imported.application.to_yaml(), @r##"
    # Made by `faultscope init` from manifests.yaml.
    # Replicas and limits of the cluster are under `failing`: the simplest circumstance
    # has one instance of each service, without limits.
    name: shop
    services:
      frontend:
        command: ["--catalogue=catalogue:7070", "--name=frontend-1"]
        image: "registry.example/frontend:1.2"
        ports: [8080]
        publish: { 8080: 8080 }
        env:
          PAYMENT: "http://pay.example.com"
          POD: "frontend-1"
        ready: { http: "/_healthz", within: 35s }
      frontend-exporter:
        image: "prom/statsd-exporter"
      catalogue:
        image: "registry.example/catalogue"
        ports: [{ port: 7070, protocol: grpc }]
        env:
          DB_HOST: "db.shop.svc.cluster.local"
          DB_PASSWORD: "secret"
          DB_PORT: "5432"
          LOG_LEVEL: "info"
        ready: { grpc: true, port: 7070, within: 30s }
        stop_within: 5s
      db:
        image: "postgres:17"
        aliases: [db.shop.svc.cluster.local]
        ports: [5432]
        ready: { command: ["pg_isready"], within: 30s }
      load:
        image: "registry.example/load"
        env:
          FRONTEND_ADDR: "frontend:8080"
          URL: "http://frontend:8080/cart"
    external:
      - { host: pay.example.com, allow: false }
    tests: []
    failing:
      instances: { frontend: 3, frontend-exporter: 3 }
      config:
        frontend: { cpu: 0.2, memory: 128MiB }
    "##);
    insta::assert_snapshot!(imported.warnings.join("\n"), @"
    service `frontend`: not in the manifests, left out: TOKEN
    5 services (`frontend`, `frontend-exporter`, `catalogue` and 2 more): no `command` is known: use `--platform docker`, or add one to run without containers
    service `frontend-exporter`: a container beside `frontend` in one pod; here they do not share `localhost`
    service `frontend`: init containers are not run; make what they prepare the `setup`
    `pay.example.com`: outside host of an ExternalName; calls to it are refused unless `external` allows them
    service `frontend`: in the cluster port 80 leads to 8080; addresses in `load` were changed
    jobs are not run: `migrate`; make what tests need of them the `setup`
    left out, because only a cluster has them: Ingress
    ");
}

#[test]
fn manifests_that_cannot_be_read() {
    for (text, expected) in [
        (
            "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n",
            "manifests.yaml: there is no Deployment, StatefulSet, DaemonSet or Pod; ",
        ),
        (
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a.yaml]\n",
            "manifests.yaml: there is no Deployment, StatefulSet, DaemonSet or Pod; \
             render it first: `kustomize build DIR | faultscope init -f -`",
        ),
        ("a: 1\n", "manifests.yaml:1: a manifest has a `kind`; "),
    ] {
        let error = import(text).unwrap_err();
        assert_eq!(format!("{error}; {}", error.hint.clone().unwrap_or_default()), expected);
    }
    let template = "kind: Pod\nmetadata:\n  name: {{ .Values.name }}\nspec: {{- x }}\n";
    assert!(import(template).unwrap_err().hint.is_some_and(|hint| hint.contains("helm template")));
}

#[test]
fn services_in_front_of_several_workloads() {
    let version = |n: u32| {
        format!(
            "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: reviews-v{n}}}\nspec:\n  template:\n    \
             metadata: {{labels: {{app: reviews}}}}\n    spec: {{containers: [{{name: r, image: 'r:{n}', ports: [{{containerPort: 9080}}]}}]}}\n"
        )
    };
    let text = format!(
        "kind: Service\nmetadata: {{name: reviews}}\nspec: {{selector: {{app: reviews}}, ports: [{{port: 9080}}]}}\n{}{}",
        version(1),
        version(2)
    );
    let imported = import(&text).unwrap();
    let names: Vec<&String> = imported.application.services.keys().collect();
    assert_eq!(names, ["reviews", "reviews-v2"]);
    assert!(
        imported.warnings.iter().any(|w| w.contains("also leads to `reviews-v2`")),
        "{:?}",
        imported.warnings
    );
}
