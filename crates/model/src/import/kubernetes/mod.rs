//! Kubernetes manifests, as files have them or as `kustomize build` and `helm template` print them.
//!
//! A container becomes a service, called by the name of the cluster's Service that leads to it. The result
//! runs on Docker; what only a cluster has (ingress, roles, claims) is left out and said.

mod config;
mod objects;
mod pods;
mod services;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};

use super::finish::{FinishOptions, describe_missing_command, finish};
use super::infer::{Clues, Style, Text, find_addresses, find_port_beside};
use super::mounts::{ImportedMount, ImportedSource};
use super::node::Node;
use super::warnings::{Warnings, list_names};
use super::{
    ImportError, Imported, ImportedApplication, ImportedExternal, ImportedService, is_host_name,
    is_service_name,
};
use config::Configs;
pub use objects::looks_like_manifest;
use objects::{Object, read_objects};
use pods::{containers, note_limits, pod_template, put_port, read_container};
use services::{
    ServicePort, annotations, count_kinds, external_name, is_public, qualified_names, selects, service_ports,
};

use volumes::Volumes;

/// Kinds that keep pods running.
const WORKLOADS: [&str; 8] = [
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "ReplicaSet",
    "ReplicationController",
    "Pod",
    "DeploymentConfig",
    "Rollout",
];

/// Kinds that end by themselves.
const JOBS: [&str; 2] = ["Job", "CronJob"];

/// The longest name that is wanted for a service; it leaves room for a number.
const MAX_NAME: usize = 58;

/// What an import of manifests starts from.
#[derive(Debug, Clone, Copy)]
pub struct ManifestInput<'a> {
    /// The name of the application.
    pub name: &'a str,
    /// Names and texts of the files.
    pub files: &'a [(String, String)],
    /// Keep services that collect traces, instead of using the built-in collector.
    pub keep_tracing: bool,
}

/// Reads manifests as an application.
pub fn from_manifests(input: &ManifestInput<'_>) -> Result<Imported, ImportError> {
    let (objects, skipped) = read_objects(input.files)?;
    let mut import = Import::new(&objects);
    for error in skipped {
        import.warnings.add_general(format!("left out, because it cannot be read: {error}"));
    }
    for workload in objects.iter().filter(|object| WORKLOADS.contains(&object.kind.as_str())) {
        import.add_workload(workload)?;
    }
    if import.application.services.is_empty() {
        let file = input.files.first().map_or("standard input", |(name, _)| name);
        let message = "there is no Deployment, StatefulSet, DaemonSet or Pod";
        let error = ImportError::at(file, 0, message);
        let kustomize = objects.iter().any(|object| object.kind == "Kustomization");
        return Err(if kustomize {
            error.with_hint("render it first: `kustomize build DIR | faultscope init -f -`")
        } else {
            error
        });
    }
    import.add_outside_services();
    import.add_used_names();
    import.redirect_ports();
    import.warn_about_kinds();

    let Import { mut application, clues, warnings, .. } = import;
    application.name = input.name.to_owned();
    let files: Vec<&str> = input.files.iter().map(|(name, _)| name.as_str()).collect();
    application.header = vec![format!("Made by `faultscope init` from {}.", list_files(&files))];
    if !application.failing.is_empty() {
        application.header.push(
            "Replicas and limits of the cluster are under `failing`: the simplest circumstance".to_owned(),
        );
        application.header.push("has one instance of each service, without limits.".to_owned());
    }
    let options = FinishOptions { keep_tracing: input.keep_tracing };
    Ok(finish(application, clues, &options, warnings))
}

fn list_files(files: &[&str]) -> String {
    match files {
        [several @ .., _] if several.len() > 5 => format!("{} and {} more files", files[0], files.len() - 1),
        _ => files.join(", "),
    }
}

/// The state of one import.
struct Import<'o> {
    objects: &'o [Object],
    configs: Configs,
    application: ImportedApplication,
    clues: BTreeMap<String, Clues>,
    warnings: Warnings,
    /// The service behind each Service of the cluster, by namespace and name.
    behind: BTreeMap<(String, String), String>,
    /// Ports that callers use and ports that lead there, by service.
    redirects: BTreeMap<String, BTreeSet<(u16, u16)>>,
    /// Names that a service would have in the cluster.
    names: Vec<(String, String)>,
}

impl<'o> Import<'o> {
    fn new(objects: &'o [Object]) -> Self {
        let mut configs = Configs::default();
        objects.iter().for_each(|object| configs.add(object));
        Self {
            objects,
            configs,
            application: ImportedApplication::default(),
            clues: BTreeMap::new(),
            warnings: Warnings::default(),
            behind: BTreeMap::new(),
            redirects: BTreeMap::new(),
            names: Vec::new(),
        }
    }

