//! Which items of a batch share a call of the script: those of one part, unless they have to travel alone.

use smallvec::SmallVec;

use super::super::route::Part;
use super::queue::{Errand, Manner};

/// The items of a batch in the order of its calls, and how many each call has.
#[derive(Debug)]
pub(super) struct Groups {
    /// Empty if there is one call, with all of them.
    order: Vec<usize>,
    sizes: SmallVec<[usize; 1]>,
}

impl Groups {
    pub(super) fn of(errands: &[Errand]) -> Self {
        let by = |index: usize| by(&errands[index], index);
        let is_one = errands.len() == 1
            || errands
                .iter()
                .all(|errand| errand.manner == Manner::Together && errand.part == errands[0].part);
        if is_one {
            return Self { order: Vec::new(), sizes: SmallVec::from_elem(errands.len(), 1) };
        }
        let mut order: Vec<usize> = (0..errands.len()).collect();
        // What was asked first comes first within its call.
        order.sort_by_key(|index| by(*index));
        let sizes = order.chunk_by(|left, right| by(*left) == by(*right)).map(<[usize]>::len).collect();
        Self { order, sizes }
    }

    /// The items of each call, by their places in the batch.
    pub(super) fn each(&self) -> impl Iterator<Item = SmallVec<[usize; 8]>> {
        let mut begin = 0;
        self.sizes.iter().map(move |size| {
            let places = begin..begin + size;
            begin += size;
            if self.order.is_empty() { places.collect() } else { self.order[places].into() }
        })
    }
}

fn by(errand: &Errand, index: usize) -> (Part, Manner, usize) {
    (errand.part, errand.manner, if errand.manner == Manner::Together { 0 } else { index })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::encode::Item;

    #[test]
    fn items_of_a_part_share_a_call_unless_they_travel_alone() {
        let errand = |(part, manner)| Errand { item: Item::default(), part: Part(part), manner };
        let calls = |all: &[(u16, Manner)]| {
            let errands: Vec<Errand> = all.iter().copied().map(errand).collect();
            Groups::of(&errands).each().map(|places| places.to_vec()).collect::<Vec<_>>()
        };
        let (together, alone, asking) = (Manner::Together, Manner::Alone, Manner::Asking);
        assert_eq!(calls(&[(7, together); 3]), [vec![0, 1, 2]]);
        assert_eq!(calls(&[(7, asking)]), [vec![0]]);
        assert_eq!(calls(&[(7, together), (3, together), (7, together)]), [vec![1], vec![0, 2]]);
        let mixed = [(7, alone), (7, together), (7, asking), (7, together), (7, alone)];
        assert_eq!(calls(&mixed), [vec![1, 3], vec![0], vec![4], vec![2]]);
    }
}
