//! Promises about data: what a restart keeps, what the next trial sees.

use std::path::PathBuf;
use std::time::Duration;

use faultscope_model::plan::{InstancePlan, Reset};

use super::Case;
use crate::{Action, DataForm, PlatformErrorKind, SlotSpec, Snapshot};

/// A new folder in the state folder of an application.
fn snapshot_folder(spec: &SlotSpec) -> PathBuf {
    let folder = spec.state.join("snapshots").join(&spec.label);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

impl Case<'_> {
    pub(super) async fn keeps_durable_data_only(&self) {
        let plan = self.plan(vec![self.writer()], Reset::Restart);
        self.deploy(&plan).await;
        let order = &plan.instances[0].id;
        let get = async |path: &str| self.get(self.slot, order, 8080, path).await.expect("an answer");
        assert_eq!(get("/append/data/kept").await, "1");
        assert_eq!(get("/append/data/kept").await, "2");
        assert_eq!(get("/append/scratch").await, "1");
        self.platform.act(self.slot, order, Action::Restart).await.expect("it can be started again");
        assert_eq!(get("/size/data/kept").await, "2", "a restart keeps durable data");
        assert_eq!(get("/size/scratch").await, "0", "and nothing else");
        self.deploy(&plan).await;
        assert_eq!(get("/size/data/kept").await, "0", "the next trial begins with fresh data");
    }

    pub(super) async fn puts_snapshots_back(&self) {
        if !self.platform.capabilities().snapshots {
            return;
        }
        let folder = snapshot_folder(&(self.application.slot)(self.slot));
        // Kept where possible: a restore must not keep what runs.
        let plan = self.plan(vec![self.writer(), self.instance("stock-1", 8081, &[])], Reset::Keep);
        self.deploy(&plan).await;
        let order = &plan.instances[0].id;
        let get = async |path: &str| self.get(self.slot, order, 8080, path).await.expect("an answer");
        assert_eq!(get("/append/data/kept").await, "1");
        assert_eq!(get("/append/scratch").await, "1");
        let snapshot = self.platform.snapshot(self.slot, &folder).await.expect("data can be kept");
        let ids: Vec<String> = snapshot.instances.iter().map(|instance| instance.id.to_string()).collect();
        assert_eq!(ids, ["order-1", "stock-1"], "a snapshot has all instances");
        assert!(snapshot.instances.iter().all(|instance| instance.ran && instance.at_us > 0));
        assert!(snapshot.spread() < Duration::from_secs(10), "they are frozen together");
        assert_eq!(get("/append/data/kept").await, "2", "it goes on after a snapshot");
        let text = serde_json::to_string(&snapshot).expect("a snapshot is plain data");
        let snapshot: Snapshot = serde_json::from_str(&text).expect("and can be read again");
        for _ in 0..2 {
            self.platform.restore(self.slot, &folder, &snapshot).await.expect("data can be put back");
            self.deploy(&plan).await;
            assert_eq!(get("/size/data/kept").await, "1", "what was kept is there again");
            if snapshot.form != DataForm::Values {
                assert_eq!(get("/size/scratch").await, "1", "and what a restart would have lost");
            }
            assert_eq!(get("/append/data/kept").await, "2", "the snapshot itself never changes");
        }
        self.platform.act(self.slot, order, Action::Restart).await.expect("it can be started again");
        assert_eq!(get("/size/data/kept").await, "2", "a restart keeps durable data");
        assert_eq!(get("/size/scratch").await, "0", "and nothing else");
        self.deploy(&self.plan(vec![self.writer()], Reset::Restart)).await;
        assert_eq!(get("/size/data/kept").await, "0", "a snapshot is put back only once");
        let other = Snapshot { platform: "elsewhere".into(), ..snapshot.clone() };
        let refused = self.platform.restore(self.slot, &folder, &other).await;
        assert_eq!(refused.expect_err("it is of another platform").kind, PlatformErrorKind::BadPlan);
        std::fs::remove_dir_all(&folder).expect("a snapshot is removed with its folder");
        let refused = self.platform.restore(self.slot, &folder, &snapshot).await;
        assert_eq!(refused.expect_err("its files are gone").kind, PlatformErrorKind::BadPlan);
        self.platform.forget_snapshot(&snapshot).await.expect("what else it has is removed");
    }

    /// An instance with one durable directory, which the application folder need not have.
    fn writer(&self) -> InstancePlan {
        let mut order = self.instance("order-1", 8080, &[]);
        order.durable = vec!["data".into()];
        order
    }
}
