//! Finds the service whose start takes most of every trial, which `reset: keep` would spare.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use faultscope_model::plan::Reset;
use faultscope_model::units::show_duration;
use faultscope_model::{Application, ServiceName};

/// Shorter starts are not worth a word: a campaign of 40 trials loses two minutes.
const LEAST: Duration = Duration::from_secs(3);

/// The slowest start so far, until it has been announced.
#[derive(Debug, Default)]
pub(crate) struct SlowStart(Mutex<Watch>);

#[derive(Debug, Default)]
enum Watch {
    #[default]
    Nothing,
    Slowest(ServiceName, Duration),
    Announced,
}

impl SlowStart {
    /// Notes when the services of a deployment were ready, counted from its beginning.
    pub(crate) fn note(&self, application: &Application, ready: &BTreeMap<ServiceName, Duration>) {
        let Some((service, took)) = find_slowest(application, ready) else { return };
        let mut watch = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*watch {
            Watch::Announced => {}
            Watch::Slowest(_, known) if *known >= took => {}
            Watch::Nothing | Watch::Slowest(..) => *watch = Watch::Slowest(service.clone(), took),
        }
    }

    /// What to say after a trial that took this long, once.
    pub(crate) fn announce(&self, trial: Duration) -> Option<String> {
        let mut watch = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Watch::Slowest(service, took) = &*watch else { return None };
        if *took < LEAST || *took * 2 < trial {
            return None;
        }
        let text = format!(
            "{service} takes {} of a trial of {} to start; if it keeps no state that matters, `services.{service}.reset: \
             keep` in the application file lets trials share it",
            show_duration(*took),
            show_duration(trial)
        );
        *watch = Watch::Announced;
        Some(text)
    }
}

/// The service that is started anew and took longest by itself, that is after all that it waits for.
fn find_slowest<'a>(
    application: &Application,
    ready: &'a BTreeMap<ServiceName, Duration>,
) -> Option<(&'a ServiceName, Duration)> {
    let own = ready.iter().filter_map(|(name, at)| {
        let service = application.services.get(name)?;
        let before = service.after.iter().filter_map(|other| ready.get(other)).max().copied();
        let is_fresh = service.reset.unwrap_or(application.reset) == Reset::Restart;
        is_fresh.then(|| (name, at.saturating_sub(before.unwrap_or_default())))
    });
    own.max_by_key(|(_, took)| *took)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn application(reset: &str) -> Application {
        let file = format!(
            "services: {{ db: {{ command: [db], reset: {reset} }}, web: {{ command: [web], after: [db] }} }}"
        );
        Application::read_alone(&file, "f").unwrap()
    }

    fn ready(db: u64, web: u64) -> BTreeMap<ServiceName, Duration> {
        [("db", db), ("web", web)]
            .map(|(name, seconds)| (name.parse().unwrap(), Duration::from_secs(seconds)))
            .into()
    }

    fn announced(reset: &str, (db, web): (u64, u64), trial: u64) -> Option<String> {
        let slow = SlowStart::default();
        slow.note(&application(reset), &ready(db, web));
        slow.announce(Duration::from_secs(trial))
    }

    #[test]
    fn the_start_that_takes_half_of_a_trial_is_named_once() {
        let slow = SlowStart::default();
        slow.note(&application("restart"), &ready(12, 13));
        let text = slow.announce(Duration::from_secs(14)).unwrap();
        assert!(text.starts_with("db takes 12.0s of a trial of 14.0s to start; "), "{text}");
        assert!(text.contains("`services.db.reset: keep`"), "{text}");
        slow.note(&application("restart"), &ready(20, 21));
        assert_eq!(slow.announce(Duration::from_secs(22)), None);
    }

    #[test]
    fn others_need_no_word() {
        assert!(announced("restart", (1, 9), 10).is_some_and(|text| text.starts_with("web takes 8.0s")));
        for (why, reset, starts, trial) in [
            ("short", "restart", (2, 3), 4),
            ("the tests take longer", "restart", (4, 5), 20),
            ("kept already", "keep", (12, 13), 14),
        ] {
            assert_eq!(announced(reset, starts, trial), None, "{why}");
        }
    }
}
