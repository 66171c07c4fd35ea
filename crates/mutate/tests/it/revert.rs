//! A mutant that is applied and reverted leaves no trace.

use std::collections::BTreeSet;

use faultscope_mutate::{Language, Source, choose_by_seed, enumerate};
use proptest::prelude::*;

use crate::samples::{SAMPLES, mutants};

fn check_all(path: &str, text: &str, language: Language) -> usize {
    let mutants = mutants(path, text, language);
    for mutant in &mutants {
        let changed = mutant.patch.apply(text).unwrap();
        assert_ne!(changed, text, "{} changes nothing", mutant.id);
        assert_eq!(mutant.patch.revert(&changed).unwrap(), text, "{}", mutant.id);
        assert!(Source::parse(path, changed.as_bytes(), language).is_ok(), "{} breaks the syntax", mutant.id);
    }
    mutants.len()
}

#[test]
fn every_place_of_every_sample() {
    for sample in &SAMPLES {
        assert!(check_all(sample.path, sample.text, sample.language) > 10, "{}", sample.path);
    }
}

#[test]
fn other_line_ends_marks_and_tabs() {
    for sample in &SAMPLES {
        let forms = [
            sample.text.replace('\n', "\r\n"),
            format!("\u{feff}{}", sample.text),
            sample.text.trim_end().to_owned(),
            if sample.language == Language::Yaml {
                sample.text.to_owned()
            } else {
                sample.text.replace("    ", "\t")
            },
        ];
        let places = sample.mutants().len();
        for form in forms {
            assert_eq!(check_all(sample.path, &form, sample.language), places, "{}", sample.path);
            let changed = mutants(sample.path, &form, sample.language);
            let with_returns = form.contains("\r\n");
            for mutant in changed.iter().filter(|_| with_returns) {
                let text = mutant.patch.apply(&form).unwrap();
                assert!(!text.replace("\r\n", "").contains('\n'), "{} mixes line ends", mutant.id);
            }
        }
    }
}

#[test]
fn ids_are_unique_and_survive_changes_elsewhere() {
    for sample in SAMPLES.iter().filter(|sample| sample.language != Language::Yaml) {
        let ids: BTreeSet<String> = sample.mutants().iter().map(|mutant| mutant.id.to_string()).collect();
        assert_eq!(ids.len(), sample.mutants().len(), "{}", sample.path);
        let comment = if sample.language == Language::Python { "#" } else { "//" };
        let longer = format!("{}\n{comment} one more line\n", sample.text);
        let again: BTreeSet<String> = mutants(sample.path, &longer, sample.language)
            .iter()
            .map(|mutant| mutant.id.to_string())
            .collect();
        assert_eq!(ids, again, "{}", sample.path);
    }
}

#[test]
fn a_choice_depends_on_the_seed_only() {
    let all = SAMPLES[4].mutants();
    let some = choose_by_seed(all.clone(), 7, 1);
    assert_eq!(some.len(), 7);
    assert_eq!(some, choose_by_seed(all.clone(), 7, 1));
    assert_ne!(some, choose_by_seed(all.clone(), 7, 2));
    assert_eq!(choose_by_seed(all.clone(), 0, 1), Vec::new());
    assert_eq!(choose_by_seed(all.clone(), all.len() + 1, 1), all);
}

proptest! {
    // Each case makes all mutants of a file; 48 of them take a second.
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Cutting pieces out of samples gives texts that are nearly valid.
    #[test]
    fn damaged_samples_never_panic(which in 0..8_usize, from in 0..3000_usize, length in 0..200_usize) {
        let sample = &SAMPLES[which];
        let mut bytes = sample.text.as_bytes().to_vec();
        let from = from.min(bytes.len());
        bytes.drain(from..(from + length).min(bytes.len()));
        if let Ok(source) = Source::parse(sample.path, &bytes, sample.language) {
            for mutant in enumerate(&source) {
                let changed = mutant.patch.apply(source.text).unwrap();
                prop_assert_eq!(mutant.patch.revert(&changed).unwrap(), source.text);
            }
        }
    }
}
