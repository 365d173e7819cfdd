//! Activities that share resources: the simulation's clock, and what is shared by whom.
//!
//! ```text
//!   start ─▶ class (all that use the same contended resources alike) ─▶ fill: levels of the classes, max-min
//!     ▲                              ▲ a resource gets contended          │ new level ─▶ the class's next finish in the queue
//!     │                              └────────── bounds ◀─────────────────┤
//!     └──────── the caller ◀ advance: finished activities, the clock set to their time ◀┘
//! ```
//!
//! An activity has an amount of work and uses resources, each with a coefficient: at rate `x` it takes `coefficient·x` of the
//! resource's capacity (1 for bytes over a link, processor seconds a byte for a processor). An activity that uses nothing is a timer.
//!
//! Rates are weighted max-min fair (Bertsekas and Gallager, Data Networks, 6.5.2): what is shared is the *level*, the part of its
//! own full speed that an activity has. Threads of any kind then share a processor evenly, and equal transfers a link. No
//! activity's level can rise without lowering one that is no higher. An activity without a full speed of its own counts as one
//! of `FULL_SPEED`.
//!
//! Three things make an event cheap, and none changes a rate:
//!
//! - **Classes.** Activities with the same full speed, the same bound and the same contended resources have one level, so they
//!   are shared out as one. A class counts what each member got since the class began, and members wait in the order of the
//!   count at which they are done: the virtual time of processor sharing (Parekh and Gallager, A Generalized Processor Sharing
//!   Approach, 1993). A new level moves one finish time, however many members there are.
//! - **Contended resources only.** Each class has a bound that its level is below. A resource whose users can't fill it even at
//!   their bounds limits nobody, and is left out of classes and filling until a bound or a user more changes that. So the
//!   links of nodes, each of which makes a transfer different from all others, seldom count.
//! - **Only the part that a change reaches** is filled anew (see `fill`).
//!
//! Why an own solver: SimGrid has one, but would make a C++ library of the system a part of this command; the event crates
//! of crates.io have a clock and processes, and no sharing of bandwidth. The queue is `priority-queue`, because each change
//! of a level moves a finish time that is already in it.
//!
//! Invariants: between two events every rate is constant, so work done is exactly rate times time. After `share`, each class's
//! level is at most its bound, and each resource that isn't contended has room for all its users at their bounds.

mod fill;
#[cfg(test)]
mod tests;

use priority_queue::PriorityQueue;
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};

/// Activities that finish within this part of the clock's value (and of a nanosecond) finish together.
const TOGETHER: f64 = 1e-12;

/// Of activities that nothing but resources bounds: about what one thread copies in a second.
const FULL_SPEED: f64 = 1e9;

/// A class's bound is set so far above its level, and anew when the level is above it or below this part of it.
const BOUND_ABOVE: f64 = 1.25;
const BOUND_KEPT: f64 = 0.5;

/// Contended from here on (rounding apart), and no longer below there: bounds of two classes with one level differ by a factor
/// of two at most, so what stops being contended does not begin again at once.
const CONTENDED: f64 = 1.0 + 1e-10;
const UNCONTENDED: f64 = 0.45;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActivityId(pub u32);

/// A number that can be ordered, and whose it is. The tie goes to who was numbered first, so that equal runs are equal.
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

#[derive(Default)]
struct Resource {
    capacity: f64,
    users: Vec<u32>,
    /// Taken by all that has finished: coefficients times work.
    done: f64,
    /// What its users take at their classes' bounds.
    most: f64,
    contended: bool,
    /// In `suspects`.
    suspect: bool,
    /// Call of `share` in which it was found not to be contended any longer.
    calmed: u64,
    /// While contended: the classes of its users.
    classes: Vec<u32>,
    touched: bool,
    filling: fill::OfResource,
}

struct Use {
    id: ResourceId,
    coefficient: f64,
    /// Where the activity stands among the resource's users.
    place: u32,
}

#[derive(Default)]
struct Activity {
    uses: Vec<Use>,
    /// The rate at level 1.
    full_speed: f64,
    /// The level that it has alone: 1 for one that has a full speed of its own, unless a resource allows less.
    level_max: f64,
    work: f64,
    /// What is left of it between leaving a class and joining one.
    left: f64,
    class: u32,
    /// What each member of the class will have got when this one is done.
    due: f64,
    /// Another one each time that it joins a class; 0: it is in none.
    stamp: u64,
}

/// A member of a class, as long as the activity has this stamp.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Member {
    due: Moment,
    stamp: u64,
}

