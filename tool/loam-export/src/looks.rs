//! One look for all scrapes at a time, and the pages that are made of it.

use std::future::Future;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Result;
use hyper::body::Bytes;

use loam_counters::watch::sampler::Sampler;

use crate::metrics;

/// A look serves the requests that arrive within this time after it. Chosen: half of the shortest
/// interval that people configure, so that one scraper never gets the same page twice.
pub const FRESH: Duration = Duration::from_millis(500);

/// The page in both formats. The older format is made at its first request.
pub struct Page {
    openmetrics: Bytes,
    classic: OnceLock<Bytes>,
}

impl Page {
    /// A page of this text.
    pub fn new(openmetrics: String) -> Page {
        Page {
            openmetrics: Bytes::from(openmetrics),
            classic: OnceLock::new(),
        }
    }

    /// The page in OpenMetrics.
    pub fn openmetrics(&self) -> Bytes {
        self.openmetrics.clone()
    }

    /// The page in the older text format.
    pub fn classic(&self) -> Bytes {
        let make = || {
            let text = String::from_utf8_lossy(&self.openmetrics);
            Bytes::from(metrics::classic(&text))
        };
        self.classic.get_or_init(make).clone()
    }
}

/// The last page and the time of its look, or why there is no page.
type Last = Option<(Instant, Result<Arc<Page>, String>)>;

/// Looks at all processes when a page is requested.
pub struct Looks {
    sampler: Arc<Mutex<Sampler>>,
    classes: bool,
    fresh: Duration,
    /// The lock is held during a look: requests that arrive meanwhile wait for it.
    last: tokio::sync::Mutex<Last>,
}

impl Looks {
    /// `classes` adds the figures of size classes. A page is served for as long as `fresh`.
    pub fn new(sampler: Sampler, classes: bool, fresh: Duration) -> Looks {
        Looks {
            sampler: Arc::new(Mutex::new(sampler)),
            classes,
            fresh,
            last: tokio::sync::Mutex::new(None),
        }
    }
}

/// What makes the pages that are served.
pub trait Pages {
    /// A present page, or why there is none.
    fn page(&self) -> impl Future<Output = Result<Arc<Page>, String>>;
}

impl Pages for Looks {
    /// From a look that is being made, or from one that was just made.
    async fn page(&self) -> Result<Arc<Page>, String> {
        let mut last = self.last.lock().await;
        if let Some((_, page)) = last
            .as_ref()
            .filter(|(made, _)| made.elapsed() < self.fresh)
        {
            return page.clone();
        }
        let (sampler, classes) = (Arc::clone(&self.sampler), self.classes);
        let look = move || -> Result<Arc<Page>> {
            let mut sampler = sampler
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            let text = metrics::page(sampler.tick()?, classes)?;
            Ok(Arc::new(Page::new(text)))
        };
        // The look runs on another thread, because this one serves clients and handles signals.
        let page = match tokio::task::spawn_blocking(look).await {
            Ok(page) => page.map_err(|error| error.to_string()),
            Err(error) => Err(format!("the look failed: {error}")),
        };
        *last = Some((Instant::now(), page.clone()));
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loam_counters::watch::sampler::Interest;

    #[test]
    fn scrapes_that_come_together_share_one_look_and_a_later_one_has_its_own() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let shared = |fresh| {
            let looks = Looks::new(Sampler::brief(Interest::Only(Vec::new())), false, fresh);
            let both = async { tokio::join!(looks.page(), looks.page()) };
            let (one, two) = runtime.block_on(both);
            Arc::ptr_eq(&one.unwrap(), &two.unwrap())
        };
        assert!(shared(Duration::from_secs(3600)));
        assert!(!shared(Duration::ZERO));
    }
}
