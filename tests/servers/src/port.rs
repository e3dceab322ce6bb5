//! A port that is ours for as long as we need it, even while nothing listens on it.
//!
//! A test that restarts a server needs its port again. The kernel hands out ports from 32768 to outgoing connections, so
//! ours lie below; and test processes keep out of each other's way by a lock a port, which the kernel frees when its
//! holder dies: a name in the abstract namespace of Unix sockets, or where there is none, a locked file.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

const FIRST: u16 = 20_000;
const LAST: u16 = 31_999;

#[cfg(target_os = "linux")]
type Lock = std::os::unix::net::UnixListener;
#[cfg(not(target_os = "linux"))]
type Lock = std::fs::File;

#[cfg(target_os = "linux")]
fn lock(number: u16) -> Option<Lock> {
    use std::os::linux::net::SocketAddrExt as _;
    let name = std::os::unix::net::SocketAddr::from_abstract_name(format!("polylimit-test-port-{number}"));
    Lock::bind_addr(&name.ok()?).ok()
}

#[cfg(not(target_os = "linux"))]
fn lock(number: u16) -> Option<Lock> {
    let file = Lock::create(std::env::temp_dir().join(format!("polylimit-test-port-{number}"))).ok()?;
    file.try_lock().ok()?;
    Some(file)
}

#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _lock: Lock,
}

impl Port {
    pub(crate) fn reserve() -> Self {
        for _ in FIRST..=LAST {
            let number = fastrand::u16(FIRST..=LAST);
            if let Some(port) = Self::try_reserve(number) {
                return port;
            }
        }
        panic!("no free port between {FIRST} and {LAST}");
    }

    fn try_reserve(number: u16) -> Option<Self> {
        let lock = lock(number)?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        Some(Self { number, _lock: lock })
    }

    pub(crate) const fn number(&self) -> u16 {
        self.number
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.number).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_port_is_not_given_twice() {
        let port = Port::reserve();
        assert!(Port::try_reserve(port.number()).is_none());
        let number = port.number();
        drop(port);
        assert!(Port::try_reserve(number).is_some());
    }
}