#[derive(Default)]
struct Class {
    /// What its members have in common.
    key: Box<[u64]>,
    /// The contended resources, and what one member takes of each at level 1.
    uses: Vec<(u32, f64)>,
    full_speed: f64,
    level_max: f64,
    level: f64,
    bound: f64,
    /// What each member that was there all the time has got until `counted_s`.
    served: f64,
    counted_s: f64,
    /// And some that have left.
    members: BinaryHeap<Reverse<Member>>,
    count: u32,
    /// The resource because of which its level is no higher; `None`: that is its own.
    limited_by: Option<u32>,
    /// In `changed`.
    changed: bool,
    /// In `recounted`.
    recounted: bool,
    filling: fill::OfClass,
}

impl Class {
    fn rate(&self) -> f64 {
        self.full_speed * self.level
    }

    fn served_at(&self, now_s: f64) -> f64 {
        self.served + self.rate() * (now_s - self.counted_s)
    }

    fn finish_s(&self, due: f64) -> f64 {
        let left = due - self.served;
        if left <= 0.0 { self.counted_s } else { self.counted_s + left / self.rate() }
    }
}

/// Resources, what uses them, and the time.
#[derive(Default)]
pub struct Fabric {
    now_s: f64,
    resources: Vec<Resource>,
    activities: Vec<Activity>,
    free: Vec<u32>,
    classes: Vec<Class>,
    classes_free: Vec<u32>,
    by_key: HashMap<Box<[u64]>, u32>,
    key: Vec<u64>,
    /// When the first member of each class finishes.
    queue: PriorityQueue<u32, Reverse<Moment>>,
    /// Classes whose first member may be another one.
    changed: Vec<u32>,
    /// Classes on contended resources with other members than before, and these resources.
    recounted: Vec<u32>,
    touched: Vec<u32>,
    /// Resources that may have become contended, or may be so no longer.
    suspects: Vec<u32>,
    stamp: u64,
    /// Calls of `share` and of `fill`, passes of filling.
    shares: u64,
    calls: u64,
    pass: u64,
    events: u64,
    steps: u64,
}

impl Fabric {
    pub fn now_s(&self) -> f64 {
        self.now_s
    }

    /// Activities that have finished so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Work of the sharing so far: levels given to classes, and members that changed their class or whose class changed its bound.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// `capacity` in the resource's own unit a second; infinite: it never limits.
    pub fn resource(&mut self, capacity: f64) -> ResourceId {
        self.resources.push(Resource { capacity, ..Resource::default() });
        ResourceId(self.resources.len() as u32 - 1)
    }

    /// Part of the resource's capacity that was taken, over all time so far.
    pub fn busy(&self, id: ResourceId) -> f64 {
        let resource = &self.resources[id.0 as usize];
        if self.now_s <= 0.0 || resource.capacity.is_infinite() {
            return 0.0;
        }
        let under_way: f64 = resource
            .users
            .iter()
            .map(|&user| &self.activities[user as usize])
            .map(|activity| {
                let left = activity.due - self.classes[activity.class as usize].served_at(self.now_s);
                let coefficient: f64 =
                    activity.uses.iter().filter(|used| used.id == id).map(|used| used.coefficient).sum();
                coefficient * (activity.work - left).max(0.0)
            })
            .sum();
        (resource.done + under_way) / (resource.capacity * self.now_s)
    }

    /// The present rate of an activity that is under way.
    pub fn rate(&self, id: ActivityId) -> f64 {
        self.classes[self.activities[id.0 as usize].class as usize].rate()
    }

    /// A timer.
    pub fn wait(&mut self, seconds: f64) -> ActivityId {
        self.start(seconds, f64::INFINITY, &[])
    }

    /// Starts `work` on resources. The same resource may be named more than once: its coefficients add up.
    pub fn start(&mut self, work: f64, rate_max: f64, uses: &[(ResourceId, f64)]) -> ActivityId {
        let number = self.free.pop().unwrap_or_else(|| {
            self.activities.push(Activity::default());
            self.activities.len() as u32 - 1
        });
        // What never limits needs no sharing.
        let finite = uses
            .iter()
            .filter(|(id, coefficient)| *coefficient > 0.0 && self.resources[id.0 as usize].capacity.is_finite());
        let mut merged: Vec<Use> = finite.map(|&(id, coefficient)| Use { id, coefficient, place: 0 }).collect();
        merged.sort_by_key(|used| used.id);
        merged.dedup_by(|later, first| {
            let same = later.id == first.id;
            first.coefficient += if same { later.coefficient } else { 0.0 };
            same
        });
        let unlimited = merged.is_empty() && rate_max.is_infinite();
        let (full_speed, mut level_max) = match rate_max.is_finite() {
            true => (rate_max, 1.0),
            false if unlimited => (1.0, 1.0),
            false => (FULL_SPEED, f64::INFINITY),
        };
        for used in &mut merged {
            let resource = &mut self.resources[used.id.0 as usize];
            level_max = f64::min(level_max, resource.capacity / (used.coefficient * full_speed));
            used.place = resource.users.len() as u32;
            resource.users.push(number);
        }
        let activity = &mut self.activities[number as usize];
        activity.uses = merged;
        activity.full_speed = full_speed;
        activity.level_max = level_max;
        // Without anything that limits it, it is done at once, unless it is a timer.
        activity.work = if unlimited && !uses.is_empty() { 0.0 } else { work.max(0.0) };
        activity.left = activity.work;
        self.join(number);
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
        while let Some((&at, &Reverse(Moment(at_s, _)))) = self.queue.peek() {
            if at_s > limit_s {
                break;
            }
            self.queue.pop();
            while let Some(first) = self.first(at) {
                let class = &mut self.classes[at as usize];
                if class.finish_s(first.due.0) > limit_s {
                    break;
                }
                class.members.pop();
                finished.push(ActivityId(first.due.1));
            }
            self.change(at);
        }
        finished.sort_unstable();
        for &ActivityId(number) in &finished {
            self.remove(number);
        }
        self.events += finished.len() as u64;
        Some(finished)
    }

