//! What one query holds: counted, and kept below what one query may hold, on the way to the pool of all.

use super::{Control, Shares};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;
use std::fmt::{Debug, Display, Formatter};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The same environment, with this query's own way to memory. `merge_bytes`: what each of its sorts is to merge with.
pub fn with_memory_of(control: &Arc<Control>, environment: &RuntimeEnv, merge_bytes: usize) -> Arc<RuntimeEnv> {
    // Each sort, join and aggregate of the query has its part, so that one that spills late leaves the others theirs.
    let spills = environment.disk_manager.tmp_files_enabled();
    let parts = control.memory_bytes_max.filter(|_| spills).map(|bytes| Shares::new(bytes, merge_bytes));
    let pool = Pool { all: environment.memory_pool.clone(), parts, control: control.clone() };
    let mut environment = environment.clone();
    environment.memory_pool = Arc::new(pool);
    Arc::new(environment)
}

struct Pool {
    all: Arc<dyn MemoryPool>,
    parts: Option<Shares>,
    control: Arc<Control>,
}

impl Pool {
    fn count(&self, bytes: usize) {
        let held = self.control.memory_bytes.fetch_add(bytes as u64, Relaxed) + bytes as u64;
        self.control.memory_bytes_peak.fetch_max(held, Relaxed);
    }
}

impl Debug for Pool {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        write!(out, "a query's part of {:?}", self.all)
    }
}

impl Display for Pool {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        write!(out, "a query's part of {}", self.all)
    }
}

impl MemoryPool for Pool {
    fn name(&self) -> &str {
        "of_query"
    }
    fn register(&self, consumer: &MemoryConsumer) {
        self.all.register(consumer);
        self.parts.iter().for_each(|parts| parts.register(consumer));
    }
    fn unregister(&self, consumer: &MemoryConsumer) {
        self.all.unregister(consumer);
        self.parts.iter().for_each(|parts| parts.unregister(consumer));
    }
    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.all.grow(reservation, additional);
        self.parts.iter().for_each(|parts| parts.grow(reservation, additional));
        self.count(additional);
    }
    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.all.shrink(reservation, shrink);
        self.parts.iter().for_each(|parts| parts.shrink(reservation, shrink));
        self.control.memory_bytes.fetch_sub(shrink as u64, Relaxed);
    }
    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.control.check().map_err(DataFusionError::from)?;
        let held = self.control.memory_bytes.load(Relaxed);
        if let Some(most) = self.control.memory_bytes_max
            && held.saturating_add(additional as u64) > most as u64
        {
            // Operators that can spill do it when they are told so.
            let name = reservation.consumer().name();
            return Err(DataFusionError::ResourcesExhausted(format!(
                "{name} asks for {additional} bytes more, one query holds {held} and may hold {most}"
            )));
        }
        if let Some(parts) = &self.parts {
            parts.try_grow(reservation, additional)?;
        }
        if let Err(error) = self.all.try_grow(reservation, additional) {
            self.parts.iter().for_each(|parts| parts.shrink(reservation, additional));
            return Err(error);
        }
        self.count(additional);
        Ok(())
    }
    fn reserved(&self) -> usize {
        self.all.reserved()
    }
    fn memory_limit(&self) -> MemoryLimit {
        match self.control.memory_bytes_max {
            Some(most) => MemoryLimit::Finite(most),
            None => self.all.memory_limit(),
        }
    }
}
