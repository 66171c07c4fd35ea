//! Finds and reads the application file, and creates the platform it runs on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use faultscope_engine::{Cases, MAX_APPLICATION_FILE, SessionOptions, read_text_bounded};
use faultscope_model::application::{HardcodedHost, IsolationChoice, Service, TestBody, TestCase, nearest};
use faultscope_model::circumstance::Order;
use faultscope_model::series::CallName;
use faultscope_model::space::Series;
use faultscope_model::units::count;
use faultscope_model::wiring::RecordLevel;
use faultscope_model::{Application, CampaignKind, Circumstance, DeltaSet, ServiceName, Space};
#[cfg(feature = "docker")]
use faultscope_platform::docker::{DockerOptions, DockerPlatform};
use faultscope_platform::process::{ProcessOptions, ProcessPlatform, WantedIsolation};
use faultscope_platform::{Isolation, Platform};
use faultscope_store::secrets::SecretOptions;

use crate::args::{IsolationArg, PlatformChoice, RecordArg, Target, Under};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;

/// The default name of an application file.
pub(crate) const FILE_NAME: &str = "faultscope.yaml";

/// Larger programs are not searched for host names.
const MAX_PROGRAM: u64 = 1 << 20;

/// An application and the folder of its file.
#[derive(Debug)]
pub(crate) struct Project {
    pub(crate) application: Application,
    pub(crate) root: PathBuf,
    /// The application file and those it extends, in this order; none for a comparison.
    pub(crate) files: Vec<PathBuf>,
}

impl Project {
    /// How the values of this application are stored.
    pub(crate) fn secrets(&self) -> SecretOptions {
        let record = &self.application.record;
        SecretOptions { rules: record.secrets.clone(), plain: record.plain, key: None }
    }

    /// The requested application: one file, or two deployments merged.
    pub(crate) fn open(target: &Target, printer: &Printer) -> Result<Self, CommandError> {
        if target.comparison.is_asked_for() {
            target.comparison.read(printer)
        } else {
            Self::read(&target.file)
        }
    }

    /// Reads an application file, given its path or its folder.
    pub(crate) fn read(path: &Path) -> Result<Self, CommandError> {
        let file = if path.is_dir() { path.join(FILE_NAME) } else { path.to_owned() };
        let text = read_text_bounded(&file, MAX_APPLICATION_FILE).map_err(|e| {
            let error = CommandError::new(Exit::Spec, format!("cannot read {}", file.display()));
            let error = if e.kind() == std::io::ErrorKind::NotFound {
                error.hint("`faultscope init` writes one from a Compose file or a Procfile; `faultscope demo` needs none")
            } else {
                error
            };
            error.because(e)
        })?;
        let name = file.to_string_lossy().into_owned();
        let files = std::cell::RefCell::new(vec![file.clone()]);
        let load = |base: &str, path: &str| {
            let next = Path::new(base).parent().unwrap_or(Path::new("")).join(path);
            let text = read_text_bounded(&next, MAX_APPLICATION_FILE).map_err(|e| e.to_string())?;
            files.borrow_mut().push(next.clone());
            Ok((text, next.to_string_lossy().into_owned()))
        };
        let mut application = Application::read(&text, &name, &load)?;
        // Paths in a file are relative to the outermost file it extends, or to the directory it names: that is
        // where the services are.
        let root = std::fs::canonicalize(&application.folder).map_err(|e| {
            CommandError::new(Exit::Spec, format!("cannot open {}", application.folder))
                .because(e)
                .hint("`directory` names the folder of the services, relative to the application file")
        })?;
        faultscope_engine::load_protos(&mut application, &root)?;
        application.check_grpc_steps()?;
        Ok(Self { application, root, files: files.into_inner() })
    }

    /// Replaces tests that list their cases by one test for each case.
    pub(crate) async fn find_cases(&mut self, printer: &Printer) -> Result<Vec<Cases>, CommandError> {
        let lists = |test: &TestCase| matches!(test.body, TestBody::Discover { each: Some(_), .. });
        let Some(test) = self.application.tests.iter().find(|test| lists(test)) else {
            return Ok(Vec::new());
        };
        printer.talk(format!("listing the cases of `{}`", test.name));
        // Programs of this machine list the cases, wherever services run, and always with the best isolation that the
        // machine has.
        let options = ProcessOptions {
            isolation: WantedIsolation::Auto,
            program: own_program()?,
            state: Some(self.root.join(".faultscope")),
        };
        let platform = ProcessPlatform::new(options)?;
        platform.reap_orphans().await?;
        let options = self.session(CampaignKind::Test, 0, None)?;
        let found = faultscope_engine::find_cases(&mut self.application, &platform, &options).await;
        let found = found.map_err(|e| {
            CommandError::new(Exit::Spec, "the test cases cannot be found").because(e).hint(
                "`list` must end with 0 and print one case in a line; it runs in the test's `directory`",
            )
        })?;
        for Cases { test, left_out, .. } in found.iter().filter(|cases| cases.left_out > 0) {
            printer.warn(format!(
                "{test}: {} skipped, because the name would be mistaken for something else",
                count(*left_out, "case")
            ));
        }
        Ok(found)
    }

