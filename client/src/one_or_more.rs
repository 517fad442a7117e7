//! A list that is never empty and rarely has more than one item.

use std::ops::{Deref, DerefMut};

/// At least one item. `One` needs no allocation.
#[derive(Clone, Debug)]
pub enum OneOrMore<T> {
    One(T),
    /// Items in order; at least one.
    More(Vec<T>),
}

impl<T> OneOrMore<T> {
    /// Returns the last item.
    ///
    /// # Panics
    /// Panics if `More` has no item.
    pub(crate) fn into_last(self) -> T {
        match self {
            Self::One(item) => item,
            Self::More(mut items) => items.pop().expect("there is at least one item"),
        }
    }

    pub(crate) fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(item) => vec![item],
            Self::More(items) => items,
        }
    }
}

impl<T> Deref for OneOrMore<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::One(item) => std::slice::from_ref(item),
            Self::More(items) => items,
        }
    }
}

impl<T> DerefMut for OneOrMore<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::One(item) => std::slice::from_mut(item),
            Self::More(items) => items,
        }
    }
}