    fn cluster_services(&self) -> impl Iterator<Item = &'o Object> + use<'o> {
        self.objects.iter().filter(|object| object.kind == "Service")
    }

    fn add_workload(&mut self, workload: &'o Object) -> Result<(), ImportError> {
        let Some(pod) = pod_template(workload) else {
            return Err(workload.error(&workload.node, format!("`{}` has no pod template", workload.name)));
        };
        let leading: Vec<&Object> =
            self.cluster_services().filter(|service| selects(service, workload, pod)).collect();
        let containers = containers(pod);
        let Some(main) = main_container(workload, pod, &containers, &leading) else { return Ok(()) };
        let main_name = self.choose_name(workload, &leading)?;
        for (index, container) in containers.iter().enumerate() {
            let name = if index == main {
                main_name.clone()
            } else {
                let own = container.get_text("name").unwrap_or("container");
                let name = self.free_name(&format!("{main_name}-{own}"), workload)?;
                self.warnings.add(
                    &name,
                    format!(
                        "a container beside `{main_name}` in one pod; here they do not share `localhost`"
                    ),
                );
                name
            };
            let replicas = workload.spec().and_then(|spec| spec.get_text("replicas"));
            note_limits(&name, replicas, container, &mut self.application.failing, &mut self.warnings);
            let mut service = read_container(&name, workload, container, &self.configs, &mut self.warnings)?;
            // Arguments alone are those of the image's own program.
            if service.entrypoint.is_none() {
                self.warnings.add(&name, describe_missing_command(&service));
            }
            let volumes = Volumes { workload, pod, configs: &self.configs, service: &name };
            service.mounts = volumes.find_mounts(container, &mut self.warnings);
            let texts = mounted_texts(&service);
            self.clues.insert(name.clone(), Clues { texts, ..Clues::default() });
            self.application.services.insert(name, service);
        }
        self.note_init_containers(pod, &main_name);
        for service in leading {
            self.lead_to(service, workload, &main_name, &containers, main);
        }
        Ok(())
    }

    /// The name of the Service that leads to a workload, otherwise its own.
    fn choose_name(&mut self, workload: &Object, leading: &[&Object]) -> Result<String, ImportError> {
        let is_headless =
            |service: &&&Object| service.spec().and_then(|spec| spec.get_text("clusterIP")) == Some("None");
        let same = leading.iter().find(|service| service.name == workload.name);
        let chosen = same.or_else(|| leading.iter().find(|s| !is_headless(s))).or_else(|| leading.first());
        let Some(service) = chosen else {
            return self.free_name(&workload.name, workload);
        };
        let key = (service.namespace.clone(), service.name.clone());
        if let Some(first) = self.behind.get(&key) {
            // A Service in front of several workloads: usually versions of one.
            self.warnings.add(
                first,
                format!(
                    "`{}` of the cluster also leads to `{}`; here only this one has the name \
                     (`versions` can hold the others)",
                    service.name, workload.name
                ),
            );
            return self.free_name(&workload.name, workload);
        }
        self.free_name(&service.name, workload)
    }

    /// A name that no service has yet.
    fn free_name(&self, wanted: &str, workload: &Object) -> Result<String, ImportError> {
        // A name of a pod may be longer than one of a host.
        let wanted = wanted.get(..MAX_NAME).unwrap_or(wanted).trim_end_matches(['-', '.']);
        let namespaced = format!("{wanted}.{}", workload.namespace);
        let numbered = (2..100).map(|n| format!("{wanted}-{n}"));
        let mut names =
            [wanted.to_owned(), format!("{wanted}-service"), namespaced].into_iter().chain(numbered);
        let is_free =
            |name: &String| is_service_name(name) && !self.application.services.contains_key(name.as_str());
        names.find(is_free).ok_or_else(|| {
            workload
                .error(&workload.node, format!("`{wanted}` cannot name a service: it must be a host name"))
        })
    }

