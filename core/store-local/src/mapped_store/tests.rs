use super::*;
use polylimit_rules::codec::Tag;
use polylimit_rules::policy::Policy;
use polylimit_store::charge::{PolicyId, PolicyOptions};
use polylimit_store::outage::Outage;

const ID: PolicyId = PolicyId(0);
const CHECK: Action = Action::Apply(Operation::Check);
const PATIENCE: Patience = Patience::Wait;

/// A store with one policy, and what a test needs of it.
struct Fixture {
    store: MappedStore,
    policies: StoredPolicies,
    clock: Clock,
    _folder: tempfile::TempDir,
}

impl Fixture {
    fn new(quotas: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let options = SharedFileOptions::parse(&format!("file://{}?size=1MiB", path.display())).unwrap();
        let store = MappedStore::open(&options, &path, PATIENCE).unwrap();
        let policies = StoredPolicies::new(Outage::Deny);
        policies.set(ID, &Policy::parse("p", quotas).unwrap(), PolicyOptions::default(), 0);
        Self { store, policies, clock: Clock::system(), _folder: folder }
    }

    fn check(&self) -> Result<StoreAnswer, Failure> {
        let policy = self.policies.get(ID).unwrap();
        self.store.answer(&self.clock, &self.policies, &policy, Charge::new(ID, b"k", CHECK, 1), PATIENCE)
    }

    /// Works on the records of the key, and writes them with those that `work` returns behind them.
    fn with_records(&self, work: impl Fn(&[u8]) -> Vec<u8>) {
        let policy = self.policies.get(ID).unwrap();
        let work = |place: &Place<'_>| {
            let mut bytes = Bytes::new();
            let found = place.shard.find(place.hash, place.key, &mut bytes)?;
            let more = work(bytes.get(place.key.len()..).unwrap_or_default());
            if !more.is_empty() {
                let mut bytes = Bytes::from_slice(place.key);
                let lengths = Lengths::write(&policy, &policy.fresh(), &more, &mut bytes);
                assert!(place.shard.put(found, place.hash, lengths, &bytes, u64::MAX)?);
            }
            Ok(())
        };
        self.store.work(&self.clock, &policy, (b"k", false), PATIENCE, work).unwrap();
    }
}

/// A record of a form of a later version, whose key has to live until the end of time.
fn later(tag: Tag) -> Vec<u8> {
    [&[200][..], &tag.0, &[0, 0, 9], &[0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], b"ab"].concat()
}

#[test]
fn records_of_a_later_version_stay_in_their_entry() {
    let fixture = Fixture::new("5/day fixed_window");
    assert_eq!(fixture.check().unwrap().0.remaining(), 4);
    fixture.with_records(|_| later(Tag::OF_KEY));
    for remaining in [4, 3] {
        assert_eq!(fixture.check().unwrap().0.remaining(), remaining);
        fixture.with_records(|records| {
            assert!(records.ends_with(&later(Tag::OF_KEY)), "{records:?}");
            Vec::new()
        });
    }
}

#[test]
fn a_key_whose_state_a_later_version_has_written_is_not_decided() {
    let fixture = Fixture::new("5/day fixed_window");
    let of_quota = later(Tag::of(&Policy::parse("p", "5/day fixed_window").unwrap().quotas()[0]));
    fixture.with_records(|_| of_quota.clone());
    let failure = fixture.check().unwrap_err();
    assert_eq!(failure.reason, Some(Degradation::NewerFormat));
    assert!(failure.error.message().contains("a newer version of polylimit has written"), "{failure:?}");
    fixture.with_records(|records| {
        assert_eq!(records, of_quota);
        Vec::new()
    });
}
