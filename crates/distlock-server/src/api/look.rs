//! Looking at locks.

use axum::Json;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use distlock_core::Key;
use serde::Deserialize;

use crate::access::Right;
use crate::api::ask::{Ask, Named};
use crate::api::openapi::Problems;
use crate::api::types::{ListView, LockView, bad};
use crate::chronicle::Activity;
use crate::problem::Problem;

/// How many locks one page may have.
const PAGE: usize = 1000;

#[derive(Debug, Deserialize)]
pub(crate) struct Page {
    #[serde(default)]
    prefix: String,
    after: Option<String>,
    limit: Option<usize>,
}

/// What a query says.
fn query<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Problem> {
    match query {
        Ok(Query(query)) => Ok(query),
        Err(e) => Err(Problem::malformed(format!("the query is not understood: {e}"))),
    }
}

/// The limit that was asked for, checked.
fn limit(asked: Option<usize>, default: usize, most: usize) -> Result<usize, Problem> {
    match asked {
        None => Ok(default),
        Some(limit) if (1..=most).contains(&limit) => Ok(limit),
        Some(limit) => Err(bad(format!("limit {limit} is not in 1 to {most}")).into()),
    }
}

/// List the locks in use.
#[utoipa::path(get, path = "/v1/locks", operation_id = "list", tag = "locks",
    params(
        ("prefix" = Option<String>, Query, description = "Only keys that start with this, taken literally"),
        ("after" = Option<String>, Query, description = "Only keys after this one: `next` of the page before"),
        ("limit" = Option<u32>, Query, description = "1 to 1000 (default 100)", minimum = 1, maximum = 1000),
        ("namespace" = Option<String>, Query, description = "Default: the gateway's"),
    ),
    responses((status = 200, description = "A page of them, in key order", body = ListView), Problems))]
pub(crate) async fn list(
    ask: Ask,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Json<ListView>, Problem> {
    let tenant = ask.tenant(Right::Read).await?;
    let page = query(page)?;
    let limit = limit(page.limit, 100, PAGE)?;
    let after = page.after.map(Key::new).transpose()?;
    let listed = tenant.client.list(&page.prefix, after.as_ref(), limit);
    let mut locks = ask.within(listed).await?;
    ask.gateway.seats.complete(tenant.namespace(), &mut locks);
    let next = locks.last().filter(|_| locks.len() == limit);
    Ok(Json(ListView {
        next: next.map(|info| info.key.to_string()),
        locks: locks.iter().map(|info| LockView::new(info, ask.client)).collect(),
    }))
}

/// Show who holds a lock, and who waits for it.
///
/// For people; never decide by it who holds.
#[utoipa::path(get, path = "/v1/locks/{key}", operation_id = "inspect", tag = "locks",
    params(
        ("key" = String, Path, description = "The lock's name, percent-encoded", example = "order:42"),
        ("namespace" = Option<String>, Query, description = "Default: the gateway's"),
    ),
    responses((status = 200, description = "Its state; a free lock has no holders", body = LockView), Problems))]
pub(crate) async fn inspect(ask: Ask, Named(key): Named) -> Result<Json<LockView>, Problem> {
    let tenant = ask.tenant(Right::Read).await?;
    let mut info = [ask.within(tenant.client.inspect(&key)).await?];
    ask.gateway.seats.complete(tenant.namespace(), &mut info);
    let [info] = info;
    Ok(Json(LockView::new(&info, ask.client)))
}

#[derive(Debug, Deserialize)]
pub(crate) struct Recent {
    key: Option<String>,
    limit: Option<usize>,
}

/// What this gateway saw lately: losses and breaks, contention, waits.
///
/// It is kept in memory: another gateway, or this one after a restart, has seen other things.
#[utoipa::path(get, path = "/v1/activity", operation_id = "activity", tag = "locks",
    params(
        ("key" = Option<String>, Query, description = "Only of this key"),
        ("limit" = Option<u32>, Query, description = "1 to 500 events (default 50)", minimum = 1, maximum = 500),
        ("namespace" = Option<String>, Query, description = "Default: the gateway's"),
    ),
    responses((status = 200, description = "Newest first", body = Activity), Problems))]
pub(crate) async fn activity(
    ask: Ask,
    recent: Result<Query<Recent>, QueryRejection>,
) -> Result<Json<Activity>, Problem> {
    let tenant = ask.tenant(Right::Read).await?;
    let recent = query(recent)?;
    let limit = limit(recent.limit, 50, 500)?;
    let seen = ask
        .gateway
        .chronicle
        .activity(tenant.namespace(), recent.key.as_deref(), limit);
    Ok(Json(seen))
}
