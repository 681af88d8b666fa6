//! What endangers locks on the engine behind this gateway.

use axum::Json;
use distlock_core::ErrorKind;
use distlock_core::driver::Finding;
use serde::Serialize;
use utoipa::ToSchema;

use crate::access::Right;
use crate::api::ask::Ask;
use crate::api::openapi::Problems;
use crate::problem::Problem;

/// What was found.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DoctorView {
    /// The worst first; empty when all is well.
    findings: Vec<FindingView>,
}

/// One thing that was found.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FindingView {
    /// `info`, `warning` (locks can be lost in a way that the setting could prevent) or `error`.
    severity: String,
    /// A stable word, such as `redis-eviction`.
    id: String,
    /// What it is, and what that does to locks.
    what: String,
    /// What to change.
    fix: String,
}

impl From<Finding> for FindingView {
    fn from(finding: Finding) -> Self {
        Self {
            severity: finding.severity.to_string(),
            id: finding.id.into_owned(),
            what: finding.what,
            fix: finding.fix,
        }
    }
}

/// Examine the engine's settings for what endangers locks.
#[utoipa::path(get, path = "/v1/doctor", operation_id = "doctor", tag = "service",
    params(("namespace" = Option<String>, Query, description = "Default: the gateway's")),
    responses((status = 200, description = "What was found", body = DoctorView), Problems))]
pub(crate) async fn doctor(ask: Ask) -> Result<Json<DoctorView>, Problem> {
    let tenant = ask.tenant(Right::Read).await?;
    let asked = async {
        match tenant.client.doctor().await {
            Err(e) if e.kind() == ErrorKind::Unsupported => Ok(Vec::new()),
            asked => asked,
        }
    };
    let findings = ask.within(asked).await?.into_iter().map(Into::into).collect();
    Ok(Json(DoctorView { findings }))
}
