//! `bench resilience`: the paper's Table 1 and Figure 9 on real actors, and the harder variants.

use tokio::time::Instant;

use super::runner::{self, Runners};
use super::simulate::{Mutant, System};
use super::{Answer, Ask, Framework, Row, Run, Strategy, Task, Variant, cells, live, replay, tables};
use crate::args::ResilienceArgs;
use crate::bench::{Host, Measured};
use crate::error::BenchError;
use crate::figure::{Direction, Figure};
use crate::report::Table;

/// The number of systems in the paper's table; a file may contain more.
const SYSTEMS: usize = 10;

/// The time limit for the whole Table 1, in seconds.
const TABLE_WITHIN: f64 = 300.0;

/// What is measured for all systems.
struct Plan {
    sound: Vec<Mutant>,
    repeats: u64,
    seed: u64,
}

pub(crate) async fn run(args: &ResilienceArgs, seed: u64, host: &Host<'_>) -> Result<Measured, BenchError> {
    let systems = systems(args, seed)?;
    let program = match args.simulated {
        true => None,
        false => Some(runner::find(args.actors.as_deref(), &host.program)?),
    };
    let runners = Runners::start(&systems, program, host.stop.clone()).await?;
    let mut measured = Measured::default();
    let from = match &args.topologies {
        Some(file) => format!("systems of {}", file.display()),
        None => format!("systems drawn from seed {seed}"),
    };
    let repeats = args.repeats;
    measured.notes.push(format!("{from}; defects at actors 5, 25 and 45, {repeats} searches each"));
    measured.notes.push(match &runners.program {
        Some(program) => format!("real actors: {}", program.display()),
        None => "simulated actors: real ones without --simulated".into(),
    });
    let sound = systems.into_iter().map(Mutant::new).collect();
    let plan = Plan { sound, repeats, seed };
    for framework in runners.frameworks() {
        let name = framework.map_or("simulated".to_owned(), |framework| framework.to_string());
        plan.measure(framework, &name, &runners, host, &mut measured).await?;
    }
    if args.live {
        live::run(seed, host, &mut measured).await?;
    }
    Ok(measured)
}

/// The systems of a file, or drawn from the seed.
fn systems(args: &ResilienceArgs, seed: u64) -> Result<Vec<System>, BenchError> {
    let Some(file) = &args.topologies else {
        return Ok(System::ten(seed));
    };
    let wrong = |cause: String| {
        BenchError::usage(format!("{} contains no systems", file.display()))
            .because(cause)
            .hint("a JSON list of {\"kind\": \"dup\" or \"restart\", \"adj\": {\"0\": [1, 2], \"1\": [2]}}, 50 actors")
    };
    let mut systems =
        System::read(&crate::debug::command::read(file)?).map_err(|error| wrong(error.to_string()))?;
    systems.truncate(SYSTEMS);
    if systems.is_empty() {
        return Err(wrong("it is empty".into()));
    }
    Ok(systems)
}

impl Plan {
    /// Measures everything on one framework.
    async fn measure(
        &self,
        framework: Option<Framework>,
        name: &str,
        runners: &Runners,
        host: &Host<'_>,
        measured: &mut Measured,
    ) -> Result<(), BenchError> {
        let began = Instant::now();
        let what = format!("Table 1, {name}");
        let (rows, found) = self.rows(|v| v == Variant::Paper, framework, &what, runners, host).await?;
        let took = began.elapsed().as_secs_f64();
        measured.figures.extend(tables::paper(name, &rows));
        measured.figures.push(Figure::lower(format!("{name}: whole Table 1"), took, "s").goal(TABLE_WITHIN));
        measured.tables.push(tables::table_1(name, &rows));
        let harder = format!("harder variants, {name}");
        let (more, _) = self.rows(|v| v != Variant::Paper, framework, &harder, runners, host).await?;
        measured.figures.extend(tables::harder(name, &more));
        measured.tables.push(tables::variants(name, &more));
        self.figure_9(framework, name, runners, host, measured).await?;
        if let (Some(program), Some(framework), Some((task, cause))) = (&runners.program, framework, found) {
            host.talk(format!("replays, {name}"));
            measured.figures.push(replay::run(program, framework, &self.sound, &task, cause).await?);
        }
        Ok(())
    }

