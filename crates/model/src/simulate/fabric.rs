//! Activities that share resources: the simulation's clock and its fair-sharing solver.
//!
//! ```text
//!   start ─▶ resources touched ─▶ share (max-min, only the part of the fabric that the change reaches)
//!     ▲                              │ new rates ─▶ new finish times in the queue
//!     └──────── the caller ◀ advance ─┘ finished activities, the clock set to their time
//! ```
//!
//! An activity has an amount of work and uses resources, each with a coefficient: at rate `x` it takes `coefficient·x` of the
//! resource's capacity (1 for bytes over a link, processor seconds a byte for a processor). An activity that uses nothing is a timer.
//!
//! Rates are weighted max-min fair: what is shared is the *level*, the part of its own full speed that an activity has. Threads
//! of any kind then share a processor evenly, and equal transfers a link. No activity's level can rise without lowering one
//! that is no higher. An activity without a full speed of its own counts as one of `FULL_SPEED`.
//!
//! Why an own solver: SimGrid has one, but would make a C++ library of the system a part of this command; the event crates
//! of crates.io have a clock and processes, and no sharing of bandwidth. The queue is `priority-queue`, because each change
//! of a rate moves a finish time that is already in it.
//!
//! Invariant: between two events every rate is constant, so work done is exactly rate times time.

use priority_queue::PriorityQueue;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Activities that finish within this part of the clock's value (and of a nanosecond) finish together.
const TOGETHER: f64 = 1e-12;

/// Of activities that nothing but resources bounds: about what one thread copies in a second.
const FULL_SPEED: f64 = 1e9;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActivityId(pub u32);

/// Seconds that can be ordered. The tie goes to the activity that was numbered first, so that equal runs are equal.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Moment(f64, u32);

