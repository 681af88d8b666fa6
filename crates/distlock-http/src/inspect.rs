//! Looking at locks, and breaking them.

use async_trait::async_trait;
use distlock_core::Key;
use distlock_core::driver::{Break, DriverError, Finding, Holder, Inspect, LockInfo};

use crate::doctor;
use crate::driver::HttpDriver;
use crate::gateway::part;
use crate::wire::{BreakBody, BreakView, DoctorView, ListView, LockView, time};

/// The most locks in one answer.
const PAGE: usize = 1000;

#[async_trait]
impl Inspect for HttpDriver {
    async fn list(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<LockInfo>, DriverError> {
        let mut all = Vec::new();
        let mut after = after.map(ToString::to_string);
        while all.len() < limit {
            let page = (limit - all.len()).min(PAGE).to_string();
            let mut query = vec![("prefix", prefix), ("limit", &page)];
            query.extend(after.as_deref().map(|after| ("after", after)));
            let view: ListView = self.shared.gateway.get("/v1/locks", &query).await?;
            all.extend(view.locks.into_iter().filter_map(LockView::info));
            match view.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        Ok(all)
    }

    async fn inspect(&self, key: &Key) -> Result<LockInfo, DriverError> {
        let path = format!("/v1/locks/{}", part(key.as_str()));
        let view: LockView = self.shared.gateway.get(&path, &[]).await?;
        Ok(view.info().unwrap_or_else(|| LockInfo::free(key.clone())))
    }

    async fn break_lock(&self, key: &Key, how: &Break) -> Result<Vec<Holder>, DriverError> {
        let path = format!("/v1/locks/{}/break", part(key.as_str()));
        let body = BreakBody {
            reason: how.reason.as_deref().unwrap_or("no reason was given"),
            expect_token: how.expect.map(|token| token.get()),
            grace: time(how.grace),
        };
        let (view, _) = self.shared.gateway.post::<BreakView>(&path, &body).await?;
        Ok(view.broken.into_iter().map(Into::into).collect())
    }

    async fn doctor(&self) -> Result<Vec<Finding>, DriverError> {
        let gateway = &self.shared.gateway;
        let view: DoctorView = gateway.get("/v1/doctor", &[]).await?;
        let mut findings: Vec<Finding> = view.findings.into_iter().map(Into::into).collect();
        findings.extend(doctor::examine(&gateway.engines().await, gateway.shows_token()));
        Ok(findings)
    }
}
