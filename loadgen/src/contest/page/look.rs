//! Colour and marker of each contestant.

use maud::{Markup, html};

/// A colour of the style sheet and a marker shape, so that colour is never the only distinction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Look {
    hue: usize,
    marker: usize,
}

/// Names with a fixed look on every page; other names get the remaining looks.
const KNOWN: [&str; 8] =
    ["waymaker", "redis", "etcd", "consul", "postgres", "slock", "locktopus", "zookeeper"];

/// Marker outlines around their centre: circle, square, triangle, diamond, inverted triangle, plus, cross,
/// pentagon.
const MARKERS: [&str; 8] = [
    "M-4.6,0a4.6,4.6 0 1,0 9.2,0a4.6,4.6 0 1,0 -9.2,0z",
    "M-4.1,-4.1h8.2v8.2h-8.2z",
    "M0,-5.4L5.1,3.8H-5.1z",
    "M0,-5.8L5.8,0L0,5.8L-5.8,0z",
    "M0,5.4L5.1,-3.8H-5.1z",
    "M-1.9,-5.2h3.8v3.3h3.3v3.8h-3.3v3.3h-3.8v-3.3h-3.3v-3.8h3.3z",
    "M0,-2.7L2.7,-5.4L5.4,-2.7L2.7,0L5.4,2.7L2.7,5.4L0,2.7L-2.7,5.4L-5.4,2.7L-2.7,0L-5.4,-2.7L-2.7,-5.4z",
    "M0,-5.4L5.2,-1.7L3.2,4.4H-3.2L-5.2,-1.7z",
];

impl Look {
    /// Returns a look for each name; all differ as long as there are enough looks.
    pub(super) fn of_each<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Vec<Self> {
        let known = |name: &str| KNOWN.iter().position(|known| *known == name);
        let taken: Vec<usize> = names.clone().filter_map(known).collect();
        let count = KNOWN.len();
        let mut free = (0..count).filter(|slot| !taken.contains(slot)).chain(count..);
        names
            .map(|name| known(name).or_else(|| free.next()).unwrap_or_default())
            // After the last colour, colours repeat, each time with the next marker.
            .map(|slot| Self { hue: slot % count, marker: (slot + slot / count) % count })
            .collect()
    }

    /// Returns the class that sets the colour of its contents.
    pub(super) fn class(self) -> String {
        format!("hue-{}", self.hue)
    }

    /// Returns the outline of the marker.
    pub(super) fn outline(self) -> &'static str {
        MARKERS[self.marker]
    }

    /// Returns the marker alone, for use in text.
    pub(super) fn swatch(self) -> Markup {
        html! {
            svg class={ "swatch " (self.class()) } viewBox="-7 -7 14 14" aria-hidden="true" {
                path class="mark" d=(self.outline()) {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Look;

    #[test]
    fn who_is_known_looks_the_same_in_any_company() {
        let alone = Look::of_each(["etcd"].into_iter());
        let among_others = Look::of_each(["stranger", "redis", "etcd"].into_iter());
        assert_eq!(alone[0], among_others[2]);
        assert!(!among_others[1..].contains(&among_others[0]));
    }

    #[test]
    fn many_contestants_have_different_looks() {
        let names: Vec<String> = (0..40).map(|index| format!("system{index}")).collect();
        let looks = Look::of_each(names.iter().map(String::as_str));
        for (index, look) in looks.iter().enumerate() {
            assert!(!looks[..index].contains(look), "{look:?} came twice");
        }
    }
}