impl Eq for Moment {}
impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Moment) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Moment {
    fn cmp(&self, other: &Moment) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

struct Resource {
    capacity: f64,
    users: Vec<u32>,
    /// Taken by the present rates, and its integral over time up to `counted_s`.
    taken: f64,
    taken_total: f64,
    counted_s: f64,
    touched: bool,
    /// The solver's: capacity that is left; weighted coefficients and number of the activities without a rate.
    left: f64,
    weight: f64,
    unfixed: u32,
    reached: u64,
}

struct Activity {
    uses: Vec<(ResourceId, f64)>,
    /// The rate at level 1.
    full_speed: f64,
    /// 1 for an activity that has a full speed of its own, else infinite.
    level_max: f64,
    rate: f64,
    work: f64,
    /// When `work` was right.
    counted_s: f64,
    alive: bool,
    /// The solver's: pass in which it was reached, pass in which it got its rate.
    reached: u64,
    fixed: u64,
}

/// Resources, what uses them, and the time.
#[derive(Default)]
pub struct Fabric {
    now_s: f64,
    resources: Vec<Resource>,
    activities: Vec<Activity>,
    free: Vec<u32>,
    queue: PriorityQueue<u32, Reverse<Moment>>,
    touched: Vec<ResourceId>,
    pass: u64,
    events: u64,
}

impl Fabric {
    pub fn now_s(&self) -> f64 {
        self.now_s
    }

    /// Activities that have finished so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// `capacity` in the resource's own unit a second; infinite: it never limits.
    pub fn resource(&mut self, capacity: f64) -> ResourceId {
        self.resources.push(Resource {
            capacity,
            users: vec![],
            taken: 0.0,
            taken_total: 0.0,
            counted_s: 0.0,
            touched: false,
            left: 0.0,
            weight: 0.0,
            unfixed: 0,
            reached: 0,
        });
        ResourceId(self.resources.len() as u32 - 1)
    }

    /// Part of the resource's capacity that was taken, over all time so far.
    pub fn busy(&self, id: ResourceId) -> f64 {
        let resource = &self.resources[id.0 as usize];
        let total = resource.taken_total + resource.taken * (self.now_s - resource.counted_s);
        if self.now_s > 0.0 && resource.capacity.is_finite() { total / (resource.capacity * self.now_s) } else { 0.0 }
    }

    /// The present rate of an activity that is under way.
    pub fn rate(&self, id: ActivityId) -> f64 {
        self.activities[id.0 as usize].rate
    }

    /// A timer.
    pub fn wait(&mut self, seconds: f64) -> ActivityId {
        self.start(seconds, f64::INFINITY, &[])
    }

    /// Starts `work` on resources. The same resource may be named more than once: its coefficients add up.
    pub fn start(&mut self, work: f64, rate_max: f64, uses: &[(ResourceId, f64)]) -> ActivityId {
        let mut merged: Vec<(ResourceId, f64)> = Vec::with_capacity(uses.len());
        for &(id, coefficient) in uses {
            // What never limits needs no sharing.
            if coefficient <= 0.0 || self.resources[id.0 as usize].capacity.is_infinite() {
                continue;
            }
            merged.push((id, coefficient));
        }
        merged.sort_by_key(|(id, _)| *id);
        merged.dedup_by(|(later, more), (first, sum)| {
            let same = later == first;
            *sum += if same { *more } else { 0.0 };
            same
        });
        // Alone with its bound (or without one) it needs no solver.
        let rate = if !merged.is_empty() {
            0.0
        } else if uses.is_empty() {
            1.0
        } else {
            rate_max
        };
        let number = self.free.pop().unwrap_or_else(|| {
            self.activities.push(Activity {
                uses: vec![],
                full_speed: 0.0,
                level_max: 0.0,
                rate: 0.0,
                work: 0.0,
                counted_s: 0.0,
                alive: false,
                reached: 0,
                fixed: 0,
            });
            self.activities.len() as u32 - 1
        });
        for &(id, _) in &merged {
            self.resources[id.0 as usize].users.push(number);
            self.touch(id);
        }
        let solved = merged.is_empty();
        let activity = &mut self.activities[number as usize];
        activity.uses = merged;
        let bounded = rate_max.is_finite();
        activity.full_speed = if bounded { rate_max } else { FULL_SPEED };
        activity.level_max = if bounded { 1.0 } else { f64::INFINITY };
        activity.rate = rate;
        activity.work = work.max(0.0);
        activity.counted_s = self.now_s;
        activity.alive = true;
        if solved {
            let finish_s = if activity.work == 0.0 { self.now_s } else { self.now_s + activity.work / rate };
            self.queue.push(number, Reverse(Moment(finish_s, number)));
        }
        ActivityId(number)
    }

    /// Advances to the next time at which something finishes, and says what: in the order of their numbers. `None`: nothing
    /// is under way, or nothing that is can ever finish.
    pub fn advance(&mut self) -> Option<Vec<ActivityId>> {
        self.share();
        let (_, &Reverse(Moment(next_s, _))) = self.queue.peek()?;
        if next_s.is_infinite() {
            return None;
        }
        self.now_s = self.now_s.max(next_s);
        let limit_s = self.now_s + (self.now_s * TOGETHER).max(1e-10);
        let mut finished = vec![];
        while let Some((&number, &Reverse(Moment(at_s, _)))) = self.queue.peek() {
            if at_s > limit_s {
                break;
            }
            self.queue.pop();
            finished.push(ActivityId(number));
        }
        finished.sort_unstable();
        self.remove(&finished);
        self.events += finished.len() as u64;
        Some(finished)
    }

    /// All at once: of many that finish together, each resource's users are looked through once.
    fn remove(&mut self, finished: &[ActivityId]) {
        let mut used: Vec<ResourceId> = vec![];
        for &ActivityId(number) in finished {
            let activity = &mut self.activities[number as usize];
            activity.alive = false;
            used.extend(std::mem::take(&mut activity.uses).into_iter().map(|(id, _)| id));
            self.free.push(number);
        }
        used.sort_unstable();
        used.dedup();
        for id in used {
            let activities = &self.activities;
            self.resources[id.0 as usize].users.retain(|&user| activities[user as usize].alive);
            self.touch(id);
        }
    }

    fn touch(&mut self, id: ResourceId) {
        let resource = &mut self.resources[id.0 as usize];
        if !resource.touched {
            resource.touched = true;
            self.touched.push(id);
        }
    }

    /// Gives rates to all activities that the touched resources reach.
    fn share(&mut self) {
        if self.touched.is_empty() {
            return;
        }
        self.pass += 1;
        let pass = self.pass;
        let mut resources: Vec<u32> = vec![];
        let mut activities: Vec<u32> = vec![];
        for id in std::mem::take(&mut self.touched) {
            let resource = &mut self.resources[id.0 as usize];
            resource.touched = false;
            if resource.reached != pass {
                resource.reached = pass;
                resources.push(id.0);
            }
        }
        let mut next = 0;
        while next < resources.len() {
            let at = resources[next] as usize;
            next += 1;
            let resource = &mut self.resources[at];
            resource.taken_total += resource.taken * (self.now_s - resource.counted_s);
            resource.counted_s = self.now_s;
            resource.taken = 0.0;
            resource.left = resource.capacity;
            resource.weight = 0.0;
            resource.unfixed = 0;
            for place in 0..self.resources[at].users.len() {
                let user = self.resources[at].users[place];
                let activity = &mut self.activities[user as usize];
                if activity.reached == pass {
                    continue;
                }
                activity.reached = pass;
                activities.push(user);
                for &(id, _) in &activity.uses {
                    let other = &mut self.resources[id.0 as usize];
                    if other.reached != pass {
                        other.reached = pass;
                        resources.push(id.0);
                    }
                }
            }
        }
        for &number in &activities {
            let activity = &self.activities[number as usize];
            for &(id, coefficient) in &activity.uses {
                let resource = &mut self.resources[id.0 as usize];
                resource.weight += coefficient * activity.full_speed;
                resource.unfixed += 1;
            }
        }
        self.fill(&resources, activities, pass);
    }

    /// Progressive filling: all levels grow together; who meets a full resource or its own bound stops there.
    fn fill(&mut self, resources: &[u32], mut activities: Vec<u32>, pass: u64) {
        let mut full: BinaryHeap<Reverse<Moment>> = resources
            .iter()
            .filter(|&&at| self.resources[at as usize].weight > 0.0)
            .map(|&at| Reverse(Moment(self.level(at), at)))
            .collect();
        activities.sort_unstable_by(|&a, &b| {
            let (a_max, b_max) = (self.activities[a as usize].level_max, self.activities[b as usize].level_max);
            a_max.total_cmp(&b_max).then(a.cmp(&b))
        });
        let mut bounded = activities.into_iter().peekable();
        loop {
            while bounded.next_if(|&number| self.activities[number as usize].fixed == pass).is_some() {}
            let Some(&candidate) = bounded.peek() else { break };
            let bound = self.activities[candidate as usize].level_max;
            // A resource's level only rises while others get their rates, so an old entry is put back, never missed.
            while let Some(&Reverse(Moment(level, at))) = full.peek() {
                if self.resources[at as usize].unfixed == 0 {
                    full.pop();
                    continue;
                }
                let current = self.level(at);
                if current <= level * (1.0 + 1e-12) {
                    break;
                }
                full.pop();
                full.push(Reverse(Moment(current, at)));
            }
            match full.peek() {
                Some(&Reverse(Moment(level, at))) if level < bound => {
                    full.pop();
                    let level = self.level_summed_anew(at, pass).min(bound);
                    let users = std::mem::take(&mut self.resources[at as usize].users);
                    for &user in &users {
                        if self.activities[user as usize].fixed != pass {
                            self.fix(user, level, pass);
                        }
                    }
                    self.resources[at as usize].users = users;
                }
                _ => {
                    self.fix(candidate, bound, pass);
                }
            }
        }
    }

    fn level(&self, at: u32) -> f64 {
        let resource = &self.resources[at as usize];
        if resource.weight > 0.0 { (resource.left / resource.weight).max(0.0) } else { f64::INFINITY }
    }

    /// The level at which a resource is full, without what subtracting large weights from small ones leaves behind.
    fn level_summed_anew(&self, at: u32, pass: u64) -> f64 {
        let resource = &self.resources[at as usize];
        let weight: f64 = resource
            .users
            .iter()
            .map(|&user| &self.activities[user as usize])
            .filter(|activity| activity.fixed != pass)
            .flat_map(|activity| {
                activity
                    .uses
                    .iter()
                    .filter(|(id, _)| id.0 == at)
                    .map(|(_, coefficient)| coefficient * activity.full_speed)
            })
            .sum();
        (resource.left / weight).max(0.0)
    }

    fn fix(&mut self, number: u32, level: f64, pass: u64) {
        let activity = &mut self.activities[number as usize];
        activity.fixed = pass;
        let rate = activity.full_speed * level;
        for &(id, coefficient) in &activity.uses {
            let resource = &mut self.resources[id.0 as usize];
            resource.left = (resource.left - coefficient * rate).max(0.0);
            resource.weight = (resource.weight - coefficient * activity.full_speed).max(0.0);
            resource.unfixed -= 1;
            resource.taken += coefficient * rate;
        }
        let known = self.queue.get_priority(&number).is_some();
        if known && (activity.rate - rate).abs() <= 1e-12 * rate {
            return; // it finishes when it would have
        }
        activity.work = (activity.work - activity.rate * (self.now_s - activity.counted_s)).max(0.0);
        activity.counted_s = self.now_s;
        activity.rate = rate;
        let finish_s = if activity.work == 0.0 { self.now_s } else { self.now_s + activity.work / rate };
        self.queue.push(number, Reverse(Moment(finish_s, number)));
    }
}
