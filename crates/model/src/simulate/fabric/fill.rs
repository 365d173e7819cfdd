//! Levels for classes: progressive filling of the part of the fabric that a change reaches.
//!
//! ```text
//!   touched resources ─▶ their classes ─▶ resources that limit somebody ─▶ their classes ─▶ … ─▶ fill ─▶ levels
//!                                  └─▶ other resources: a border, with what the classes outside leave ─┘
//! ```
//!
//! Classes outside keep their levels. That is right as long as no border limits a class within: no class outside is limited
//! by anything that a class within uses. A border that does limit one is taken in with all its classes, and all is filled anew.

use super::{Fabric, Moment};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Of a resource, while levels are given.
#[derive(Default)]
pub struct OfResource {
    /// Call in which all its classes are within; pass in which it was reached.
    within: u64,
    reached: u64,
    /// Capacity that is left; weight and number of the classes without a level.
    left: f64,
    weight: f64,
    unfixed: u32,
}

/// Of a class, while levels are given.
#[derive(Default)]
pub struct OfClass {
    /// Pass in which it was reached, pass in which it got its level.
    reached: u64,
    fixed: u64,
    level: f64,
    limited_by: Option<u32>,
}

impl Fabric {
    /// Gives levels to all classes that the touched resources reach.
    pub(super) fn fill(&mut self) {
        if self.touched.is_empty() {
            return;
        }
        self.pass += 1;
        let call = self.pass;
        let mut within = std::mem::take(&mut self.touched);
        for &id in &within {
            let resource = &mut self.resources[id as usize];
            resource.touched = false;
            resource.filling.within = call;
        }
        within.retain(|&id| self.resources[id as usize].contended);
        let classes = loop {
            self.pass += 1;
            let (reached, classes) = self.reach(&mut within, call);
            self.fill_reached(&reached, &classes);
            let before = within.len();
            for &at in &classes {
                if let Some(id) = self.classes[at as usize].filling.limited_by
                    && self.resources[id as usize].filling.within != call
                {
                    self.resources[id as usize].filling.within = call;
                    within.push(id);
                }
            }
            self.steps += classes.len() as u64;
            if within.len() == before {
                break classes;
            }
        };
        for &id in &within {
            self.resources[id as usize].limits = false;
        }
        for at in classes {
            let filling = &self.classes[at as usize].filling;
            if let Some(id) = filling.limited_by {
                self.resources[id as usize].limits = true;
            }
            let level = filling.level;
            self.set_level(at, level);
        }
    }

    /// The classes of the resources within, and all resources that these use. What limits somebody is taken in.
    fn reach(&mut self, within: &mut Vec<u32>, call: u64) -> (Vec<u32>, Vec<u32>) {
        let pass = self.pass;
        let (mut reached, mut classes) = (vec![], vec![]);
        let mut next = 0;
        while next < within.len() {
            let known = classes.len();
            for &at in &self.resources[within[next] as usize].classes {
                let class = &mut self.classes[at as usize];
                if class.filling.reached != pass && class.count > 0 {
                    class.filling.reached = pass;
                    classes.push(at);
                }
            }
            next += 1;
            for &at in &classes[known..] {
                for &(id, _) in &self.classes[at as usize].uses {
                    let resource = &mut self.resources[id as usize];
                    if resource.filling.reached != pass {
                        resource.filling.reached = pass;
                        reached.push(id);
                    }
                    if resource.limits && resource.filling.within != call {
                        resource.filling.within = call;
                        within.push(id);
                    }
                }
            }
        }
        (reached, classes)
    }

    /// Progressive filling: all levels grow together; who meets a full resource or its own bound stops there.
    fn fill_reached(&mut self, reached: &[u32], classes: &[u32]) {
        let mut full = BinaryHeap::with_capacity(reached.len());
        for &id in reached {
            let (mut left, mut weight, mut unfixed) = (self.resources[id as usize].capacity, 0.0, 0);
            for &at in &self.resources[id as usize].classes {
                let class = &self.classes[at as usize];
                let all = self.weight(at, id);
                if class.filling.reached == self.pass {
                    weight += all;
                    unfixed += 1;
                } else {
                    left -= all * class.level;
                }
            }
            let filling = &mut self.resources[id as usize].filling;
            (filling.left, filling.weight, filling.unfixed) = (left.max(0.0), weight, unfixed);
            full.push(Reverse(Moment(self.level(id), id)));
        }
        let mut bounded = classes.to_vec();
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
        filling.reached == self.pass && filling.fixed != self.pass
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