    /// Services that run and have no command, as one has after `init` from images: all of them in one message.
    fn check_commands(&self) -> Result<(), CommandError> {
        let lacking = self.running_services_without(has_command);
        if lacking.is_empty() {
            return Ok(());
        }
        let message = format!("no `command` for {}, so processes cannot be started", lacking.join(", "));
        let hint = "give each the command that starts it on this machine, or use --platform docker, which runs images";
        Err(CommandError::new(Exit::Spec, message).hint(hint))
    }

    /// Services that run and have no image: `build` is not carried out, only its result can be run.
    #[cfg(feature = "docker")]
    fn check_images(&self) -> Result<(), CommandError> {
        let has_image = |service: &Service| {
            let own_program = service.entrypoint.iter().flatten().chain(&service.command).next();
            service.image.is_some()
                || service.versions.values().any(|version| version.image.is_some())
                || own_program.is_some_and(|program| program.contains("${faultscope}"))
        };
        let lacking = self.running_services_without(has_image);
        if lacking.is_empty() {
            return Ok(());
        }
        let message = format!("no `image` for {}, so containers cannot be started", lacking.join(", "));
        let hint = "images are not built here: build them, for example with `docker compose build`, \
                    and give each its name under `image`";
        Err(CommandError::new(Exit::Spec, message).hint(hint))
    }

    /// Names of the services that have an instance in some circumstance and lack something.
    fn running_services_without(&self, has: impl Fn(&Service) -> bool) -> Vec<&str> {
        let Application { services, simplest, failing, .. } = &self.application;
        let runs = |name: &ServiceName| {
            [simplest, failing].iter().any(|circumstance| circumstance.instances.get(name) != Some(&0))
        };
        let lacking = services.iter().filter(|(name, service)| runs(name) && !has(service));
        lacking.map(|(name, _)| name.as_str()).collect()
    }

    /// The requested platform.
    pub(crate) async fn platform(&self, target: &Target) -> Result<Arc<dyn Platform>, CommandError> {
        let isolation = match target.isolation {
            None => match self.application.isolation {
                IsolationChoice::Auto => WantedIsolation::Auto,
                IsolationChoice::Netns => WantedIsolation::Netns,
                IsolationChoice::Ports => WantedIsolation::Ports,
            },
            Some(IsolationArg::Auto) => WantedIsolation::Auto,
            Some(IsolationArg::Netns) => WantedIsolation::Netns,
            Some(IsolationArg::Ports) => WantedIsolation::Ports,
        };
        match target.platform {
            PlatformChoice::Process => {
                self.check_commands()?;
                let options = ProcessOptions {
                    isolation,
                    program: own_program()?,
                    state: Some(self.root.join(".faultscope")),
                };
                let platform = ProcessPlatform::new(options)?;
                platform.reap_orphans().await?;
                Ok(Arc::new(platform))
            }
            #[cfg(feature = "docker")]
            PlatformChoice::Docker => {
                self.check_images()?;
                let state = Some(self.root.join(".faultscope"));
                let options = DockerOptions { state, ..DockerOptions::default() };
                let platform = DockerPlatform::connect(options).await?;
                platform.reap_orphans().await?;
                Ok(Arc::new(platform))
            }
        }
    }

    /// Warns of host names that do not resolve if services are isolated by ports only.
    pub(crate) fn warn_of_hardcoded_hosts(&self, platform: &dyn Platform, printer: &Printer) {
        if platform.capabilities().isolation != Isolation::Ports {
            return;
        }
        let read = |path: &str| {
            let path = self.root.join(path);
            read_text_bounded(&path, MAX_PROGRAM).ok()
        };
        for HardcodedHost { service, host, place } in self.application.hardcoded_hosts(read) {
            let host = crate::render::waterfall::plain(&host);
            printer.warn(format!(
                "{service} calls `{host}` by the name in {place}, which leads nowhere with isolation by ports: \
                 let it read the address from its environment (`{}_URL` is set), or use --isolation netns",
                host.split(':').next().unwrap_or_default().to_ascii_uppercase().replace(['-', '.'], "_")
            ));
        }
    }

