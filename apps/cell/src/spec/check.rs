//! Finds what a spec says about things that do not exist, before a cell starts.

use std::collections::BTreeSet;

use super::{Operation, Service, Spec, SpecError, Step, Steps, Store};
use crate::expression::Expression;
use crate::template::{Size, Template, Time};

/// Deepest nesting of steps.
const MAXIMUM_NESTING: usize = 16;

/// Settings that every process inherits from its environment would be overridden by accident.
const INHERITED: [&str; 10] =
    ["path", "home", "user", "shell", "port", "hostname", "lang", "pwd", "term", "tmpdir"];

/// Roots that every expression may use.
const ROOTS: [&str; 12] = [
    "body", "path", "query", "header", "method", "setting", "variable", "counter", "instance", "service",
    "random", "now",
];

/// Checks that a spec speaks only of services, pools, settings, variables and names that it has.
pub fn check(spec: &Spec) -> Result<(), SpecError> {
    if spec.version != 1 {
        return Err(meaning("version", format!("{} is not known; this is format 1", spec.version)));
    }
    for (name, service) in spec.services.iter() {
        let place = format!("service `{name}`");
        for setting in service.settings.keys() {
            if INHERITED.contains(&setting.as_str()) {
                let message = format!("setting `{setting}` would be overridden by every environment");
                return Err(meaning(&place, message));
            }
        }
        for (pool, limits) in &service.pools {
            let mut reader = Reader::new(spec, service, None, &Steps::default());
            reader.size(&limits.threads);
            reader.size(&limits.queue);
            reader.time(limits.wait.as_ref());
            reader.result().map_err(|message| meaning(&format!("{place}, pool `{pool}`"), message))?;
        }
        if let Store::Service { service: owner, .. } = &service.store
            && !spec.services.contains_key(owner)
        {
            return Err(meaning(&place, format!("store: there is no service `{owner}`")));
        }
        check_operation(spec, service, &format!("{place}, startup"), None, &service.startup.steps)?;
        for (route, Operation { steps, .. }) in service.operations.iter() {
            let place = format!("{place}, operation `{route}`");
            let route = crate::route::Route::parse(route).map_err(|message| meaning(&place, message))?;
            check_operation(spec, service, &place, Some(&route), steps)?;
        }
    }
    Ok(())
}

fn check_operation(
    spec: &Spec,
    service: &Service,
    place: &str,
    route: Option<&crate::route::Route>,
    steps: &Steps,
) -> Result<(), SpecError> {
    let reader = Reader::new(spec, service, route, steps);
    check_steps(&reader, place, steps, 0)
}

fn check_steps(reader: &Reader<'_>, place: &str, steps: &Steps, depth: usize) -> Result<(), SpecError> {
    if depth > MAXIMUM_NESTING {
        return Err(meaning(place, format!("steps are nested deeper than {MAXIMUM_NESTING}")));
    }
    for (index, step) in steps.iter().enumerate() {
        let place = format!("{place}, step {}", index + 1);
        let mut own = reader.clone();
        own.step(step);
        own.result().map_err(|message| meaning(&place, message))?;
        let mut result = Ok(());
        inner_steps(step, &mut |inner| {
            if result.is_ok() {
                result = check_steps(reader, &place, inner, depth + 1);
            }
        });
        result?;
    }
    Ok(())
}