    /// The rows of these variants, and a defect that the default found.
    async fn rows(
        &self,
        wanted: impl Fn(Variant) -> bool,
        framework: Option<Framework>,
        what: &str,
        runners: &Runners,
        host: &Host<'_>,
    ) -> Result<(Vec<Row>, Option<replay::Found>), BenchError> {
        let mut parts: Vec<(usize, Variant, Strategy, Vec<Task>)> = Vec::new();
        for (number, sound) in self.sound.iter().enumerate() {
            for (variant, strategy) in cells(sound.system().kind) {
                if wanted(variant) {
                    let tasks = Task::of_cell(number, variant, strategy, self.repeats, self.seed);
                    parts.push((number, variant, strategy, tasks));
                }
            }
        }
        let ask = |task: &Task| Ask::Search(framework.unwrap_or(Framework::Ractor), *task);
        let asks: Vec<Ask> = parts.iter().flat_map(|(.., tasks)| tasks.iter().map(ask)).collect();
        let mut runs = runners.ask(what, &asks, host).await?.into_iter().map(searched);
        let (mut rows, mut found) = (Vec::new(), None);
        for (number, variant, strategy, tasks) in parts {
            let of_cell: Vec<Run> = runs.by_ref().take(tasks.len()).collect::<Result<_, _>>()?;
            if (variant, strategy) == (Variant::Paper, Strategy::Default) {
                let right = tasks.iter().zip(&of_cell).find(|(_, run)| run.right);
                found = right.and_then(|(task, run)| Some((*task, run.found.first()?.clone()))).or(found);
            }
            rows.push(Row::new(number, &self.sound[number], variant, strategy, &of_cell));
        }
        Ok((rows, found))
    }

    /// The duration of one run by its number of perturbations, for the largest system of each kind.
    async fn figure_9(
        &self,
        framework: Option<Framework>,
        name: &str,
        runners: &Runners,
        host: &Host<'_>,
        measured: &mut Measured,
    ) -> Result<(), BenchError> {
        let mut table = Table::new(
            format!("Figure 9, {name}: one run by its perturbations (the paper: up to 13 min for restarts)"),
            ["kind", "perturbations", "median of 5", "longest"],
        );
        let size = |number: usize| self.sound[number].targets.candidates.len();
        let mut largest: Vec<usize> = Vec::new();
        for (number, sound) in self.sound.iter().enumerate() {
            match largest.iter_mut().find(|other| self.sound[**other].system().kind == sound.system().kind) {
                None => largest.push(number),
                Some(other) if size(*other) < size(number) => *other = number,
                Some(_) => {}
            }
        }
        for number in largest {
            let (kind, all) = (self.sound[number].system().kind, size(number));
            host.talk(format!("Figure 9, {name}: {kind}"));
            for count in [0, all / 4, all / 2, all * 3 / 4, all] {
                let mut times = Vec::new();
                for _ in 0..5 {
                    let ask = Ask::Time(framework.unwrap_or(Framework::Ractor), number, count);
                    match runners.ask_alone(&ask).await? {
                        Answer::Time(seconds, true) => times.push(seconds),
                        other => return Err(strange(&other)),
                    }
                }
                let what = format!("{name}: one run with {all} perturbations ({kind})");
                let figure = Figure::median(what, &times, "s", Direction::Lower);
                let longest = times.iter().copied().fold(f64::NAN, f64::max);
                let ms = |seconds: f64| format!("{:.1} ms", seconds * 1000.0);
                let middle = figure.measured.unwrap_or(f64::NAN);
                table.rows.push(vec![kind.to_string(), count.to_string(), ms(middle), ms(longest)]);
                if count == all {
                    measured.figures.push(Figure { measured: Some(longest), ..figure }.goal(1.0));
                }
            }
        }
        measured.tables.push(table);
        Ok(())
    }
}

fn searched(answer: Answer) -> Result<Run, BenchError> {
    match answer {
        Answer::Search(run) => Ok(run),
        other => Err(strange(&other)),
    }
}

fn strange(answer: &Answer) -> BenchError {
    BenchError::internal("the bench was answered something else than it asked").because(format!("{answer:?}"))
}