    /// Notes a Service's name and ports for the containers that it leads to.
    fn lead_to(
        &mut self,
        service: &Object,
        workload: &Object,
        main_name: &str,
        containers: &[&Node],
        main: usize,
    ) {
        let key = (service.namespace.clone(), service.name.clone());
        if self.behind.contains_key(&key) {
            return;
        }
        self.behind.insert(key, main_name.to_owned());
        let pod_name = format!("{}-0.{}", workload.name, service.name);
        let names = std::iter::once(service.name.clone())
            .chain(qualified_names(&service.name, &service.namespace))
            .chain((workload.kind == "StatefulSet").then(|| pod_name.clone()))
            .chain(qualified_names(&pod_name, &service.namespace));
        self.names.extend(names.map(|alias| (alias, main_name.to_owned())));
        let is_public = is_public(service);
        for port in service_ports(service) {
            let Some(target) = port.find_target(containers[main]) else { continue };
            let is_taken =
                |known: &ImportedService| known.publish.values().any(|host| *host == target.number);
            let is_free = !self.application.services.values().any(is_taken);
            let Some(imported) = self.application.services.get_mut(main_name) else { continue };
            if is_public && is_free {
                imported.publish.insert(target.number, target.number);
            }
            put_port(imported, &target);
            imported.port_origins.retain(|(number, _)| *number != target.number);
            if port.port != target.number {
                self.redirects.entry(main_name.to_owned()).or_default().insert((port.port, target.number));
            }
        }
    }

    /// Services that lead to nothing in these files, and those that stand for a host outside.
    fn add_outside_services(&mut self) {
        for service in self.cluster_services() {
            let key = (service.namespace.clone(), service.name.clone());
            if self.behind.contains_key(&key) {
                continue;
            }
            let host = external_name(service).unwrap_or(&service.name).trim_end_matches('.');
            let known = self.application.external.iter().any(|external| external.host == host);
            if !is_host_name(host) || known || self.application.services.contains_key(host) {
                continue;
            }
            self.application.external.push(ImportedExternal { host: host.to_owned(), allow: false });
            if host != service.name {
                let names = qualified_names(&service.name, &service.namespace);
                for name in std::iter::once(&service.name).chain(&names) {
                    self.replace_host(name, host);
                }
            }
            let what = if host == service.name {
                "Service with no pod in these manifests"
            } else {
                "outside host of an ExternalName"
            };
            self.warnings.add_general(format!(
                "`{host}`: {what}; calls to it are refused unless `external` allows them"
            ));
        }
    }

    /// Gives services those names of the cluster that somebody uses.
    fn add_used_names(&mut self) {
        let names = std::mem::take(&mut self.names);
        let wanted: BTreeSet<&str> = names.iter().map(|(alias, _)| alias.as_str()).collect();
        let mut used: BTreeSet<String> = BTreeSet::new();
        let texts = self.clues.values().flat_map(|clues| &clues.texts).map(|text| text.text.as_str());
        let words = self.application.services.values().flat_map(|s| s.env.values().chain(s.words()));
        for text in texts.chain(words.map(String::as_str)) {
            let found = find_addresses(text, Style::Command, &|host| wanted.contains(host));
            used.extend(found.into_iter().map(|address| text[address.host].to_owned()));
        }
        for (alias, service) in &names {
            let taken = self.application.services.contains_key(alias.as_str())
                || self.application.services.values().any(|known| known.aliases.contains(alias));
            // A second Service of a workload is a name that tests may use as well.
            let wanted = used.contains(alias) || !alias.contains('.');
            if !taken
                && wanted
                && is_host_name(alias)
                && let Some(found) = self.application.services.get_mut(service)
            {
                found.aliases.push(alias.clone());
            }
        }
    }

    /// A Service may offer port 80 of a container that listens on 8080. There is one port here, so callers
    /// are sent to it.
    fn redirect_ports(&mut self) {
        let redirects = std::mem::take(&mut self.redirects);
        for (callee, pairs) in &redirects {
            let Some(service) = self.application.services.get(callee) else { continue };
            let hosts: BTreeMap<String, String> = std::iter::once(callee)
                .chain(&service.aliases)
                .map(|h| (h.clone(), callee.clone()))
                .collect();
            let pairs: Vec<(u16, u16)> = pairs.iter().copied().collect();
            let own: Vec<u16> = service.ports.iter().map(|port| port.number()).collect();
            let mut changed: BTreeSet<String> = BTreeSet::new();
            for (caller, service) in &mut self.application.services {
                let before = service.clone();
                change_ports(service, &hosts, &pairs, &own);
                if *service != before {
                    changed.insert(caller.clone());
                }
            }
            let pairs: Vec<String> = pairs.iter().map(|(from, to)| format!("{from} leads to {to}")).collect();
            let changed: Vec<String> = changed.into_iter().collect();
            let note = match changed.as_slice() {
                [] => "call it at its own port".to_owned(),
                callers => format!("addresses in {} were changed", list_names(callers)),
            };
            self.warnings.add(callee, format!("in the cluster port {}; {note}", pairs.join(", ")));
        }
    }

