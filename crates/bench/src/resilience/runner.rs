//! Runs the searches: in programs with real actors, one per core, or with simulated actors in this process.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::try_join_all;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::simulate::{Mutant, System};
use super::{Answer, Ask, Framework};
use crate::bench::Host;
use crate::error::BenchError;

/// The program with real actors, built from `actors/samples`.
pub(super) const PROGRAM: &str = "faultscope-actor-samples";

/// The longest response that is read.
const MAX_ANSWER: u64 = 16 << 20;

/// All runners.
pub(super) struct Runners {
    runners: Vec<Mutex<Runner>>,
    stop: CancellationToken,
    /// The path of the program with real actors; none if they are simulated.
    pub(super) program: Option<PathBuf>,
}

enum Runner {
    Simulated(Arc<Vec<Mutant>>),
    Program { child: Box<Child>, asks: ChildStdin, answers: BufReader<ChildStdout> },
}

impl Runners {
    /// Starts one per core and sends them the systems.
    pub(super) async fn start(
        systems: &[System],
        program: Option<PathBuf>,
        stop: CancellationToken,
    ) -> Result<Self, BenchError> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(16);
        let mut runners = Vec::new();
        match &program {
            None => {
                let sound = Arc::new(systems.iter().cloned().map(Mutant::new).collect::<Vec<_>>());
                runners.extend((0..cores).map(|_| Mutex::new(Runner::Simulated(Arc::clone(&sound)))));
            }
            Some(path) => {
                for _ in 0..cores {
                    runners.push(Mutex::new(Runner::of(path, systems).await?));
                }
            }
        }
        Ok(Self { runners, stop, program })
    }

    /// The available frameworks.
    pub(super) fn frameworks(&self) -> Vec<Option<Framework>> {
        match self.program {
            None => vec![None],
            Some(_) => vec![Some(Framework::Ractor), Some(Framework::Kameo)],
        }
    }

    /// Sends all requests and returns the responses in order; prints progress.
    pub(super) async fn ask(
        &self,
        what: &str,
        asks: &[Ask],
        host: &Host<'_>,
    ) -> Result<Vec<Answer>, BenchError> {
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let began = Instant::now();
        let work = self.runners.iter().map(|runner| async {
            let mut runner = runner.lock().await;
            let mut answers = Vec::new();
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(ask) = asks.get(place) else {
                    return Ok::<_, BenchError>(answers);
                };
                answers.push((place, runner.ask(ask).await?));
                let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                if done.is_multiple_of(asks.len().div_ceil(10)) || done == asks.len() {
                    let seconds = began.elapsed().as_secs();
                    host.talk(format!("{what}: {done} of {}, {seconds} s", asks.len()));
                }
            }
        });
        let answered = tokio::select! {
            answered = try_join_all(work) => answered?,
            () = self.stop.cancelled() => return Err(BenchError::interrupted()),
        };
        let mut answers: Vec<(usize, Answer)> = answered.into_iter().flatten().collect();
        answers.sort_by_key(|(place, _)| *place);
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }

    /// Sends a request to one runner while the others are idle.
    pub(super) async fn ask_alone(&self, ask: &Ask) -> Result<Answer, BenchError> {
        let Some(runner) = self.runners.first() else {
            return Err(BenchError::internal("there is nobody to ask"));
        };
        let mut runner = runner.lock().await;
        tokio::select! {
            answer = runner.ask(ask) => answer,
            () = self.stop.cancelled() => Err(BenchError::interrupted()),
        }
    }
}

impl Runner {
    async fn of(program: &Path, systems: &[System]) -> Result<Self, BenchError> {
        let mut child = Command::new(program)
            .arg("bench")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| missing(program).because(e))?;
        let (Some(asks), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(BenchError::internal("a program without pipes"));
        };
        let mut runner = Self::Program { child: Box::new(child), asks, answers: BufReader::new(answers) };
        match runner.ask(&Ask::Systems(System::write(systems))).await? {
            Answer::Systems(count) if count == systems.len() => Ok(runner),
            other => Err(missing(program).because(format!("it answered {other:?}"))),
        }
    }

    async fn ask(&mut self, ask: &Ask) -> Result<Answer, BenchError> {
        let answer = match self {
            Self::Simulated(systems) => {
                let (systems, ask) = (Arc::clone(systems), ask.clone());
                let run = tokio::task::spawn_blocking(move || simulated(&systems, &ask));
                run.await.map_err(|e| BenchError::internal("a simulated search broke").because(e))?
            }
            Self::Program { child, asks, answers } => exchange(child, asks, answers, ask).await?,
        };
        match answer {
            Answer::Problem(problem) => {
                let text = "the program with real actors cannot do what the bench asks";
                Err(BenchError::environment(text).because(problem).hint(REBUILD))
            }
            answer => Ok(answer),
        }
    }
}