    /// The member that is done first, after those that have left were cleared away.
    fn first(&mut self, at: u32) -> Option<Member> {
        let class = &mut self.classes[at as usize];
        while let Some(&Reverse(member)) = class.members.peek() {
            if self.activities[member.due.1 as usize].stamp == member.stamp {
                return Some(member);
            }
            class.members.pop();
        }
        None
    }

    fn remove(&mut self, number: u32) {
        self.leave(number);
        for Use { id, coefficient, place } in std::mem::take(&mut self.activities[number as usize].uses) {
            let resource = &mut self.resources[id.0 as usize];
            resource.done += coefficient * self.activities[number as usize].work;
            resource.users.swap_remove(place as usize);
            if let Some(&moved) = resource.users.get(place as usize) {
                let uses = &mut self.activities[moved as usize].uses;
                if let Some(used) = uses.iter_mut().find(|used| used.id == id) {
                    used.place = place;
                }
            } else if resource.users.is_empty() {
                resource.most = 0.0;
            }
        }
        self.free.push(number);
    }

    /// Puts an activity into the class of those that use the same contended resources alike.
    fn join(&mut self, number: u32) {
        let activity = &self.activities[number as usize];
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        key.extend([activity.full_speed.to_bits(), activity.level_max.to_bits()]);
        for used in activity.uses.iter().filter(|used| self.resources[used.id.0 as usize].contended) {
            key.extend([u64::from(used.id.0), used.coefficient.to_bits()]);
        }
        let at = match self.by_key.get(key.as_slice()) {
            Some(&at) => at,
            None => self.class(&key, number),
        };
        self.key = key;
        self.stamp += 1;
        let activity = &mut self.activities[number as usize];
        let class = &mut self.classes[at as usize];
        activity.class = at;
        activity.stamp = self.stamp;
        activity.due = class.served_at(self.now_s) + activity.left;
        class.members.push(Reverse(Member { due: Moment(activity.due, number), stamp: self.stamp }));
        class.count += 1;
        self.counted(number, 1.0);
    }

    fn leave(&mut self, number: u32) {
        let activity = &mut self.activities[number as usize];
        let class = &mut self.classes[activity.class as usize];
        activity.left = (activity.due - class.served_at(self.now_s)).max(0.0);
        activity.stamp = 0;
        class.count -= 1;
        self.counted(number, -1.0);
    }

    /// An activity has come to its class (1) or gone from it (-1).
    fn counted(&mut self, number: u32, sign: f64) {
        let activity = &self.activities[number as usize];
        let class = &mut self.classes[activity.class as usize];
        for used in &activity.uses {
            let resource = &mut self.resources[used.id.0 as usize];
            resource.most += sign * used.coefficient * activity.full_speed * class.bound;
            suspect(resource, used.id.0, &mut self.suspects);
        }
        for &(id, _) in &class.uses {
            touch(&mut self.resources[id as usize], id, &mut self.touched);
        }
        let at = activity.class;
        if !class.recounted && !class.uses.is_empty() {
            class.recounted = true;
            self.recounted.push(at);
        }
        self.change(at);
    }

    fn change(&mut self, at: u32) {
        let class = &mut self.classes[at as usize];
        if !class.changed {
            class.changed = true;
            self.changed.push(at);
        }
    }

