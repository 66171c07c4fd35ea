//! The bench's side: harder defects on real actors are as the model says, and lines are answered.

use faultscope_actor_samples::Framework;
use faultscope_actor_samples::bench::{run, serve};
use faultscope_bench::resilience::simulate::{Mutant, System};
use faultscope_bench::resilience::{Answer, Ask, Strategy, Task, Variant};

fn task(system: usize, variant: Variant) -> Task {
    Task { system, variant, strategy: Strategy::Default, actor: 25, seed: 3 }
}

#[test]
fn harder_defects_are_found_on_real_actors() {
    let ten = System::ten(1);
    for framework in [Framework::Ractor, Framework::Kameo] {
        for (number, variant) in [
            (0, Variant::SingleTrigger),
            (3, Variant::SingleTrigger),
            (0, Variant::WeakOracle),
            (0, Variant::Pair),
            (3, Variant::Pair),
            (0, Variant::Defects(3)),
            (3, Variant::Clean),
        ] {
            let sound = Mutant::new(ten[number].clone());
            let task = task(number, variant);
            let real = task.run(&sound, &mut |mutant, set, _| run(framework, mutant, set));
            assert!(real.right, "{framework} {variant} in system {number}: {:?}", real.found);
            let model = task.run(&sound, &mut |mutant, set, seed| mutant.run(set, seed));
            assert_eq!(real, model, "{framework} {variant} in system {number}");
        }
    }
}

#[test]
fn lines_are_answered_and_nonsense_is_refused() {
    let systems = System::write(&System::ten(1)[..1]);
    let mut asked = String::from("nonsense\n");
    let time = |system, count| Ask::Time(Framework::Kameo, system, count);
    for ask in [time(0, 1), Ask::Systems("[]{".into()), Ask::Systems(systems), time(0, 100), time(1, 1)] {
        asked.push_str(&serde_json::to_string(&ask).unwrap());
        asked.push('\n');
    }
    let mut output = Vec::new();
    serve(&mut asked.as_bytes(), &mut output).unwrap();
    let answers: Vec<Answer> =
        String::from_utf8(output).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(
        matches!(
            &answers[..],
            [
                Answer::Problem(_),
                Answer::Problem(unknown),
                Answer::Problem(_),
                Answer::Systems(1),
                Answer::Time(_, true),
                Answer::Problem(_),
            ] if unknown == "there is no system 0"
        ),
        "{answers:?}"
    );
}
