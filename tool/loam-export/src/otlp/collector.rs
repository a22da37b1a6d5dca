//! A collector's address, and one request to it: OTLP over HTTP, as protocol buffers.
//!
//! ```text
//! POST URL/v1/metrics --> 200                 taken, perhaps in part: the answer says what was not
//!                     --> 429, 502, 503, 504  later, after Retry-After if it is there
//!                     --> anything else       never: the same data would be refused again
//! ```

use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::http::response::Parts;
use hyper::{header, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use loam_format::{plain, VERSION};

/// The port on which collectors listen for OTLP over HTTP.
const USUAL_PORT: u16 = 4318;
/// A request may take so long: OpenTelemetry's own limit.
const PATIENCE: Duration = Duration::from_secs(10);
/// A longer answer is not read. Real ones have some hundred bytes.
const LONGEST_ANSWER: usize = 64 << 10;
/// So much of an answer's text is shown.
const SHOWN: usize = 200;

/// Where a collector listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collector {
    /// A name or an address, without brackets.
    host: String,
    port: u16,
    has_port: bool,
    /// In front of the signals' paths; without a slash at its end.
    path: String,
}

impl FromStr for Collector {
    type Err = String;

    fn from_str(text: &str) -> Result<Collector, String> {
        let shown = plain::line(text);
        let uri: Uri = text
            .parse()
            .map_err(|error| format!("`{shown}` is no URL: {error}"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err(
                    "https is not spoken here: name a collector on this machine or in this pod, \
                     http://localhost:4318, and let it pass the data on by TLS"
                        .to_owned(),
                )
            }
            _ => {
                return Err(format!(
                    "`{shown}` is no URL of http; write for instance http://localhost:{USUAL_PORT}"
                ))
            }
        }
        let authority = uri.authority().map_or("", |one| one.as_str());
        if authority.contains('@') || uri.query().is_some() {
            return Err(format!(
                "`{shown}` has a user or a query, which a collector's address has not"
            ));
        }
        let host = uri.host().unwrap_or_default();
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let path = uri.path().trim_end_matches('/');
        Ok(Collector {
            host: bare.unwrap_or(host).to_owned(),
            port: uri.port_u16().unwrap_or(80),
            has_port: uri.port().is_some(),
            path: path.strip_suffix("/v1/metrics").unwrap_or(path).to_owned(),
        })
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.path)
    }
}

/// Why a request was not taken.
#[derive(Debug)]
pub struct Refused {
    /// In words.
    pub why: String,
    /// Whether the same request may be taken later.
    pub may_be_repeated: bool,
    /// The collector's own wish.
    pub after: Option<Duration>,
}

impl Refused {
    fn later(why: String) -> Refused {
        Refused {
            why,
            may_be_repeated: true,
            after: None,
        }
    }

    fn never(why: String) -> Refused {
        Refused {
            may_be_repeated: false,
            ..Refused::later(why)
        }
    }
}

impl Collector {
    fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match self.port {
            80 => host,
            port => format!("{host}:{port}"),
        }
    }

    /// Sends one request to the path of a signal. The answer is protocol buffers.
    pub async fn post(&self, path: &str, body: Bytes) -> Result<Bytes, Refused> {
        match timeout(PATIENCE, self.try_post(path, body)).await {
            Ok(answer) => answer,
            Err(_) => Err(Refused::later(format!(
                "{self} did not answer in {} s",
                PATIENCE.as_secs()
            ))),
        }
    }

    async fn try_post(&self, path: &str, body: Bytes) -> Result<Bytes, Refused> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = stream.map_err(|error| self.unreached(&error))?;
        let broken = |error: hyper::Error| Refused::later(format!("{self}: {error}"));
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        // It ends when this function does.
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        let request = Request::post(format!("{}{path}", self.path))
            .header(header::HOST, self.authority())
            .header(header::CONTENT_TYPE, "application/x-protobuf")
            .header(header::USER_AGENT, format!("loam-export/{VERSION}"))
            .header(header::CONNECTION, "close")
            .body(Full::new(body))
            .map_err(|error| Refused::never(format!("{self}: {error}")))?;
        let (head, body) = sender
            .send_request(request)
            .await
            .map_err(broken)?
            .into_parts();
        let body = Limited::new(body, LONGEST_ANSWER).collect().await;
        let body = body.map(|body| body.to_bytes());
        if head.status.is_success() {
            return body.map_err(|error| Refused::later(format!("{self}: {error}")));
        }
        Err(self.refused(path, &head, &body.unwrap_or_default()))
    }

    fn unreached(&self, error: &io::Error) -> Refused {
        let hint = match self.has_port {
            true => String::new(),
            false => format!("; without a port it is 80, and collectors listen on {USUAL_PORT}"),
        };
        Refused::later(format!("{self} can not be reached: {error}{hint}"))
    }

    fn refused(&self, path: &str, head: &Parts, body: &[u8]) -> Refused {
        let status = head.status;
        // The body of an error is a `google.rpc.Status`: its second field is a text. Other servers
        // answer with text.
        let said = RpcStatus::decode(body).map_or_else(
            |_| String::from_utf8_lossy(body).into_owned(),
            |status| status.message,
        );
        let said: String = plain::line(said.trim()).chars().take(SHOWN).collect();
        let said = match said.is_empty() {
            true => String::new(),
            false => format!(": {said}"),
        };
        let hint = match status {
            StatusCode::NOT_FOUND => format!("; it has no {}{path}", self.path),
            _ => String::new(),
        };
        let why = format!("{self} refused with {status}{said}{hint}");
        let may_be_repeated = matches!(status.as_u16(), 429 | 502 | 503 | 504);
        let after = head.headers.get(header::RETRY_AFTER);
        let after = after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        Refused {
            why,
            may_be_repeated,
            after: after.map(Duration::from_secs),
        }
    }
}

/// The body of an error.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, shown, port) in [
            ("http://localhost:4318", "http://localhost:4318", 4318),
            ("http://localhost:4318/", "http://localhost:4318", 4318),
            (
                "http://localhost:4318/v1/metrics",
                "http://localhost:4318",
                4318,
            ),
            ("http://[::1]:4318/otlp/", "http://[::1]:4318/otlp", 4318),
            ("http://agent", "http://agent", 80),
        ] {
            let collector: Collector = text.parse().unwrap();
            assert_eq!(
                (collector.to_string().as_str(), collector.port),
                (shown, port)
            );
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_the_way_out() {
        for (text, said) in [
            ("https://localhost:4318", "by TLS"),
            ("localhost:4318", "write for instance http://"),
            ("", "is no URL"),
            ("grpc://localhost:4317", "no URL of http"),
            ("http://user:secret@host", "has a user"),
            ("http://host/?x=1", "a query"),
            ("http://a b/", "is no URL"),
        ] {
            let error = text.parse::<Collector>().unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
