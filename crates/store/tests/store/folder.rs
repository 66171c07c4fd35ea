//! The folder: looking up, removing, damage.

use faultscope_store::{Retention, Store, StoreErrorKind, new_campaign_id};

use crate::{meta, store};

#[test]
fn campaigns_are_found_by_prefix_and_removed_by_age() {
    let (_folder, store) = store();
    for (id, started) in [("aa11-1", 3), ("aa22-1", 1), ("bb33-1", 2)] {
        let campaign = store.campaign(meta(id, started)).unwrap();
        store.keep(campaign.id(), id == "aa22-1").unwrap();
    }
    let ids = |store: &Store| -> Vec<String> {
        store.campaigns().unwrap().iter().map(|campaign| campaign.meta.id.to_string()).collect()
    };
    assert_eq!(ids(&store), ["aa11-1", "bb33-1", "aa22-1"]);
    assert_eq!(store.find_campaign("bb").unwrap().meta, meta("bb33-1", 2));
    for (prefix, kind) in [
        ("aa", StoreErrorKind::Ambiguous),
        ("cc", StoreErrorKind::NotFound),
        ("", StoreErrorKind::Invalid),
        ("../x", StoreErrorKind::Invalid),
    ] {
        assert_eq!(store.find_campaign(prefix).unwrap_err().kind, kind, "{prefix}");
    }
    let ambiguous = store.find_campaign("aa").unwrap_err();
    assert_eq!(ambiguous.source.to_string(), "`aa` may be `aa11-1`, `aa22-1`");
    assert_eq!(store.campaign(meta("aa11-1", 9)).unwrap_err().kind, StoreErrorKind::InUse);

    let live = store.campaign(meta("cc44-1", 0)).unwrap();
    assert_eq!(store.remove(live.id()).unwrap_err().kind, StoreErrorKind::InUse);
    let removed = store.retain(Retention { most_campaigns: Some(2), ..Retention::default() }).unwrap();
    assert_eq!(removed.iter().map(ToString::to_string).collect::<Vec<_>>(), ["bb33-1", "aa11-1"]);
    assert_eq!(ids(&store), ["aa22-1", "cc44-1"], "kept and living ones stay");
    drop(live);
    store.remove(&"aa22-1".parse().unwrap()).unwrap();
    assert_eq!(ids(&store), ["cc44-1"]);
}

#[test]
fn damage_is_an_error_of_its_kind() {
    let (folder, store) = store();
    drop(store.campaign(meta("aa11-1", 1)).unwrap());
    let campaign = folder.path().join(".faultscope/campaigns/aa11-1");
    let kind_of = |file: &str, text: &str| {
        let path = campaign.join(file);
        let before = std::fs::read(&path).unwrap();
        std::fs::write(&path, text).unwrap();
        let found =
            store.find_campaign("aa").and_then(|c| c.reader()).map(|_| ()).map_err(|error| error.kind);
        std::fs::write(&path, before).unwrap();
        found
    };
    assert_eq!(kind_of("campaign.json", "{\"format\": 99}"), Err(StoreErrorKind::Newer));
    assert_eq!(kind_of("campaign.json", "{\"format\": 1}"), Err(StoreErrorKind::Damaged));
    assert_eq!(kind_of("campaign.json", "nonsense"), Err(StoreErrorKind::Damaged));
    assert_eq!(kind_of("store.sqlite", &"not a database ".repeat(100)), Err(StoreErrorKind::Damaged));
    assert_eq!(kind_of("store.sqlite", ""), Err(StoreErrorKind::Damaged));
    assert_eq!(kind_of("events.jsonl", "x"), Ok(()));
    assert!(store.campaigns().unwrap().len() == 1);

    std::fs::write(folder.path().join("file"), "x").unwrap();
    assert_eq!(Store::open(folder.path().join("file")).unwrap_err().kind, StoreErrorKind::Damaged);
    assert_eq!(Store::open(folder.path().join("no/such")).unwrap_err().kind, StoreErrorKind::NotFound);
}

#[test]
fn two_processes_get_different_ids() {
    let ids: std::collections::BTreeSet<String> = (0..1000).map(|n| new_campaign_id(n).to_string()).collect();
    assert_eq!(ids.len(), 1000);
    assert!(ids.iter().all(|id| id.split('-').next().is_some_and(|short| short.len() == 4)));
}