    /// Warnings about services that are not confined to their slot.
    pub(crate) fn extra_rights(&self) -> Vec<String> {
        let services = self.application.services.iter().filter(|(_, service)| service.privileged);
        let privileged = services.map(|(name, _)| {
            format!("{name} is `privileged`: it has all your rights, also outside of its slot")
        });
        let shared = self
            .application
            .shared
            .iter()
            .map(|path| format!("{path} is `shared`: trials can read and change it"));
        privileged.chain(shared).collect()
    }

    /// Warns about services that are not confined to their slot.
    pub(crate) fn warn_of_extra_rights(&self, printer: &Printer) {
        self.extra_rights().into_iter().for_each(|right| printer.warn(right));
    }

    /// Takes away the rights of [`Self::extra_rights`], for files of somebody else.
    pub(crate) fn drop_extra_rights(&mut self) {
        self.application.services.values_mut().for_each(|service| service.privileged = false);
        self.application.shared.clear();
    }

    /// The options of a session for this project.
    pub(crate) fn session(
        &self,
        purpose: CampaignKind,
        seed: u64,
        record: Option<RecordArg>,
    ) -> Result<SessionOptions, CommandError> {
        let mut options = SessionOptions::new(purpose, self.root.clone(), own_program()?);
        options.seed = seed;
        options.command_line = std::env::args().collect();
        options.record = record.map(|level| match level {
            RecordArg::Timing => RecordLevel::Timing,
            RecordArg::Headers => RecordLevel::Headers,
            RecordArg::Bodies => RecordLevel::default(),
        });
        Ok(options)
    }

    /// The space of deltas and the requested set, with single settings applied to both ends.
    pub(crate) fn under(&self, under: &Under) -> Result<(Space, DeltaSet), CommandError> {
        let mut application = self.application.clone();
        for setting in &under.settings {
            change(
                &application.services.keys().cloned().collect::<Vec<_>>(),
                &mut application.simplest,
                setting,
            )?;
            change(
                &application.services.keys().cloned().collect::<Vec<_>>(),
                &mut application.failing,
                setting,
            )?;
        }
        let spec = |e: &dyn std::fmt::Display| CommandError::new(Exit::Spec, e.to_string());
        let mut space = application.space().map_err(|e| spec(&e))?;
        for order in &under.orders {
            space = impose_order(space, order)?;
        }
        let mut set = if under.failing { space.full() } else { DeltaSet::new() };
        for name in &under.deltas {
            let found = space.deltas.iter().position(|delta| &delta.name == name);
            let Some(found) = found else {
                let near = nearest(name, space.deltas.iter().map(|delta| delta.name.as_str()));
                let hint = near.map_or_else(
                    || "`faultscope check` lists all deltas".to_owned(),
                    |near| format!("did you mean `{near}`? `faultscope check` lists all deltas"),
                );
                return Err(CommandError::usage(format!("there is no delta `{name}`")).hint(hint));
            };
            set.insert(found);
        }
        // A wrong value is reported before anything starts.
        let circumstance = space.circumstance(&set).map_err(|e| spec(&e))?;
        let expansion = faultscope_model::application::Expansion {
            program: String::new(),
            slot: faultscope_model::SlotId(0),
        };
        application.plan(&circumstance, &expansion).map_err(|e| CommandError::usage(e.to_string()))?;
        Ok((space, set))
    }
}

/// Sets the order that the calls of a series have where no delta changes it.
fn impose_order(space: Space, order: &Order) -> Result<Space, CommandError> {
    let is_same = |series: &Series| series.from == order.from && series.handling == order.handling;
    let hint =
        "an order is that of a series under `failing: { sequence: ... }` in the file, with all its calls";
    let Some(index) = space.series.iter().position(is_same) else {
        let message = format!("the file has no `sequence` for {} {}", order.from, order.handling);
        return Err(CommandError::usage(message).hint(hint));
    };
    let series = &space.series[index];
    let is_whole =
        series.calls.len() == order.order.len() && series.calls.iter().all(|call| order.order.contains(call));
    if !is_whole {
        return Err(CommandError::usage(format!("`{order}` is not an order of the calls of its series"))
            .hint(format!("its calls: {}", show_calls(&series.calls))));
    }
    if series.order_known && series.calls != order.order {
        let message = format!("the file orders the calls of {} {} already", order.from, order.handling);
        return Err(CommandError::usage(message).hint(format!("as {}", show_calls(&series.calls))));
    }
    Ok(space.with_request_order(index, &order.order))
}

