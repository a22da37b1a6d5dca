//! The exporter's address in the form that people write: `127.0.0.1:9464`, `[::1]:9464`,
//! `localhost:9464`, `NAME:9464`, `:9464`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use loam_format::plain;

/// An address that is not resolved yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The host's name. Empty: this machine only, or with `--allow-remote` every address.
    host: String,
    port: u16,
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        let shown = plain::line(text);
        let parts = text.rsplit_once(':').filter(|_| !text.ends_with(']'));
        let (host, port) = match (parts, text.parse::<u16>()) {
            (Some(parts), _) => parts,
            (None, Ok(_)) => ("", text),
            (None, Err(_)) => {
                return Err(format!(
                    "`{shown}` has no port; write HOST:PORT or :PORT, for instance :9464"
                ))
            }
        };
        if text.contains('/') {
            return Err(format!(
                "`{shown}` is an address of the web; write HOST:PORT"
            ));
        }
        let is_digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let number = port.parse::<u16>().ok().filter(|_| is_digits);
        let port = number.ok_or_else(|| {
            format!(
                "the port `{}` is no number from 0 to 65535",
                plain::line(port)
            )
        })?;
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        match bare {
            Some(bare) if bare.parse::<Ipv6Addr>().is_ok() || bare.contains('%') => {}
            Some(_) => {
                return Err(format!(
                    "`{shown}` has no IPv6 address between its brackets"
                ))
            }
            None if host.contains(':') => {
                return Err(format!(
                "`{shown}` can be read in two ways; write an IPv6 address in brackets, [::1]:9464"
            ))
            }
            None if host.chars().any(|c| c.is_whitespace() || c.is_control()) => {
                return Err(format!("`{shown}` is no name of a machine"))
            }
            None => {}
        }
        Ok(Listen {
            host: bare.unwrap_or(host).to_owned(),
            port,
        })
    }
}

impl Listen {
    /// The addresses, in the order in which they are tried. Without a host they are this machine's
    /// own: people who write `:9464` do not think of other machines. With `allow_remote` it is
    /// every address.
    pub fn addresses(&self, allow_remote: bool) -> Result<Vec<SocketAddr>, String> {
        let own: [IpAddr; 2] = match allow_remote {
            true => [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()],
            false => [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        };
        if self.host.is_empty() {
            return Ok(own.map(|ip| SocketAddr::new(ip, self.port)).to_vec());
        }
        let host = self.host.as_str();
        let found = (host, self.port).to_socket_addrs();
        let mut found: Vec<SocketAddr> = found
            .map_err(|error| format!("{} can not be found: {error}", plain::line(host)))?
            .collect();
        // A scraper that is given a name may try one family only, and then that is IPv4.
        found.sort_by_key(SocketAddr::is_ipv6);
        found.dedup();
        match found.is_empty() {
            true => Err(format!("{} has no address", plain::line(host))),
            false => Ok(found),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", plain::line(&self.host), self.port),
            false => write!(f, "{}:{}", plain::line(&self.host), self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(text: &str, allow_remote: bool) -> Vec<String> {
        let listen: Listen = text.parse().unwrap();
        let found = listen.addresses(allow_remote).unwrap();
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_form_that_people_write_is_understood() {
        assert_eq!(addresses("127.0.0.1:0", false), ["127.0.0.1:0"]);
        assert_eq!(addresses("[::1]:9464", false), ["[::1]:9464"]);
        assert_eq!(addresses(":9464", false), ["127.0.0.1:9464", "[::1]:9464"]);
        assert_eq!(addresses("9464", false), ["127.0.0.1:9464", "[::1]:9464"]);
        assert_eq!(addresses(":9464", true), ["[::]:9464", "0.0.0.0:9464"]);
        assert_eq!(addresses("0.0.0.0:1", false), ["0.0.0.0:1"]);
        assert_eq!(addresses("localhost:9464", false)[0], "127.0.0.1:9464");
        assert_eq!("[::1]:1".parse::<Listen>().unwrap().to_string(), "[::1]:1");
    }

    #[test]
    fn what_is_wrong_is_said_with_the_way_out() {
        for (text, said) in [
            ("localhost", "has no port"),
            ("", "has no port"),
            ("localhost:", "no number"),
            ("localhost:http", "no number"),
            (":65536", "no number"),
            (":+80", "no number"),
            (":-1", "no number"),
            ("::1:9464", "in brackets"),
            ("[::1]", "has no port"),
            ("[nonsense]:1", "between its brackets"),
            ("http://localhost:1", "of the web"),
            ("a b:1", "no name"),
            ("\u{1b}[2J", "no port"),
        ] {
            let error = text.parse::<Listen>().unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
            assert!(error.chars().all(plain::shows), "{error}");
        }
    }
}
