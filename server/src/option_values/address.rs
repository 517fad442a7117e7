//! Addresses in messages.

/// Returns an address with `***` in place of the user and the password before its host.
pub(crate) fn without_user_info(address: &str) -> String {
    let Some((before, host)) = address.rsplit_once('@') else { return address.to_owned() };
    match before.split_once("://") {
        Some((scheme, _)) => format!("{scheme}://***@{host}"),
        None => format!("***@{host}"),
    }
}

#[cfg(test)]
mod tests {
    use super::without_user_info;

    #[test]
    fn the_user_and_the_password_of_an_address_are_hidden() {
        for (address, shown) in [
            ("http://a:1", "http://a:1"),
            ("http://me:secret@a:1", "http://***@a:1"),
            ("me:se@cret@a:1", "***@a:1"),
        ] {
            assert_eq!(without_user_info(address), shown);
        }
    }
}
