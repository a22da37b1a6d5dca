//! Serves the figures' pages over HTTP, to scrapers.
//!
//! One thread serves clients and handles signals, and never waits for a process or a client. Looks
//! are made on another thread, one for all scrapes at a time (`looks`). Clients that are silent or
//! do not take their answer make room for other clients (`connections`).

use std::cell::Cell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{header, Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::signal::unix::{signal, SignalKind};

use crate::connections::Connections;
use crate::listen::Listen;
use crate::looks::Pages;
use crate::Told;

/// The content type of the page in OpenMetrics.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The content type of the older format, for scrapers that do not ask for the newer one.
const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";
/// A connection is closed if no request arrives within this time. Chosen: as long as Prometheus
/// waits for a scrape.
const PATIENCE: Duration = Duration::from_secs(10);
/// A connection is closed if it lasts longer. It adds five seconds for the look and ten for the
/// answer.
const LONGEST: Duration = Duration::from_secs(25);

/// Serves pages until a signal ends it.
pub fn serve(
    listen: &Listen,
    allow_remote: bool,
    pages: impl Pages + 'static,
    tell: fn(Told),
) -> Result<()> {
    let addresses = listen.addresses(allow_remote);
    let addresses = addresses.map_err(anyhow::Error::msg)?;
    let reached = addresses.iter().find(|address| !address.ip().is_loopback());
    if let (Some(address), false) = (reached, allow_remote) {
        bail!(
            "{address} can be reached from other machines, and whoever connects reads names and \
             sizes of your processes; --allow-remote says that this is meant"
        );
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the server can not be set up")?;
    let local = tokio::task::LocalSet::new();
    let done = local.block_on(&runtime, answer_all(listen, &addresses, pages, tell));
    // The exporter does not wait for a look that is being made.
    runtime.shutdown_background();
    done
}

async fn answer_all(
    listen: &Listen,
    addresses: &[SocketAddr],
    pages: impl Pages + 'static,
    tell: fn(Told),
) -> Result<()> {
    let listener = TcpListener::bind(addresses)
        .await
        .with_context(|| format!("{listen} can not be listened on"))?;
    let address = listener.local_addr().context("the address is not known")?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    tell(Told::Line(format!("loam: http://{address}/metrics")));
    let looks = Rc::new(pages);
    let connections = Connections::default();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted,
            // A signal is the normal way to end, so this is a success.
            _ = interrupted.recv() => return Ok(()),
            _ = terminated.recv() => return Ok(()),
        };
        let Ok((stream, _)) = stream else {
            // Most likely the process has no free descriptors; some will be free soon.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        if !connections.admit() {
            continue;
        }
        let looks = Rc::clone(&looks);
        let waits = Rc::new(Cell::new(false));
        let waiting = Rc::clone(&waits);
        let task = tokio::task::spawn_local(async move {
            let service = service_fn(|request| {
                let (looks, waiting) = (Rc::clone(&looks), Rc::clone(&waiting));
                async move {
                    waiting.set(true);
                    let answer = answer(&request, &*looks).await;
                    waiting.set(false);
                    Ok::<_, Infallible>(answer)
                }
            });
            // A client that breaks off a scrape does no harm.
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            let _ = tokio::time::timeout(LONGEST, connection).await;
        });
        connections.add(waits, task.abort_handle());
        // The client may have asked already. Its task runs now, so that its request is known before
        // further clients are accepted.
        tokio::task::yield_now().await;
    }
}

async fn answer<B>(request: &Request<B>, looks: &impl Pages) -> Response<Full<Bytes>> {
    let text = |status, kind: &'static str, body: Bytes| {
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = status;
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
        response
    };
    const PLAIN: &str = "text/plain; charset=utf-8";
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return text(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET\n".into());
    }
    match request.uri().path() {
        "/metrics" => match looks.page().await {
            Ok(page) if wants_openmetrics(request) => {
                text(StatusCode::OK, OPENMETRICS, page.openmetrics())
            }
            Ok(page) => text(StatusCode::OK, CLASSIC, page.classic()),
            Err(error) => text(
                StatusCode::INTERNAL_SERVER_ERROR,
                PLAIN,
                format!("{error}\n").into(),
            ),
        },
        "/" => {
            let hint = "<!doctype html><title>loam export</title><p>Counters of heaps: <a \
                        href=\"/metrics\">/metrics</a>\n";
            text(StatusCode::OK, "text/html; charset=utf-8", hint.into())
        }
        _ => text(StatusCode::NOT_FOUND, PLAIN, "try /metrics\n".into()),
    }
}

fn wants_openmetrics<B>(request: &Request<B>) -> bool {
    let accepted = request.headers().get_all(header::ACCEPT).into_iter();
    accepted
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("application/openmetrics-text"))
}
