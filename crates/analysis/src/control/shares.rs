//! A limit of memory that is shared so that all who can spill get on, however many they are.
//!
//! ```text
//!   limit = what can't spill + what each sort merges with + equal parts for who can spill
//! ```
//!
//! A sort frees what it merges with whenever it spills, and takes it again. DataFusion's `FairSpillPool` gives it to who asks first: where several
//! sort at once (both sides of a join), one of them takes all that is free to merge with, and another one, which might have gone on with little,
//! fails.

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use std::collections::HashMap;
use std::fmt::{Display, Formatter};
use std::sync::Mutex;

/// How DataFusion calls what a sort merges with; the sort itself, which can spill, is another consumer.
const MERGE: &str = "ExternalSorterMerge";

#[derive(Debug)]
pub struct Shares {
    limit: usize,
    /// What each sort is to merge with (`sort_spill_reservation_bytes`).
    merge: usize,
    state: Mutex<State>,
}

/// All in bytes, but for `can_spill`.
#[derive(Debug, Default)]
struct State {
    /// How many can.
    can_spill: usize,
    spillable: usize,
    /// Of each sort, by the consumer's number.
    merging: HashMap<usize, usize>,
    /// Of all others.
    fixed: usize,
}

impl State {
    fn held(&mut self, consumer: &MemoryConsumer) -> &mut usize {
        match kind(consumer) {
            Kind::Spills => &mut self.spillable,
            Kind::Merges => self.merging.entry(consumer.id()).or_default(),
            Kind::Other => &mut self.fixed,
        }
    }
}

#[derive(PartialEq)]
enum Kind {
    Spills,
    Merges,
    Other,
}

fn kind(consumer: &MemoryConsumer) -> Kind {
    match consumer.can_spill() {
        true => Kind::Spills,
        false if consumer.name().starts_with(MERGE) => Kind::Merges,
        false => Kind::Other,
    }
}

impl Shares {
    pub fn new(limit: usize, merge: usize) -> Shares {
        Shares { limit, merge, state: Mutex::default() }
    }

    /// What is set aside for each sort's merging: half of what there is goes to it, at most.
    fn merge_share(&self, state: &State) -> usize {
        let free = self.limit.saturating_sub(state.fixed);
        (free / 2).checked_div(state.merging.len()).map_or(self.merge, |share| share.min(self.merge))
    }

    /// By how much this may hold more than it does.
    fn most(&self, state: &State, reservation: &MemoryReservation) -> usize {
        let share = self.merge_share(state);
        let set_aside = share * state.merging.len();
        let part = self.limit.saturating_sub(state.fixed + set_aside) / state.can_spill.max(1);
        let merging = state.merging.values().map(|&held| held.max(share)).sum::<usize>();
        let unused = self.limit.saturating_sub(state.fixed + state.spillable + merging);
        match kind(reservation.consumer()) {
            Kind::Spills => part.saturating_sub(reservation.size()),
            Kind::Merges => {
                // A sort that merges has spilled what it held: beyond its share it takes from its part.
                let held = state.merging.get(&reservation.consumer().id()).copied().unwrap_or(0);
                let more = (share.max(held) + unused).min(share + part);
                more.saturating_sub(held)
            }
            Kind::Other => unused,
        }
    }
}

impl Display for Shares {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        write!(out, "shares of {} bytes", self.limit)
    }
}

impl MemoryPool for Shares {
    fn name(&self) -> &str {
        "shares"
    }
    fn register(&self, consumer: &MemoryConsumer) {
        let mut state = self.state.lock().unwrap();
        match kind(consumer) {
            Kind::Spills => state.can_spill += 1,
            Kind::Merges => _ = state.merging.insert(consumer.id(), 0),
            Kind::Other => {}
        }
    }
    fn unregister(&self, consumer: &MemoryConsumer) {
        let mut state = self.state.lock().unwrap();
        match kind(consumer) {
            Kind::Spills => state.can_spill -= 1,
            Kind::Merges => _ = state.merging.remove(&consumer.id()),
            Kind::Other => {}
        }
    }
    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        *self.state.lock().unwrap().held(reservation.consumer()) += additional;
    }
    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        *self.state.lock().unwrap().held(reservation.consumer()) -= shrink;
    }
    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        let most = self.most(&state, reservation);
        if additional > most {
            let (name, held) = (reservation.consumer().name(), reservation.size());
            return Err(DataFusionError::ResourcesExhausted(format!(
                "{name} holds {held} bytes and asks for {additional} more, of which its share has {most}"
            )));
        }
        *state.held(reservation.consumer()) += additional;
        Ok(())
    }
    fn reserved(&self) -> usize {
        let state = self.state.lock().unwrap();
        state.fixed + state.spillable + state.merging.values().sum::<usize>()
    }
    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn sort(pool: &Arc<dyn MemoryPool>, number: usize) -> [MemoryReservation; 2] {
        let sorter = MemoryConsumer::new(format!("ExternalSorter[{number}]")).with_can_spill(true);
        [sorter, MemoryConsumer::new(format!("{MERGE}[{number}]"))].map(|consumer| consumer.register(pool))
    }

    #[test]
    fn each_of_two_sorts_has_what_it_merges_with_whenever_it_asks() {
        let pool: Arc<dyn MemoryPool> = Arc::new(Shares::new(100, 10));
        let ([one, merge_one], [other, merge_other]) = (sort(&pool, 0), sort(&pool, 1));
        merge_one.try_grow(10).unwrap();
        // The parts are of what is left for them: 100 - 2 * 10, by two.
        one.try_grow(40).unwrap();
        assert!(one.try_grow(1).is_err());
        // It spills and merges, with what it held too, and leaves the other one its own.
        one.free();
        merge_one.try_grow(40).unwrap();
        assert!(merge_one.try_grow(1).is_err());
        merge_other.try_grow(10).unwrap();
        other.try_grow(40).unwrap();
        assert_eq!(pool.reserved(), 100);
        merge_other.free();
        assert!(merge_one.try_grow(1).is_err(), "what the other one merges with is set aside");
        merge_other.try_grow(10).unwrap();
    }

    #[test]
    fn what_can_not_spill_leaves_the_sorts_what_they_merge_with() {
        let pool: Arc<dyn MemoryPool> = Arc::new(Shares::new(100, 10));
        let table = MemoryConsumer::new("HashJoinInput").register(&pool);
        let [sorter, merge] = sort(&pool, 0);
        assert!(table.try_grow(91).is_err());
        table.try_grow(60).unwrap();
        sorter.try_grow(30).unwrap();
        assert!(sorter.try_grow(1).is_err());
        merge.try_grow(10).unwrap();
        drop((sorter, merge));
        table.try_grow(40).unwrap();
        assert!(table.try_grow(1).is_err());
        drop(table);
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn many_sorts_share_half_of_it_to_merge_with() {
        let pool: Arc<dyn MemoryPool> = Arc::new(Shares::new(80, 10));
        let sorts: Vec<_> = (0..8).map(|number| sort(&pool, number)).collect();
        for [sorter, merge] in &sorts {
            merge.try_grow(5).unwrap();
            sorter.try_grow(5).unwrap();
        }
        assert_eq!(pool.reserved(), 80);
        assert!(sorts.iter().flatten().all(|reservation| reservation.try_grow(1).is_err()));
    }
}