    /// A new class for an activity.
    fn class(&mut self, key: &[u64], number: u32) -> u32 {
        let at = self.classes_free.pop().unwrap_or_else(|| {
            self.classes.push(Class::default());
            self.classes.len() as u32 - 1
        });
        let activity = &self.activities[number as usize];
        let mut uses = vec![];
        for used in &activity.uses {
            let resource = &mut self.resources[used.id.0 as usize];
            if resource.contended {
                resource.classes.push(at);
                uses.push((used.id.0, used.coefficient * activity.full_speed));
            }
        }
        let class = &mut self.classes[at as usize];
        class.key = key.into();
        // Where nothing is contended its members are as fast as alone; else it has no rate before it is filled.
        class.level = if uses.is_empty() { activity.level_max } else { 0.0 };
        class.uses = uses;
        class.full_speed = activity.full_speed;
        class.level_max = activity.level_max;
        class.bound = activity.level_max;
        class.limited_by = None;
        class.served = 0.0;
        class.counted_s = self.now_s;
        self.by_key.insert(class.key.clone(), at);
        at
    }

    fn drop_class(&mut self, at: u32) {
        let class = &mut self.classes[at as usize];
        for (id, _) in std::mem::take(&mut class.uses) {
            self.resources[id as usize].classes.retain(|&other| other != at);
        }
        class.members.clear();
        self.by_key.remove(&std::mem::take(&mut class.key));
        self.queue.remove(&at);
        self.classes_free.push(at);
    }

    /// Gives levels to all classes that the touched resources reach, until no more resources are found to be contended.
    fn share(&mut self) {
        self.shares += 1;
        while !(self.touched.is_empty() && self.suspects.is_empty()) {
            self.fill();
            self.contend();
        }
        for at in std::mem::take(&mut self.changed) {
            self.classes[at as usize].changed = false;
            match self.first(at) {
                None => self.drop_class(at),
                Some(first) => {
                    let finish_s = self.classes[at as usize].finish_s(first.due.0);
                    self.queue.push(at, Reverse(Moment(finish_s, at)));
                }
            }
        }
    }

    /// Finds out which of the suspects are contended. Those that are so most come first: what they leave to their users may be
    /// so little that no other resource of theirs is contended.
    fn contend(&mut self) {
        let mut suspects = std::mem::take(&mut self.suspects);
        suspects.retain(|&id| {
            let resource = &mut self.resources[id as usize];
            resource.suspect = match resource.contended {
                false => resource.most > CONTENDED * resource.capacity,
                true => resource.most < UNCONTENDED * resource.capacity && resource.calmed != self.shares,
            };
            resource.suspect
        });
        let part = |resource: &Resource| match resource.contended {
            false => resource.most / resource.capacity,
            true => 0.0,
        };
        let most = suspects.iter().map(|&id| part(&self.resources[id as usize])).fold(0.0, f64::max);
        let (now, later): (Vec<u32>, Vec<u32>) =
            suspects.into_iter().partition(|&id| 2.0 * part(&self.resources[id as usize]) >= most);
        self.suspects = later;
        for id in now {
            let resource = &mut self.resources[id as usize];
            resource.suspect = false;
            resource.contended = !resource.contended;
            if !resource.contended {
                resource.calmed = self.shares;
            }
            let users = std::mem::take(&mut resource.users);
            self.steps += users.len() as u64;
            for &user in &users {
                self.leave(user);
                self.join(user);
            }
            self.resources[id as usize].users = users;
        }
    }

    /// Sets a class's level, and its bound if that no longer fits.
    fn set_level(&mut self, at: u32, level: f64) {
        self.steps += 1;
        let class = &mut self.classes[at as usize];
        if (class.level - level).abs() <= 1e-12 * level {
            return; // its members finish when they would have
        }
        class.served = class.served_at(self.now_s);
        class.counted_s = self.now_s;
        class.level = level;
        self.change(at);
        let class = &mut self.classes[at as usize];
        let kept = level <= class.bound && level >= BOUND_KEPT * class.bound;
        let bound = if kept { class.bound } else { class.level_max.min(level * BOUND_ABOVE) };
        let more = bound - class.bound;
        class.bound = bound;
        if more == 0.0 {
            return;
        }
        if class.members.len() > 2 * class.count as usize {
            class.members.retain(|Reverse(member)| self.activities[member.due.1 as usize].stamp == member.stamp);
        }
        for Reverse(member) in class.members.iter() {
            let activity = &self.activities[member.due.1 as usize];
            if activity.stamp != member.stamp {
                continue;
            }
            self.steps += 1;
            for used in &activity.uses {
                let resource = &mut self.resources[used.id.0 as usize];
                resource.most += used.coefficient * activity.full_speed * more;
                suspect(resource, used.id.0, &mut self.suspects);
            }
        }
    }
}

fn touch(resource: &mut Resource, id: u32, touched: &mut Vec<u32>) {
    if !resource.touched {
        resource.touched = true;
        touched.push(id);
    }
}

fn suspect(resource: &mut Resource, id: u32, suspects: &mut Vec<u32>) {
    if !resource.suspect {
        resource.suspect = true;
        suspects.push(id);
    }
}
