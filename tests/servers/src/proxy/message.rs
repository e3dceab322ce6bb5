//! Where messages of the Redis protocol (RESP 2 and 3) end, and what command a request is.

/// Reads a stream of messages piece by piece. What is not RESP, such as TLS, makes it see nothing any more.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    /// Values that the message at hand still lacks; 0 between messages.
    lacking: u64,
    state: State,
    name: Vec<u8>,
    named: bool,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Line,
    InLine(Vec<u8>),
    /// Bytes that a bulk string still lacks, its line end included.
    Bulk(usize),
    Lost,
}

/// A message that ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Where it ended in the bytes at hand.
    pub(super) end: usize,
    /// Its first bulk string, which is the name of a command; long ones are cut.
    pub(super) name: Vec<u8>,
}

impl Scanner {
    /// The messages that end in `bytes`, which follow those read before.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Vec<Message> {
        let mut messages = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match &mut self.state {
                State::Line => self.state = State::InLine(Vec::new()),
                State::InLine(line) => {
                    let end = rest.iter().position(|&byte| byte == b'\n').map(|i| i + 1);
                    let taken = end.unwrap_or(rest.len());
                    line.extend_from_slice(&rest[..taken]);
                    at += taken;
                    if end.is_some() {
                        let line = std::mem::take(line);
                        self.state = State::Line;
                        self.line(&line);
                    } else if line.len() > 1 << 16 {
                        self.state = State::Lost;
                    }
                }
                State::Bulk(lacking) => {
                    let taken = rest.len().min(*lacking);
                    if !self.named {
                        // The line end is no part of the string.
                        let text = taken.min(lacking.saturating_sub(2));
                        self.name
                            .extend_from_slice(&rest[..text.min(32_usize.saturating_sub(self.name.len()))]);
                    }
                    at += taken;
                    *lacking -= taken;
                    if *lacking == 0 {
                        self.named = true;
                        self.state = State::Line;
                        self.lacking -= 1;
                    }
                }
                State::Lost => return messages,
            }
            if self.lacking == 0 && matches!(self.state, State::Line) {
                self.named = false;
                messages.push(Message { end: at, name: std::mem::take(&mut self.name) });
            }
        }
        messages
    }

    /// Whether it has given up.
    pub(super) const fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost)
    }

    /// A whole line: a value, or the head of one.
    fn line(&mut self, line: &[u8]) {
        self.lacking = self.lacking.max(1);
        let number = || -> Option<i64> { std::str::from_utf8(line.get(1..)?).ok()?.trim_end().parse().ok() };
        let children = |each: u64| Some(number()?.try_into().unwrap_or(0_u64) * each);
        match line.first() {
            Some(b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(') => self.lacking -= 1,
            Some(b'$' | b'=' | b'!') => match number().map(usize::try_from) {
                Some(Ok(length)) => self.state = State::Bulk(length + 2),
                Some(Err(_)) => self.lacking -= 1,
                None => self.state = State::Lost,
            },
            Some(b'*' | b'~' | b'>') => self.aggregate(children(1)),
            Some(b'%') => self.aggregate(children(2)),
            // Attributes come before the value that they are about.
            Some(b'|') => self.aggregate(children(2).map(|count| count + 1)),
            _ => self.state = State::Lost,
        }
    }

    fn aggregate(&mut self, children: Option<u64>) {
        match children {
            Some(children) => self.lacking = self.lacking - 1 + children,
            None => self.state = State::Lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] =
        b"*2\r\n$4\r\nPING\r\n$2\r\n\r\n\r\n+OK\r\n$-1\r\n%1\r\n+a\r\n*2\r\n:1\r\n_\r\n*0\r\n$3\r\nabc\r\n";
    const ENDS: [usize; 6] = [22, 27, 32, 51, 55, 64];

    #[test]
    fn finds_the_end_of_every_message_however_it_is_cut() {
        for size in 1..=STREAM.len() {
            let mut scanner = Scanner::default();
            let mut ends = Vec::new();
            for (i, piece) in STREAM.chunks(size).enumerate() {
                ends.extend(scanner.read(piece).into_iter().map(|message| i * size + message.end));
            }
            assert_eq!(ends, ENDS, "pieces of {size}");
        }
    }

    #[test]
    fn names_the_command() {
        let messages = Scanner::default().read(STREAM);
        assert_eq!(messages[0].name, b"PING");
        assert_eq!(messages[5].name, b"abc");
    }

    #[test]
    fn sees_nothing_in_what_is_not_resp() {
        assert_eq!(Scanner::default().read(b"\x16\x03\x01\r\n+OK\r\n"), []);
    }
}
