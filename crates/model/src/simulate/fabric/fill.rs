//! Levels for classes: progressive filling of the part of the fabric that a change reaches.
//!
//! ```text
//!   classes with other members ─┬─▶ within ─▶ fill all resources of these ─▶ levels ─▶ does a class outside notice? ─▶ done
//!   limited by what these use ──┘      ▲           (less what those outside take)            │ it is taken in
//!                                      └─────────────────────────────────────────────────────┘
//! ```
//!
//! A class outside keeps its level. It notices if what limits it is taken by others to another part than before, or if it has
//! a higher level than what is within gets from a resource that both use. When none does, the levels are those of the whole:
//! each class still has a resource that is full and on which none has more, or its own bound (Bertsekas and Gallager, Data
//! Networks, 6.5.2: that is what max-min fair means).

use super::{Fabric, Moment};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Of a resource, while levels are given.
#[derive(Default)]
pub struct OfResource {
    /// Pass in which it was reached.
    reached: u64,
    /// Capacity that is left; weight and number of the classes without a level.
    left: f64,
    weight: f64,
    unfixed: u32,
    /// The level of those within that it limits.
    limit: f64,
}

/// Of a class, while levels are given.
#[derive(Default)]
pub struct OfClass {
    /// Call in which it is within; pass in which it got its level.
    within: u64,
    fixed: u64,
    level: f64,
    limited_by: Option<u32>,
}

/// Levels that differ by less are the same.
const SAME: f64 = 1e-12;

impl Fabric {
    /// Gives levels to all classes that a change of members reaches.
    pub(super) fn fill(&mut self) {
        self.calls += 1;
        let mut within = vec![];
        for at in std::mem::take(&mut self.recounted) {
            self.classes[at as usize].recounted = false;
            self.take_in(at, &mut within);
        }
        for id in std::mem::take(&mut self.touched) {
            self.resources[id as usize].touched = false;
            for place in 0..self.resources[id as usize].classes.len() {
                let at = self.resources[id as usize].classes[place];
                if self.classes[at as usize].limited_by == Some(id) {
                    self.take_in(at, &mut within);
                }
            }
        }
        loop {
            self.pass += 1;
            self.steps += within.len() as u64;
            let reached = self.fill_within(&within);
            let known = within.len();
            for id in reached {
                self.take_in_who_notices(id, &mut within);
            }
            if within.len() == known {
                break;
            }
        }
        for at in within {
            let class = &mut self.classes[at as usize];
            class.limited_by = class.filling.limited_by;
            let level = class.filling.level;
            self.set_level(at, level);
        }
    }

    fn take_in(&mut self, at: u32, within: &mut Vec<u32>) {
        let class = &mut self.classes[at as usize];
        if class.filling.within != self.calls && class.count > 0 {
            class.filling.within = self.calls;
            within.push(at);
        }
    }

    /// Takes in those classes outside whose levels can't stay, for this resource.
    fn take_in_who_notices(&mut self, id: u32, within: &mut Vec<u32>) {
        let resource = &self.resources[id as usize];
        let limit = resource.filling.limit * (1.0 + SAME);
        // Only what had a level in this pass: others were taken in since.
        let moved = resource.classes.iter().map(|&at| &self.classes[at as usize]).any(|class| {
            class.filling.fixed == self.pass && (class.filling.level - class.level).abs() > SAME * class.level
        });
        for place in 0..self.resources[id as usize].classes.len() {
            let at = self.resources[id as usize].classes[place];
            let class = &self.classes[at as usize];
            if class.level > limit || moved && class.limited_by == Some(id) {
                self.take_in(at, within);
            }
        }
    }

