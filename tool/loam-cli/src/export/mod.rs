//! `loam export`: counters for Prometheus, over HTTP.
//!
//! One thread. Each scrape is one look at everybody; scrapes that come together wait for each other,
//! so that many scrapers cost no more than one after the other.

pub mod args;
mod listen;
mod metrics;

use std::cell::RefCell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{header, Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::Semaphore;

use crate::exit::{Coded, Exit};
use crate::output;
use crate::watch::sampler::{Interest, Sampler};
use args::ExportOptions;

/// What a scraper is to take the page for.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The older format, for whoever does not ask for the newer one.
const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";
/// A connection that says nothing for so long is closed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at a time; more wait.
const CONNECTIONS: usize = 64;

/// Runs the verb, until a signal ends it.
pub fn run(options: &ExportOptions) -> Result<Exit> {
    let addresses = options.listen.addresses(options.allow_remote);
    let addresses = addresses.map_err(anyhow::Error::msg)?;
    let reached = addresses.iter().find(|address| !address.ip().is_loopback());
    if let (Some(address), false) = (reached, options.allow_remote) {
        let message = format!(
            "{address} can be reached from other machines, and whoever connects reads names and sizes of your \
             processes; --allow-remote says that this is meant"
        );
        return Err(Coded {
            exit: Exit::Error,
            message,
        }
        .into());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the server can not be set up")?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, serve(options, &addresses))
}

async fn serve(options: &ExportOptions, addresses: &[SocketAddr]) -> Result<Exit> {
    let listener = TcpListener::bind(addresses)
        .await
        .with_context(|| format!("{} can not be listened on", options.listen))?;
    let address = listener.local_addr().context("the address is not known")?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    output::say(&format!("loam: http://{address}/metrics"));
    let sampler = Rc::new(RefCell::new(Sampler::new(Interest::OnLoam(
        options.pattern.clone(),
    ))));
    let places = Rc::new(Semaphore::new(CONNECTIONS));
    let classes = options.classes;
    loop {
        let place = Rc::clone(&places);
        let stream = tokio::select! {
            accepted = listener.accept() => accepted,
            // Asked to end: that is done, and no failure.
            _ = interrupted.recv() => return Ok(Exit::Done),
            _ = terminated.recv() => return Ok(Exit::Done),
        };
        let Ok((stream, _)) = stream else {
            // Out of descriptors, most likely: some will be free soon.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let sampler = Rc::clone(&sampler);
        tokio::task::spawn_local(async move {
            let Ok(_place) = place.acquire().await else {
                return;
            };
            let service = service_fn(move |request| {
                let answer = answer(&request, &sampler, classes);
                async move { Ok::<_, Infallible>(answer) }
            });
            // Whoever breaks off a scrape harms nobody.
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .serve_connection(TokioIo::new(stream), service);
            let _ = connection.await;
        });
    }
}

fn answer<B>(
    request: &Request<B>,
    sampler: &RefCell<Sampler>,
    classes: bool,
) -> Response<Full<Bytes>> {
    let text = |status, kind: &'static str, body: String| {
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
        response
    };
    const PLAIN: &str = "text/plain; charset=utf-8";
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return text(
            StatusCode::METHOD_NOT_ALLOWED,
            PLAIN,
            "only GET\n".to_owned(),
        );
    }
    match request.uri().path() {
        "/metrics" => {
            let tick = sampler.borrow_mut().tick();
            let page = tick
                .map_err(anyhow::Error::from)
                .and_then(|tick| Ok(metrics::page(tick, classes)?));
            match page {
                Ok(page) if wants_openmetrics(request) => text(StatusCode::OK, OPENMETRICS, page),
                Ok(page) => text(StatusCode::OK, CLASSIC, metrics::classic(&page)),
                Err(error) => text(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    PLAIN,
                    format!("{error}\n"),
                ),
            }
        }
        "/" => {
            let hint = "<!doctype html><title>loam export</title><p>Counters of heaps: <a \
                        href=\"/metrics\">/metrics</a>\n";
            text(StatusCode::OK, "text/html; charset=utf-8", hint.to_owned())
        }
        _ => text(StatusCode::NOT_FOUND, PLAIN, "try /metrics\n".to_owned()),
    }
}

fn wants_openmetrics<B>(request: &Request<B>) -> bool {
    let accepted = request.headers().get_all(header::ACCEPT).into_iter();
    accepted
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("application/openmetrics-text"))
}