fn has_command(service: &Service) -> bool {
    let own = service.entrypoint.iter().flatten().chain(&service.command);
    let of_versions = service.versions.values().flat_map(|version| &version.command).flatten();
    own.chain(of_versions).next().is_some()
}

fn show_calls(calls: &[CallName]) -> String {
    calls.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The folder of an application's campaigns, which is that of its services where the application file names one.
pub(crate) fn state_folder(path: &Path) -> PathBuf {
    let folder = if path.is_file() { folder_of(path) } else { path.to_owned() };
    let own = folder.join(".faultscope");
    let file = if path.is_file() { path.to_owned() } else { folder.join(FILE_NAME) };
    if own.is_dir() {
        return own;
    }
    if !file.is_file() {
        return state_of_cases(&folder).unwrap_or(own);
    }
    Project::read(&file).map_or(own, |project| project.root.join(".faultscope"))
}

/// Files of a folder that are tried as application files, in the order of their names.
const MAX_CASES: usize = 50;

/// Where the campaigns of a folder are that only has files which extend one elsewhere, such as `cases/`.
fn state_of_cases(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let is_yaml = |path: &PathBuf| path.extension().is_some_and(|end| end == "yaml" || end == "yml");
    let mut files: Vec<PathBuf> = entries.filter(is_yaml).take(MAX_CASES).collect();
    files.sort();
    let mut states = files.iter().filter_map(|file| Some(Project::read(file).ok()?.root.join(".faultscope")));
    states.find(|state| state.is_dir())
}

/// The secrets that the application file declares, if there is one; otherwise the built-in ones.
pub(crate) fn secrets_of(path: &Path, printer: &Printer) -> SecretOptions {
    let file = if path.is_dir() { path.join(FILE_NAME) } else { path.to_owned() };
    if !file.is_file() {
        return SecretOptions::default();
    }
    match Project::read(&file) {
        Ok(project) => {
            let record = project.application.record;
            SecretOptions { rules: record.secrets, plain: record.plain, key: None }
        }
        Err(_) => {
            printer
                .warn(format!("{} cannot be read: only the built-in secrets are redacted", file.display()));
            SecretOptions::default()
        }
    }
}

pub(crate) fn own_program() -> Result<PathBuf, CommandError> {
    std::env::current_exe()
        .map_err(|e| CommandError::internal("the tool cannot find its own program").because(e))
}

fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn change(
    services: &[ServiceName],
    circumstance: &mut Circumstance,
    setting: &str,
) -> Result<(), CommandError> {
    let wrong = || {
        CommandError::usage(format!("`{setting}` is not a setting"))
            .hint("write nodes=3, instances.order=2, config.order.memory=64MiB, config.order.env.TTL=5 or versions.order=v2")
    };
    let (key, value) = setting.split_once('=').ok_or_else(wrong)?;
    let service = |name: &str| {
        services.iter().find(|s| s.as_str() == name).cloned().ok_or_else(|| {
            let names: Vec<_> = services.iter().map(ServiceName::as_str).collect();
            let hint = nearest(name, names.iter().copied()).map_or_else(
                || format!("services: {}", names.join(", ")),
                |near| format!("did you mean `{near}`?"),
            );
            CommandError::usage(format!("there is no service `{name}`")).hint(hint)
        })
    };
    if key == "nodes" {
        circumstance.nodes = value.parse().ok().filter(|&n| n > 0).ok_or_else(wrong)?;
    } else if let Some(name) = key.strip_prefix("instances.") {
        let count = value.parse().ok().filter(|&n: &u32| n <= 1000).ok_or_else(wrong)?;
        circumstance.instances.insert(service(name)?, count);
    } else if let Some(name) = key.strip_prefix("versions.") {
        circumstance.versions.insert(service(name)?, value.to_owned());
    } else if let Some(rest) = key.strip_prefix("config.") {
        // A service's name may contain dots: the longest match counts.
        let fits = |s: &&ServiceName| rest.strip_prefix(s.as_str()).is_some_and(|rest| rest.starts_with('.'));
        let name = services.iter().filter(fits).max_by_key(|s| s.as_str().len()).ok_or_else(wrong)?;
        let item = &rest[name.as_str().len() + 1..];
        if !matches!(item, "memory" | "cpu" | "pids") && !item.starts_with("env.") {
            return Err(wrong());
        }
        let items: &mut BTreeMap<String, String> = circumstance.config.entry(name.clone()).or_default();
        items.insert(item.to_owned(), value.to_owned());
    } else {
        return Err(wrong());
    }
    Ok(())
}