async fn exchange(
    child: &mut Child,
    asks: &mut ChildStdin,
    answers: &mut BufReader<ChildStdout>,
    ask: &Ask,
) -> Result<Answer, BenchError> {
    let broken = |cause: String| {
        BenchError::environment("the program with real actors broke").because(cause).hint(REBUILD)
    };
    let mut line = serde_json::to_string(ask).map_err(|e| broken(e.to_string()))?;
    line.push('\n');
    let mut answer = String::new();
    // A program that has ended accepts nothing, but its earlier output can be read.
    let _ = asks.write_all(line.as_bytes()).await;
    answers.take(MAX_ANSWER).read_line(&mut answer).await.map_err(|e| broken(e.to_string()))?;
    if answer.is_empty() {
        let mut said = String::new();
        // Its stderr is complete only when it is closed.
        let _ = child.start_kill();
        if let Some(stderr) = &mut child.stderr {
            let _ = stderr.take(4096).read_to_string(&mut said).await;
        }
        return Err(broken(if said.trim().is_empty() { "it ended".into() } else { said.trim().to_owned() }));
    }
    serde_json::from_str(&answer).map_err(|e| broken(format!("its response is not valid: {e}")))
}

fn simulated(systems: &[Mutant], ask: &Ask) -> Answer {
    let unknown = || Answer::Problem("no such system".into());
    match ask {
        Ask::Systems(_) => Answer::Systems(systems.len()),
        Ask::Search(_, task) => systems.get(task.system).map_or_else(unknown, |sound| {
            Answer::Search(task.run(sound, &mut |mutant, set, seed| mutant.run(set, seed)))
        }),
        Ask::Time(_, number, count) => systems.get(*number).map_or_else(unknown, |sound| {
            let set = sound.targets.full().iter().take(*count).collect();
            let began = Instant::now();
            let passed = sound.run(&set, 1).0 == faultscope_model::Outcome::Pass;
            Answer::Time(began.elapsed().as_secs_f64(), passed)
        }),
    }
}

const REBUILD: &str =
    "build it anew from the same sources: cargo build --release -p faultscope-actor-samples";

fn missing(program: &Path) -> BenchError {
    let text = format!("{} does not run real actors", program.display());
    BenchError::environment(text).hint(REBUILD)
}

/// The program with real actors: the given one, else beside the tool, else from the PATH.
pub(super) fn find(given: Option<&Path>, tool: &Path) -> Result<PathBuf, BenchError> {
    let missing = |message: String| BenchError::unavailable(message).hint(BUILD);
    if let Some(given) = given {
        let is_there = given.is_file();
        return if is_there {
            Ok(given.to_owned())
        } else {
            Err(missing(format!("{} is not an executable file", given.display())))
        };
    }
    let beside = tool.parent().map(|folder| folder.join(PROGRAM));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let others = std::env::split_paths(&path).map(|folder| folder.join(PROGRAM));
    beside
        .into_iter()
        .chain(others)
        .find(|program| program.is_file())
        .ok_or_else(|| missing(format!("{PROGRAM} is neither beside this program nor on the PATH")))
}

const BUILD: &str =
    "`cargo build --release -p faultscope-actor-samples` builds it; --simulated needs no real actors";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::BenchErrorKind;

    #[test]
    fn missing_actors_are_unavailable_and_say_how_to_build_them() {
        let folder = tempfile::tempdir().unwrap();
        let tool = folder.path().join("faultscope");
        for found in [find(Some(&folder.path().join("other")), &tool), find(None, &tool)] {
            let error = found.unwrap_err();
            assert!(matches!(error.kind, BenchErrorKind::Unavailable), "{error:?}");
            assert!(error.hint.unwrap().contains("cargo build --release -p faultscope-actor-samples"));
        }
        let beside = folder.path().join(PROGRAM);
        std::fs::write(&beside, "").unwrap();
        assert_eq!(find(None, &tool).unwrap(), beside);
    }
}
