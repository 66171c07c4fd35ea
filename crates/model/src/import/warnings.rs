//! Warnings of an import, grouped: what is the same for many services is one line.

use indexmap::IndexMap;

/// How many names a line lists before it counts the rest.
const MAX_NAMES: usize = 3;

/// What was not carried over, or needs a look.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    /// The services that each message is about, in the order in which messages came up; none for the
    /// application as a whole.
    services: IndexMap<String, Vec<String>>,
}

impl Warnings {
    /// Adds a warning about one service.
    pub(super) fn add(&mut self, service: &str, message: impl Into<String>) {
        let services = self.services.entry(message.into()).or_default();
        if !services.iter().any(|known| known == service) {
            services.push(service.to_owned());
        }
    }

    /// Adds a warning about the application.
    pub(super) fn add_general(&mut self, message: impl Into<String>) {
        self.services.entry(message.into()).or_default();
    }

    /// Takes back what was said about a service that is left out after all.
    pub(super) fn forget(&mut self, service: &str) {
        self.services.retain(|_, services| {
            let is_general = services.is_empty();
            services.retain(|known| known != service);
            is_general || !services.is_empty()
        });
    }

    /// The lines to print.
    pub(super) fn render(self) -> Vec<String> {
        self.services
            .into_iter()
            .map(|(message, services)| match services.as_slice() {
                [] => message,
                [one] => format!("service `{one}`: {message}"),
                several => format!("{} services ({}): {message}", several.len(), list_names(several)),
            })
            .collect()
    }
}

/// Names in backquotes: all of them if there are few, otherwise the first ones and a count.
pub(super) fn list_names<S: AsRef<str>>(names: &[S]) -> String {
    let shown = if names.len() > MAX_NAMES + 1 { MAX_NAMES } else { names.len() };
    let mut text = names[..shown].iter().map(|n| format!("`{}`", n.as_ref())).collect::<Vec<_>>().join(", ");
    if names.len() > shown {
        text.push_str(&format!(" and {} more", names.len() - shown));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_messages_are_one_line() {
        let mut warnings = Warnings::default();
        for n in 0..69 {
            warnings.add(&format!("s{n}"), "it has no command");
        }
        warnings.add("s0", "it has no command");
        warnings.add("web", "user is not carried over");
        warnings.add_general("networks keep services apart");
        assert_eq!(
            warnings.render(),
            [
                "69 services (`s0`, `s1`, `s2` and 66 more): it has no command",
                "service `web`: user is not carried over",
                "networks keep services apart",
            ]
        );
        assert_eq!(list_names(&["a", "b", "c", "d"]), "`a`, `b`, `c`, `d`");
    }
}