/// Shows the steps inside a step.
fn inner_steps(step: &Step, visit: &mut dyn FnMut(&Steps)) {
    match step {
        Step::Lock(lock) => visit(&lock.steps),
        Step::Concurrently(branches) => branches.branches.iter().for_each(visit),
        Step::When(when) => {
            visit(&when.then);
            visit(&when.r#else);
        }
        Step::Repeat(repeat) => visit(&repeat.steps),
        Step::Each(each) => visit(&each.steps),
        Step::In(pool) => visit(&pool.steps),
        Step::Try(attempt) => {
            visit(&attempt.steps);
            visit(&attempt.catch);
        }
        _ => {}
    }
}

/// Adds the names that steps bind for later ones.
fn bound_names(steps: &Steps, names: &mut BTreeSet<String>, depth: usize) {
    if depth > MAXIMUM_NESTING {
        return;
    }
    for step in steps.iter() {
        match step {
            Step::Let(values) => names.extend(values.keys().cloned()),
            Step::Call(call) => names.extend(call.r#as.iter().chain(&call.status_as).cloned()),
            Step::Get(get) => names.extend([get.r#as.clone()]),
            Step::Find(find) => names.extend([find.r#as.clone()]),
            Step::Update(update) => names.extend(update.r#as.clone()),
            Step::Increment(increment) => names.extend(increment.r#as.clone()),
            Step::Cache(cache) => names.extend(cache.r#as.clone()),
            Step::Repeat(repeat) => names.extend(repeat.r#as.clone()),
            Step::Each(each) => names.extend([each.r#as.clone()]),
            Step::Try(attempt) => names.extend(attempt.r#as.clone()),
            _ => {}
        }
        inner_steps(step, &mut |inner| bound_names(inner, names, depth + 1));
    }
}

/// Reads the templates of a step and keeps the first complaint.
#[derive(Clone)]
struct Reader<'spec> {
    spec: &'spec Spec,
    service: &'spec Service,
    route: Option<&'spec crate::route::Route>,
    names: std::rc::Rc<BTreeSet<String>>,
    complaint: Option<String>,
}

impl<'spec> Reader<'spec> {
    fn new(
        spec: &'spec Spec,
        service: &'spec Service,
        route: Option<&'spec crate::route::Route>,
        steps: &Steps,
    ) -> Self {
        let mut names = BTreeSet::new();
        bound_names(steps, &mut names, 0);
        let complaint = names
            .iter()
            .find(|name| ROOTS.contains(&name.as_str()))
            .map(|name| format!("`{name}` is taken and cannot be bound"));
        Self { spec, service, route, names: names.into(), complaint }
    }

    fn result(self) -> Result<(), String> {
        self.complaint.map_or(Ok(()), Err)
    }

    fn complain(&mut self, message: String) {
        self.complaint.get_or_insert(message);
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Sleep(sleep) => match sleep {
                super::Sleep::Fixed(time)
                | super::Sleep::Lognormal(time, _)
                | super::Sleep::Exponential(time) => {
                    self.time(Some(time));
                }
                super::Sleep::Around { mean: first, jitter: second }
                | super::Sleep::Uniform(first, second) => {
                    self.time(Some(first));
                    self.time(Some(second));
                }
            },
            Step::Cpu(time) => self.time(Some(time)),
            Step::Memory(memory) => self.size(&memory.allocate),
            Step::Disk(disk) => {
                self.size(&disk.write);
                self.template(&disk.path);
            }
            Step::Get(get) => self.template(&get.key),
            Step::Find(find) => {
                self.templates(find.r#where.values());
                find.limit.iter().for_each(|limit| self.size(limit));
            }
            Step::Put(put) => self.templates([&put.key, &put.value]),
            Step::Update(update) => {
                self.template(&update.key);
                self.templates(update.set.values());
            }
            Step::Increment(increment) => {
                self.template(&increment.key);
                self.templates(&increment.by);
            }
            Step::Delete(delete) => self.template(&delete.key),
            Step::Cache(cache) => self.cache(cache),
            Step::Set(set) => {
                self.template(&set.to);
                self.name("variable", Some(&set.variable));
            }
            Step::Let(values) => self.templates(values.values()),
            Step::Count(count) => self.template(&count.by),
            Step::Lock(lock) => {
                self.template(&lock.name);
                self.time(lock.wait.as_ref());
            }
            Step::Call(call) => self.call(call),
            Step::Concurrently(_) => {}
            Step::When(when) => self.expression(&when.r#if),
            Step::Repeat(repeat) => self.size(&repeat.times),
            Step::Each(each) => self.expression(&each.r#in),
            Step::In(pool) => {
                self.time(pool.wait.as_ref());
                if !self.service.pools.contains_key(&pool.pool) {
                    self.complain(format!("there is no pool `{}`", pool.pool));
                }
            }
            Step::Try(_) => {}
            Step::Fail(fail) => {
                fail.r#if.iter().for_each(|condition| self.expression(condition));
                fail.status.iter().for_each(|status| self.size(status));
                self.templates(&fail.message);
            }
            Step::Crash(crash) => crash.r#if.iter().for_each(|condition| self.expression(condition)),
            Step::Respond(respond) => {
                respond.status.iter().for_each(|status| self.size(status));
                self.templates(&respond.body);
                self.templates(respond.headers.values());
            }
            Step::Log(text) => self.template(text),
        }
    }

    fn cache(&mut self, cache: &super::CacheAccess) {
        self.templates(cache.get.iter().chain(&cache.put).chain(&cache.delete).chain(&cache.value));
        self.time(cache.ttl.as_ref());
        let fits = match (&cache.get, &cache.put, &cache.delete) {
            (Some(_), None, None) => cache.r#as.is_some() && cache.value.is_none() && cache.ttl.is_none(),
            (None, Some(_), None) => cache.r#as.is_none() && cache.value.is_some(),
            (None, None, Some(_)) => cache.r#as.is_none() && cache.value.is_none() && cache.ttl.is_none(),
            _ => false,
        };
        if !fits {
            self.complain("a cache step is `get` with `as`, `put` with `value`, or `delete`".to_owned());
        }
    }

    fn call(&mut self, call: &super::Call) {
        if !self.spec.services.contains_key(&call.service) {
            self.complain(format!("there is no service `{}`", call.service));
        }
        if let Some(method) = &call.method
            && http::Method::from_bytes(method.as_bytes()).is_err()
        {
            self.complain(format!("`{method}` is not a method"));
        }
        for name in call.headers.keys() {
            if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
                self.complain(format!("`{name}` is not a header"));
            }
        }
        self.template(&call.path);
        self.templates(call.query.values().chain(call.headers.values()).chain(&call.body));
        self.time(call.timeout.as_ref());
        self.time(call.backoff.as_ref());
        call.retries.iter().for_each(|retries| self.size(retries));
        if let super::OnError::Default(value) = &call.on_error {
            self.template(value);
        }
    }

    fn name(&mut self, root: &str, field: Option<&str>) {
        let known = match (root, field) {
            ("setting", Some(field)) => self.service.settings.contains_key(field),
            ("variable", Some(field)) => self.service.variables.contains_key(field),
            ("path", Some(field)) => self.route.is_some_and(|route| route.has_parameter(field)),
            _ => ROOTS.contains(&root) || self.names.contains(root),
        };
        if !known {
            let field = field.map(|field| format!(".{field}")).unwrap_or_default();
            self.complain(format!("nothing is called `{root}{field}`"));
        }
    }

    fn template(&mut self, template: &Template) {
        template.visit_names(&mut |root, field| self.name(root, field));
    }

    fn templates<'a>(&mut self, templates: impl IntoIterator<Item = &'a Template>) {
        templates.into_iter().for_each(|template| self.template(template));
    }

    fn expression(&mut self, expression: &Expression) {
        expression.visit_names(&mut |root, field| self.name(root, field));
    }

    fn time(&mut self, time: Option<&Time>) {
        time.iter().for_each(|time| self.template(time.template()));
    }

    fn size(&mut self, size: &Size) {
        self.template(size.template());
    }
}

fn meaning(place: &str, message: impl Into<String>) -> SpecError {
    SpecError::Meaning { place: place.to_owned(), message: message.into() }
}
