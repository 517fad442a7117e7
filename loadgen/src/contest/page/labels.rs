//! Placement of labels without overlaps.

use super::drawing::{LINE_HEIGHT, Plane, text_width};

/// Returns heights for labels below each other, as near to their wanted heights as possible without overlaps.
pub(super) fn spread(wanted: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|one, other| wanted[*one].total_cmp(&wanted[*other]));
    let mut placed = wanted.to_vec();
    let mut free_from = top;
    for index in &order {
        placed[*index] = placed[*index].max(free_from);
        free_from = placed[*index] + LINE_HEIGHT;
    }
    let mut free_to = bottom;
    for index in order.iter().rev() {
        placed[*index] = placed[*index].min(free_to);
        free_to = placed[*index] - LINE_HEIGHT;
    }
    placed
}

/// Space of a plot that is already used.
pub(super) struct Room {
    plane: Plane,
    taken: Vec<Plane>,
}

impl Room {
    pub(super) fn new(plane: Plane) -> Self {
        Self { plane, taken: Vec::new() }
    }

    /// Marks the space of a line with points at its corners as used.
    pub(super) fn take_line(&mut self, points: &[(f64, f64)]) {
        self.taken.extend(points.iter().map(|point| around(*point, 6.0)));
        for ends in points.windows(2) {
            let ((x, y), (to_x, to_y)) = (ends[0], ends[1]);
            let steps = ((to_x - x).hypot(to_y - y) / 4.0).ceil();
            self.taken.extend((1..steps as usize).map(|step| {
                let share = step as f64 / steps;
                around((x + (to_x - x) * share, y + (to_y - y) * share), 1.5)
            }));
        }
    }

    /// Reserves space for a text to the right of a point, if there is some; returns the start of its base line.
    pub(super) fn place(&mut self, words: &str, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        let left = x + 9.0;
        let label = Plane { left, right: left + text_width(words), top: y - 7.0, bottom: y + 7.0 };
        let is_inside = label.right <= self.plane.right
            && label.top >= self.plane.top - 7.0
            && label.bottom <= self.plane.bottom;
        if !is_inside || self.taken.iter().any(|taken| overlap(taken, &label)) {
            return None;
        }
        self.taken.push(label);
        Some((left, y + 4.5))
    }
}

fn around((x, y): (f64, f64), distance: f64) -> Plane {
    Plane { left: x - distance, right: x + distance, top: y - distance, bottom: y + distance }
}

fn overlap(one: &Plane, other: &Plane) -> bool {
    one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom
}

#[cfg(test)]
mod tests {
    use super::{Room, spread};
    use crate::contest::page::drawing::{LINE_HEIGHT, Plane};

    #[test]
    fn labels_keep_their_distance() {
        let placed = spread(&[50.0, 50.0, 99.0, 0.0], 0.0, 100.0);
        for (index, one) in placed.iter().enumerate() {
            assert!((0.0..=100.0).contains(one));
            assert!(placed[..index].iter().all(|other| (one - other).abs() >= LINE_HEIGHT), "{placed:?}");
        }
    }

    #[test]
    fn a_label_lies_over_nothing() {
        let mut room = Room::new(Plane { left: 0.0, right: 200.0, top: 0.0, bottom: 40.0 });
        room.take_line(&[(20.0, 0.0), (20.0, 40.0)]);
        assert!(room.place("redis", (20.0, 20.0)).is_some());
        assert!(room.place("redis", (20.0, 25.0)).is_none(), "over the other");
        assert!(room.place("redis", (0.0, 20.0)).is_none(), "over the line");
        assert!(room.place("redis", (180.0, 20.0)).is_none(), "over the edge");
    }
}
