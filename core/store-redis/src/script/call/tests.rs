use super::*;

/// The bytes of a command in the protocol.
fn packed(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend([format!("${}\r\n", word.len()).as_bytes(), word, b"\r\n"].concat());
    }
    bytes
}

#[test]
fn call_is_written_as_header_between_arguments() {
    let policy = Policy::parse("api", "10/s token_bucket; 5/10s sliding_log").unwrap();
    let call = PolicyCall::new(&policy, Change::NONE);
    let check = CallEntry {
        key: b"a",
        action: Action::Apply(Operation::Check),
        cost: 3,
        headroom: 0,
        count: 1,
        hold: None,
    };
    let charge = CallEntry {
        key: b"b",
        action: Action::Apply(Operation::Charge),
        cost: 1 << 32,
        headroom: 0,
        count: 1,
        hold: None,
    };
    let peek = CallEntry {
        key: b"a",
        action: Action::Apply(Operation::Peek),
        cost: 2,
        headroom: 99,
        count: 1,
        hold: None,
    };
    let mut header = CallHeader {
        nonce: *b"nonce!",
        deadline_us: 0x0102,
        clock: ScriptClock::Server,
        windows_us: 0,
        is_plain: false,
    };
    let arguments = |middle: &[u8]| [&call.fast_path_arguments, middle, &call.policy_arguments].concat();
    let (mut out, mut buffer) = (b"before".to_vec(), CommandBuffer::default());

    call.write_call(&mut out, &mut buffer, ScriptReference::Source, &header, &[check]);
    let last = arguments(b"nonce!\0\0\0\0\0\x01\x02\0\0\0\0\0\x03");
    let words: [&[u8]; 6] = [b"EVAL", call.script.source.as_bytes(), b"2", b"a", b"a:log:10000000", &last];
    assert_eq!(out, [b"before", &*packed(&words)].concat());

    out.clear();
    header.clock = ScriptClock::Manual(7);
    call.write_call(&mut out, &mut buffer, ScriptReference::Hash, &header, &[check, charge]);
    let head = b"nonce!\0\0\0\0\0\x01\x02\x01\0\0\0\0\0\0\x07\x01\0\x02";
    let last = arguments(&[&head[..], b"\0\0\0\0\0\x03\0\x01", b"\x03\x01\0\0\0\0\0\x01"].concat());
    let keys: [&[u8]; 4] = [b"a", b"a:log:10000000", b"b", b"b:log:10000000"];
    let words = [&[b"EVALSHA", &call.script.hash[..], b"4"], &keys[..], &[&last]].concat();
    assert_eq!(out, packed(&words));
    assert_eq!(format!("{buffer:?}"), "CommandBuffer");

    out.clear();
    header.is_plain = true;
    call.write_call(&mut out, &mut buffer, ScriptReference::Source, &header, &[check, charge]);
    let plain = call.script.plain();
    assert!(plain.source.starts_with("local struct = ") && !plain.source.contains("#!lua"));
    assert!(plain.hash != call.script.hash && plain.source.ends_with(&call.script.source["#!lua\n".len()..]));
    let words = [&[b"EVAL", plain.source.as_bytes(), b"4"], &keys[..], &[&last]].concat();
    assert_eq!(out, packed(&words));

    out.clear();
    header.is_plain = false;
    header.clock = ScriptClock::Estimate(7);
    call.write_call(&mut out, &mut buffer, ScriptReference::Hash, &header, &[peek]);
    let head = b"nonce!\0\0\0\0\0\x01\x02\x01\0\0\0\0\0\0\x07\x07\0\x01";
    let last = arguments(&[&head[..], b"\x11\0\0\0\0\x02\xc6\x01"].concat());
    let words: [&[u8]; 6] = [b"EVALSHA", &call.script.hash[..], b"2", b"a", b"a:log:10000000", &last];
    assert_eq!(out, packed(&words));
}

/// A reply to another call, or from a time that no clock has, is never read as an answer.
#[test]
fn reply_has_to_echo_the_nonce() {
    let reply =
        |nonce: &[u8; 6], now_us: u64, status: u8| [nonce, &now_us.to_be_bytes()[1..], &[status]].concat();
    let read = |reply: &[u8]| crate::script::reply::read_reply(reply, *b"nonce!").is_ok();
    let last_us = polylimit_rules::units::MAX_US;
    for status in [1, 2, 5] {
        assert!(read(&reply(b"nonce!", 7, status)) && read(&reply(b"nonce!", last_us, status)), "{status}");
        for nonce in [b"monce!", b"noncd!", b"nonce?", b"\0\0\0\0\0\0"] {
            assert!(!read(&reply(nonce, 7, status)), "{nonce:?} {status}");
        }
        assert!(!read(&reply(b"nonce!", last_us + 1, status)), "{status}");
    }
    assert!(!read(b"nonce!\0\0\0\0\0\0\x07"));
}
