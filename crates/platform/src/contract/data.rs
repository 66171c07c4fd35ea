//! Promises about data: what a restart keeps, what the next trial sees.

use faultscope_model::plan::{InstancePlan, Reset};

use super::Case;
use crate::Action;

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
        let plan = self.plan(vec![self.writer()], Reset::Restart);
        self.deploy(&plan).await;
        let order = &plan.instances[0].id;
        let get = async |path: &str| self.get(self.slot, order, 8080, path).await.expect("an answer");
        assert_eq!(get("/append/data/kept").await, "1");
        let snapshot = self.platform.snapshot(self.slot, order).await.expect("data can be kept");
        assert_eq!(get("/append/data/kept").await, "2", "it goes on after a snapshot");
        self.platform.restore(self.slot, order, &snapshot).await.expect("data can be put back");
        self.deploy(&plan).await;
        assert_eq!(get("/size/data/kept").await, "1", "what was kept is there again");
        self.deploy(&plan).await;
        assert_eq!(get("/size/data/kept").await, "0", "and only once");
    }

    /// An instance with one durable directory, which the application folder need not have.
    fn writer(&self) -> InstancePlan {
        let mut order = self.instance("order-1", 8080, &[]);
        order.durable = vec!["data".into()];
        order
    }
}
