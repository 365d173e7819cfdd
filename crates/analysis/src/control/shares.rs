//! A limit of memory that is shared so that all who can spill get on, however many they are.
//!
//! ```text
//!   limit = what can't spill (a 16th at least) + what each sort merges with + equal parts for who can spill
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

/// How DataFusion calls a sort, which can spill, and what it merges with, which is another consumer.
const SORT: &str = "ExternalSorter[";
const MERGE: &str = "ExternalSorterMerge[";

/// To merge what a sort holds may take so many times that: before it spills it merges in memory, rows of several columns in a form of their own
/// beside their cells, and fails where there is less.
const MERGE_TIMES: usize = 3;

#[derive(Debug)]
pub struct Shares {
    limit: usize,
    /// What each sort is to merge with (`sort_spill_reservation_bytes`).
    merge: usize,
    state: Mutex<State>,
}

/// What is held, in bytes.
#[derive(Debug, Default)]
struct State {
    spillable: HashMap<ConsumerId, usize>,
    merging: HashMap<ConsumerId, usize>,
    /// Of all others.
    fixed: usize,
}

type ConsumerId = usize;

impl State {
    fn held(&mut self, consumer: &MemoryConsumer) -> &mut usize {
        match kind(consumer) {
            Kind::Spills => self.spillable.entry(consumer.id()).or_default(),
            Kind::Merges => self.merging.entry(consumer.id()).or_default(),
            Kind::Other => &mut self.fixed,
        }
    }

    /// Where consumers of this kind are counted by themselves.
    fn each(&mut self, consumer: &MemoryConsumer) -> Option<&mut HashMap<ConsumerId, usize>> {
        match kind(consumer) {
            Kind::Spills => Some(&mut self.spillable),
            Kind::Merges => Some(&mut self.merging),
            Kind::Other => None,
        }
    }
}

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

    /// What is set aside for each sort's merging: half of what there is, for all of them, at most.
    fn merge_share(&self, state: &State) -> usize {
        let free = self.limit.saturating_sub(state.fixed);
        (free / 2).checked_div(state.merging.len()).map_or(self.merge, |share| share.min(self.merge))
    }

    /// How much more this may hold.
    fn more(&self, state: &State, reservation: &MemoryReservation) -> usize {
        let consumer = reservation.consumer();
        let held = |each: &HashMap<ConsumerId, usize>| each.get(&consumer.id()).copied().unwrap_or(0);
        let share = self.merge_share(state);
        let for_others = self.limit / 16;
        let set_aside = state.fixed.max(for_others) + share * state.merging.len();
        let part = self.limit.saturating_sub(set_aside) / state.spillable.len().max(1);
        let merging = state.merging.values().map(|&held| held.max(share)).sum::<usize>();
        let unused = self.limit.saturating_sub(state.fixed + state.spillable.values().sum::<usize>() + merging);
        match kind(consumer) {
            // It divides what it holds among what it merges, and can't do without its first rows.
            Kind::Spills if consumer.name().starts_with(SORT) => match held(&state.spillable) {
                0 => part,
                held => {
                    let of_sort = self.limit.saturating_sub(state.fixed.max(for_others)) / state.merging.len().max(1);
                    part.min(of_sort / (1 + MERGE_TIMES)).saturating_sub(held)
                }
            },
            // As in DataFusion's pool: an aggregate merges what it has spilled with a reservation beside its own.
            Kind::Spills => part.saturating_sub(reservation.size()),
            Kind::Merges => {
                let held = held(&state.merging);
                share.max(held) + unused - held
            }
            Kind::Other => unused.max(for_others.saturating_sub(state.fixed)),
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
        if let Some(each) = self.state.lock().unwrap().each(consumer) {
            each.insert(consumer.id(), 0);
        }
    }
    fn unregister(&self, consumer: &MemoryConsumer) {
        if let Some(each) = self.state.lock().unwrap().each(consumer) {
            each.remove(&consumer.id());
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
        let more = self.more(&state, reservation);
        if additional > more {
            let (name, held) = (reservation.consumer().name(), reservation.size());
            return Err(DataFusionError::ResourcesExhausted(format!(
                "{name} holds {held} bytes and asks for {additional} more, of which it may have {more}"
            )));
        }
        *state.held(reservation.consumer()) += additional;
        Ok(())
    }
    fn reserved(&self) -> usize {
        let state = self.state.lock().unwrap();
        state.fixed + state.spillable.values().chain(state.merging.values()).sum::<usize>()
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
        let sorter = MemoryConsumer::new(format!("{SORT}{number}]")).with_can_spill(true);
        [sorter, MemoryConsumer::new(format!("{MERGE}{number}]"))].map(|consumer| consumer.register(pool))
    }

    #[test]
    fn each_of_two_sorts_has_what_it_merges_with_whenever_it_asks() {
        let pool: Arc<dyn MemoryPool> = Arc::new(Shares::new(160, 10));
        let ([one, merge_one], [other, merge_other]) = (sort(&pool, 0), sort(&pool, 1));
        merge_one.try_grow(10).unwrap();
        // The parts are of what is left for them: 160 - 160 / 16 - 2 * 10, by two.
        one.try_grow(65).unwrap();
        assert!(one.try_grow(1).is_err());
        let divided = one.split(60);
        assert!(one.try_grow(1).is_err(), "what was divided is held still");
        drop(divided);
        // It spills, and merges with all that is unused. The other one has its own still.
        one.free();
        merge_one.try_grow(140).unwrap();
        assert!(merge_one.try_grow(1).is_err());
        merge_other.try_grow(10).unwrap();
        assert_eq!(pool.reserved(), 160);
        merge_other.free();
        assert!(merge_one.try_grow(1).is_err(), "what the other one merges with is set aside");
        merge_other.try_grow(10).unwrap();
        other.try_grow(65).unwrap();
        // An aggregate without groups, say.
        MemoryConsumer::new("AggregateStream").register(&pool).try_grow(10).unwrap();
    }

    #[test]
    fn a_sort_holds_no_more_than_it_can_merge() {
        let pool: Arc<dyn MemoryPool> = Arc::new(Shares::new(1000, 10));
        let sorts = [sort(&pool, 0), sort(&pool, 1)];
        while sorts.iter().any(|[sorter, _]| sorter.try_grow(1).is_ok()) {}
        for [sorter, merge] in &sorts {
            assert!(sorter.size() > 100);
            merge.try_grow(MERGE_TIMES * sorter.size()).unwrap();
        }
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
            sorter.try_grow(4).unwrap();
        }
        assert!(sorts.iter().all(|[sorter, _]| sorter.try_grow(1).is_err()));
        assert!(pool.reserved() <= 80);
    }
}