    fn replace_host(&mut self, from: &str, to: &str) {
        for service in self.application.services.values_mut() {
            for text in service.texts_mut() {
                for address in find_addresses(text, Style::Value, &|host| host == from).into_iter().rev() {
                    if address.called_port().is_some() {
                        text.replace_range(address.host, to);
                    }
                }
            }
        }
    }

    fn note_init_containers(&mut self, pod: &Node, name: &str) {
        let inits = pod.get("spec").and_then(|spec| spec.get("initContainers")).and_then(Node::as_list);
        if inits.is_some_and(|inits| !inits.is_empty()) {
            self.warnings.add(name, "init containers are not run; make what they prepare the `setup`");
        }
    }

    fn warn_about_kinds(&mut self) {
        let jobs: Vec<String> = self
            .objects
            .iter()
            .filter(|object| JOBS.contains(&object.kind.as_str()))
            .map(|object| object.name.clone())
            .collect();
        if !jobs.is_empty() {
            self.warnings.add_general(format!(
                "jobs are not run: {}; make what tests need of them the `setup`",
                list_names(&jobs)
            ));
        }
        let read = |object: &&Object| {
            let kind = object.kind.as_str();
            let others = ["Service", "ConfigMap", "Secret", "Namespace"];
            !WORKLOADS.contains(&kind) && !JOBS.contains(&kind) && !others.contains(&kind)
        };
        let left_out: Vec<String> = count_kinds(self.objects.iter().filter(read))
            .into_iter()
            .map(|(kind, n)| if n == 1 { kind.to_owned() } else { format!("{n} {kind}") })
            .collect();
        if !left_out.is_empty() {
            self.warnings
                .add_general(format!("left out, because only a cluster has them: {}", left_out.join(", ")));
        }
    }
}

/// The texts that a container mounts, which may hold addresses.
fn mounted_texts(service: &ImportedService) -> Vec<Text> {
    let read = |mount: &ImportedMount| match &mount.source {
        ImportedSource::Content(text) => {
            Some(Text { place: mount.to.clone(), text: text.clone(), style: Style::Value })
        }
        _ => None,
    };
    service.mounts.iter().filter_map(read).collect()
}

/// The container that Services lead to, otherwise the first.
fn main_container(workload: &Object, pod: &Node, containers: &[&Node], leading: &[&Object]) -> Option<usize> {
    let ports: Vec<ServicePort> = leading.iter().flat_map(|service| service_ports(service)).collect();
    let declares = |container: &&Node| {
        ports.iter().any(|port| {
            port.find_target(container).is_some_and(|target| {
                pods::declared_ports(container).iter().any(|p| p.number == target.number)
            })
        })
    };
    let annotated = annotations(pod)
        .and_then(|map| map.get("kubectl.kubernetes.io/default-container"))
        .and_then(Node::as_text);
    let position = |test: &dyn Fn(&&Node) -> bool| containers.iter().position(test);
    position(&declares)
        .or_else(|| position(&|c| annotated.is_some() && c.get_text("name") == annotated))
        .or_else(|| position(&|c| c.get_text("name") == Some(&workload.name)))
        .or_else(|| (!containers.is_empty()).then_some(0))
}

/// Sends the calls of a service to the ports behind those that a cluster's Service offers.
fn change_ports(
    service: &mut ImportedService,
    hosts: &BTreeMap<String, String>,
    pairs: &[(u16, u16)],
    own: &[u16],
) {
    // A port that the service has itself is reached as it is.
    let target = |port: u16| {
        let pair = pairs.iter().find(|(from, _)| *from == port && !own.contains(from));
        pair.map(|(_, to)| *to)
    };
    let env: Vec<(String, String)> = service.env.clone().into_iter().collect();
    let borrowed: Vec<(&String, &String)> = env.iter().map(|(key, value)| (key, value)).collect();
    for (key, value) in &borrowed {
        if hosts.contains_key(value.as_str())
            && let Some((port_key, port)) = find_port_beside(key, &borrowed)
            && let Some(to) = target(port)
        {
            service.env.insert(port_key.to_owned(), to.to_string());
        }
    }
    for text in service.texts_mut() {
        for address in find_addresses(text, Style::Value, &|host| hosts.contains_key(host)).into_iter().rev()
        {
            match (&address.port, address.implied) {
                (Some((port, range)), _) => {
                    if let Some(to) = target(*port) {
                        text.replace_range(range.clone(), &to.to_string());
                    }
                }
                (None, Some(implied)) => {
                    if let Some(to) = target(implied) {
                        text.insert_str(address.host.end, &format!(":{to}"));
                    }
                }
                (None, None) => {}
            }
        }
    }
}
