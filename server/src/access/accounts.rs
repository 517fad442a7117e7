//! Accounts: counts of the connections, sessions, namespaces and claims of each identity that has quotas.

use super::Policy;
use super::shared_values::SharedValues;
use crate::network::Network;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use waymaker_access::Identity;
use waymaker_engine::{Account, Accounts, Holder};

/// All accounts of identities that are in use. The accounts of namespaces are elsewhere.
///
/// An account exists as long as something owns it, such as an open connection, or a session, namespace or claim that it
/// counts. An identity has at most one account for the whole server and one for each source network, even if its
/// clients use different credentials. Clients of the identity whose credentials name other groups have other accounts,
/// because other quotas may apply to them.
#[derive(Debug, Default)]
pub(super) struct AccountBook(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    accounts: SharedValues<Key, Account>,
}

/// Key of an account: the name of the identity, its groups and the network of the source address. The network is `None`
/// in the account for the whole server.
type Key = (Arc<str>, Vec<Arc<str>>, Option<Network>);

impl AccountBook {
    /// Returns the account of an identity for the whole server, and its account for the network of the client's
    /// address. Either account is `None` if no quota applies to it, the second also if the client has no address. Sets
    /// the limits of both accounts, if they exist, to the quotas of the current policy.
    pub(super) fn of(
        &self,
        policy: impl FnOnce() -> Arc<Policy>,
        identity: &Identity,
        address: Option<IpAddr>,
    ) -> Accounts {
        let mut book = self.lock();
        // Read the policy while the accounts are locked. Otherwise another thread that read an older policy could set
        // its quotas after this thread has set newer ones.
        let policy = policy();
        if policy.quota_count() == 0 && book.accounts.is_empty() {
            return Accounts::NONE;
        }
        let network = address.map(Network::of);
        Accounts {
            identity: book.account(&policy, identity, Holder::Identity, None),
            address: network
                .and_then(|network| book.account(&policy, identity, Holder::Address, Some(network))),
            namespace: None,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn account(
        &mut self,
        policy: &Policy,
        identity: &Identity,
        holder: Holder,
        network: Option<Network>,
    ) -> Option<Arc<Account>> {
        let quotas = policy.quotas(identity, holder);
        let key = (Arc::clone(&identity.name), identity.groups.clone(), network);
        if let Some(account) = self.accounts.get(&key) {
            account.set_quotas(&quotas);
            return (!quotas.is_empty()).then_some(account);
        }
        if quotas.is_empty() {
            return None;
        }
        let account = Arc::new(Account::new(holder, &quotas));
        self.accounts.insert(key, &account);
        Some(account)
    }
}

#[cfg(test)]
mod tests {
    use super::super::shared_values::SWEEP_COUNT_MIN;
    use super::*;
    use waymaker_access::{Proof, Rules};
    use waymaker_engine::Resource;

    fn policy(rules: &str) -> impl Fn() -> Arc<Policy> {
        let policy = Arc::new(Policy { rules: Rules::parse(rules).unwrap(), ..Policy::default() });
        move || Arc::clone(&policy)
    }

    fn identity(name: &str) -> Identity {
        Identity { name: name.into(), groups: Vec::new(), proof: Proof::Anonymous }
    }

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    const BOTH: &str = "[[quota]]\neveryone = true\nclaims = 2\n\
                        [[quota]]\neveryone = true\nper_address = true\nsessions = 1\n";

    #[test]
    fn clients_of_one_identity_share_its_account_and_those_at_one_address_another() {
        let (book, policy) = (AccountBook::default(), policy(BOTH));
        let one = book.of(&policy, &identity("one"), address(1));
        assert_eq!(book.of(&policy, &identity("one"), address(1)), one);
        let elsewhere = book.of(&policy, &identity("one"), address(2));
        assert_eq!(elsewhere.identity.as_ref().map(Arc::as_ptr), one.identity.as_ref().map(Arc::as_ptr));
        assert_ne!(elsewhere, one);
        let other = book.of(&policy, &identity("other"), address(1));
        let _counted = one.count(Resource::Sessions).unwrap();
        one.count(Resource::Sessions).unwrap_err();
        elsewhere.count(Resource::Sessions).unwrap();
        other.count(Resource::Sessions).unwrap();
        assert!(book.of(&policy, &identity("one"), None).address.is_none(), "a Unix socket has no address");
    }

    #[test]
    fn a_new_policy_changes_the_quotas_of_accounts_in_use() {
        let book = AccountBook::default();
        let accounts = book.of(policy(BOTH), &identity("one"), None);
        accounts.add(Resource::Claims, 2);
        accounts.have_room(Resource::Claims, 1).unwrap_err();
        let more = policy("[[quota]]\nidentity = \"one\"\nclaims = 3\n");
        assert_eq!(book.of(&more, &identity("one"), None), accounts);
        accounts.have_room(Resource::Claims, 1).unwrap();
        accounts.have_room(Resource::Claims, 2).unwrap_err();
        assert!(book.of(policy(""), &identity("one"), None).is_empty());
        accounts.have_room(Resource::Claims, 1_000).unwrap();
    }

    #[test]
    fn accounts_that_nobody_uses_are_forgotten() {
        let (book, policy) = (AccountBook::default(), policy(BOTH));
        let kept = book.of(&policy, &identity("kept"), None);
        for number in 0..1_000 {
            book.of(&policy, &identity(&format!("passing {number}")), None);
        }
        assert!(book.lock().accounts.len() <= 2 * SWEEP_COUNT_MIN);
        assert_eq!(book.of(&policy, &identity("kept"), None), kept);
        assert!(book.of(self::policy(""), &identity("kept"), None).is_empty());
    }

    #[test]
    fn tokens_of_one_identity_with_other_groups_have_other_quotas() {
        let book = AccountBook::default();
        let policy =
            policy("[[quota]]\ngroup = \"big\"\nclaims = 9\n[[quota]]\neveryone = true\nclaims = 1\n");
        let big = Identity { groups: vec!["big".into()], ..identity("one") };
        let (big, small) = (book.of(&policy, &big, None), book.of(&policy, &identity("one"), None));
        big.have_room(Resource::Claims, 9).unwrap();
        small.have_room(Resource::Claims, 2).unwrap_err();
    }
}
