//! distlock's spans as traces of OpenTelemetry.

use opentelemetry::trace::Tracer;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

/// A layer that gives distlock's spans, and nothing else, to a tracer of OpenTelemetry: `acquire` (how long somebody
/// waited) and `run` (how long the body took under the lock), with key, engine and token, below the context that is current
/// where they begin. What distlock tells in words (a long wait, a loss) arrives as their events.
///
/// A program whose subscriber has a layer of `tracing-opentelemetry` for everything needs nothing: the spans are in there.
///
/// ```
/// use opentelemetry::trace::TracerProvider;
/// use tracing_subscriber::prelude::*;
///
/// // Yours, with an exporter.
/// let provider = opentelemetry_sdk::trace::SdkTracerProvider::builder().build();
/// let traces = distlock::opentelemetry(provider.tracer("shop"));
/// tracing_subscriber::registry().with(traces).init();
/// ```
pub fn opentelemetry<S, T>(tracer: T) -> impl Layer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    T: Tracer + Send + Sync + 'static,
    T::Span: Send + Sync,
{
    tracing_opentelemetry::layer()
        .with_tracer(tracer)
        .with_filter(filter_fn(|metadata| metadata.target() == "distlock"))
}