    /// Progressive filling: all levels grow together; who meets a full resource or its own bound stops there.
    /// Says which resources those within use.
    fn fill_within(&mut self, within: &[u32]) -> Vec<u32> {
        let mut reached = vec![];
        for &at in within {
            for &(id, _) in &self.classes[at as usize].uses {
                let filling = &mut self.resources[id as usize].filling;
                if filling.reached != self.pass {
                    filling.reached = self.pass;
                    reached.push(id);
                }
            }
        }
        let mut full = BinaryHeap::with_capacity(reached.len());
        for &id in &reached {
            let (mut left, mut weight, mut unfixed) = (self.resources[id as usize].capacity, 0.0, 0);
            for &at in &self.resources[id as usize].classes {
                let class = &self.classes[at as usize];
                let all = self.weight(at, id);
                if class.filling.within == self.calls {
                    weight += all;
                    unfixed += 1;
                } else {
                    left -= all * class.level;
                }
            }
            let filling = &mut self.resources[id as usize].filling;
            (filling.left, filling.weight, filling.unfixed) = (left.max(0.0), weight, unfixed);
            filling.limit = f64::INFINITY;
            full.push(Reverse(Moment(self.level(id), id)));
        }
        let mut bounded = within.to_vec();
        bounded.sort_unstable_by(|&a, &b| {
            let (a_max, b_max) = (self.classes[a as usize].level_max, self.classes[b as usize].level_max);
            a_max.total_cmp(&b_max).then(a.cmp(&b))
        });
        let mut bounded = bounded.into_iter().peekable();
        loop {
            while bounded.next_if(|&at| self.classes[at as usize].filling.fixed == self.pass).is_some() {}
            let Some(&candidate) = bounded.peek() else { break };
            let bound = self.classes[candidate as usize].level_max;
            // A resource's level only rises while others get their rates, so an old entry is put back, never missed.
            while let Some(&Reverse(Moment(level, id))) = full.peek() {
                if self.resources[id as usize].filling.unfixed == 0 {
                    full.pop();
                    continue;
                }
                let current = self.level(id);
                if current <= level * (1.0 + 1e-12) {
                    break;
                }
                full.pop();
                full.push(Reverse(Moment(current, id)));
            }
            match full.peek() {
                Some(&Reverse(Moment(level, id))) if level < bound => {
                    full.pop();
                    let level = self.level_summed_anew(id).min(bound);
                    self.resources[id as usize].filling.limit = level;
                    for place in 0..self.resources[id as usize].classes.len() {
                        let at = self.resources[id as usize].classes[place];
                        if self.is_open(at) {
                            self.fix(at, level, Some(id));
                        }
                    }
                }
                _ => self.fix(candidate, bound, None),
            }
        }
        reached
    }

    /// What all members of a class take of a resource at level 1.
    fn weight(&self, at: u32, id: u32) -> f64 {
        let class = &self.classes[at as usize];
        let one = class.uses.iter().find(|(used, _)| *used == id).map_or(0.0, |(_, weight)| *weight);
        one * f64::from(class.count)
    }

    /// Within, and without a level so far.
    fn is_open(&self, at: u32) -> bool {
        let filling = &self.classes[at as usize].filling;
        filling.within == self.calls && filling.fixed != self.pass
    }

    fn level(&self, id: u32) -> f64 {
        let filling = &self.resources[id as usize].filling;
        if filling.weight > 0.0 { (filling.left / filling.weight).max(0.0) } else { f64::INFINITY }
    }

    /// The level at which a resource is full, without what subtracting large weights from small ones leaves behind.
    fn level_summed_anew(&self, id: u32) -> f64 {
        let resource = &self.resources[id as usize];
        let open = resource.classes.iter().filter(|&&at| self.is_open(at));
        let weight: f64 = open.map(|&at| self.weight(at, id)).sum();
        (resource.filling.left / weight).max(0.0)
    }

    fn fix(&mut self, at: u32, level: f64, limited_by: Option<u32>) {
        let class = &mut self.classes[at as usize];
        class.filling.fixed = self.pass;
        class.filling.level = level;
        class.filling.limited_by = limited_by;
        for &(id, weight) in &class.uses {
            let all = weight * f64::from(class.count);
            let filling = &mut self.resources[id as usize].filling;
            filling.left = (filling.left - all * level).max(0.0);
            filling.weight = (filling.weight - all).max(0.0);
            filling.unfixed -= 1;
        }
    }
}
