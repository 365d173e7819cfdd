//! Traces: what the agent moved, runs and queries as OpenTelemetry spans, sent to a collector where the environment names one.
//!
//!   agent ──each second: what has ended since──▶ watch ──spans──▶ queue ──batches──▶ send ──OTLP, HTTP──▶ collector
//!
//! Two tasks, so that a collector that is slow or away keeps nothing from being noticed. What it does not take waits in the queue;
//! beyond the queue's bound the oldest go, and are counted.

mod collector;
mod spans;

use crate::agent;
use crate::store::Store;
use collector::{Collector, Sent};
use opentelemetry_sdk::trace::SpanData;
use spans::Spans;
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use terrace_client::queries::{Record, State, of_session, read};
use terrace_core::control::Ended;
use terrace_tool::failure::{Failure, warn};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How often the agent is asked.
const LOOK: Duration = Duration::from_secs(1);
/// After an answer with so many moves it is asked sooner: it keeps only the last ones.
const BUSY: usize = 1024;
const LOOK_BUSY: Duration = Duration::from_millis(100);
/// Spans that wait for a collector.
const QUEUE: usize = 16_384;
const BATCH: usize = 512;
/// Pauses after a collector did not answer: the first, and the longest.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Watching,
    /// The server ends: a last look.
    Ending,
    /// That was taken, and is to be sent.
    Looked,
}

/// The tasks that watch and send.
pub struct Traces {
    stage: watch::Sender<Stage>,
    watching: JoinHandle<()>,
    sending: JoinHandle<()>,
}

#[derive(Default)]
struct Queue {
    spans: VecDeque<SpanData>,
    /// Of the spans in it that were put first: how many have left it, sent or not.
    left: u64,
    is_full: bool,
}

impl Traces {
    /// `None`: the environment names no collector, or nothing is to be seen from here. In a runtime.
    pub fn start(store: &Arc<Store>) -> Result<Option<Traces>, Failure> {
        let Some(collector) = Collector::from_environment(store.session().root())? else { return Ok(None) };
        if store.session().runtime_directory().is_none() {
            warn("what an agent on another node moves is not to be seen from here: no traces are sent");
            return Ok(None);
        }
        let (stage, stages) = watch::channel(Stage::Watching);
        let queue = Arc::new(Mutex::new(Queue::default()));
        let watching = tokio::spawn(watch_agent(store.clone(), queue.clone(), stages.clone()));
        let sending = tokio::spawn(send(collector, queue, stages));
        Ok(Some(Traces { stage, watching, sending }))
    }

    /// The server ends: what is there is sent, if that works within so long.
    pub async fn end(self, patience: Duration) {
        let Traces { stage, watching, sending } = self;
        let _ = tokio::time::timeout(patience, async {
            stage.send_replace(Stage::Ending);
            let _ = watching.await;
            stage.send_replace(Stage::Looked);
            let _ = sending.await;
        })
        .await;
    }
}

async fn watch_agent(store: Arc<Store>, queue: Arc<Mutex<Queue>>, mut stages: watch::Receiver<Stage>) {
    let mut look = Look::default();
    let mut pause = LOOK_BUSY;
    loop {
        let is_last = tokio::time::timeout(pause, stages.wait_for(|stage| *stage > Stage::Watching)).await.is_ok();
        let asked = store.clone();
        // It reads a socket and files.
        let taken = tokio::task::spawn_blocking(move || {
            let mut found = look.take(&asked);
            if is_last {
                found.extend(look.spans.unfinished());
            }
            (look, found)
        });
        let Ok((next, found)) = taken.await else { return };
        look = next;
        pause = if found.len() >= BUSY { LOOK_BUSY } else { LOOK };
        queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).put(found);
        if is_last {
            return;
        }
    }
}

/// What has been seen so far.
#[derive(Default)]
struct Look {
    agent_ns: u64,
    next: u64,
    is_late: bool,
    spans: Spans,
    /// Queries of the list whose end was told.
    queries: HashSet<String>,
}

impl Look {
    fn take(&mut self, store: &Store) -> Vec<SpanData> {
        let mut found = vec![];
        // An agent that does not answer is being started again, or has left: it is asked the next time.
        if let Some(ended) = self.ended(store) {
            if ended.lost > 0 && !std::mem::replace(&mut self.is_late, true) {
                warn(format!(
                    "{} moves ended faster than they could be traced; further ones are not told of",
                    ended.lost
                ));
            }
            found.extend(self.spans.of_agent(&ended));
        }
        found.extend(self.ended_queries(store).iter().map(|record| self.spans.of_query(record)));
        found
    }

    fn ended(&mut self, store: &Store) -> Option<Ended> {
        let mut ended = agent::ended(store.session(), self.next).ok()?;
        if ended.agent_ns != self.agent_ns {
            // Another agent's numbers begin with it.
            self.agent_ns = ended.agent_ns;
            ended = agent::ended(store.session(), 0).ok().filter(|again| again.agent_ns == ended.agent_ns)?;
        }
        self.next = ended.next;
        Some(ended)
    }

    fn ended_queries(&mut self, store: &Store) -> Vec<Record> {
        let Ok(directory) = of_session(store.session()) else { return vec![] };
        let mut ended = read(&directory);
        ended.retain(|record| record.state != State::Running);
        let known = std::mem::replace(&mut self.queries, ended.iter().map(|record| record.id.clone()).collect());
        ended.retain(|record| !known.contains(&record.id));
        ended
    }
}

impl Queue {
    fn put(&mut self, spans: Vec<SpanData>) {
        self.spans.extend(spans);
        let excess = self.spans.len().saturating_sub(QUEUE);
        if excess > 0 {
            self.spans.drain(..excess);
            self.left += excess as u64;
            if !std::mem::replace(&mut self.is_full, true) {
                warn(format!(
                    "the collector of traces takes nothing: {excess} spans are dropped, and further ones are not told of"
                ));
            }
        }
    }
}

async fn send(collector: Collector, queue: Arc<Mutex<Queue>>, mut stages: watch::Receiver<Stage>) {
    let queue = || queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut pause = LOOK_BUSY;
    let mut is_refusal_told = false;
    let mut failures = 0;
    loop {
        let is_last = tokio::time::timeout(pause, stages.wait_for(|stage| *stage == Stage::Looked)).await.is_ok();
        pause = LOOK_BUSY;
        loop {
            let (first, batch): (u64, Vec<SpanData>) = {
                let queue = queue();
                (queue.left, queue.spans.iter().take(BATCH).cloned().collect())
            };
            if batch.is_empty() {
                break;
            }
            let count = batch.len();
            match collector.send(batch).await {
                Sent::Taken => failures = 0,
                // It would be refused again.
                Sent::Refused(reason) => {
                    if !std::mem::replace(&mut is_refusal_told, true) {
                        warn(format!("the collector of traces refused {count} spans, which are dropped: {reason}"));
                    }
                }
                Sent::Away(reason) => {
                    if failures == 0 {
                        warn(format!("the collector of traces does not take spans, and is asked again: {reason}"));
                    }
                    pause = (PAUSE * (1 << failures.min(5))).min(PAUSE_MAX);
                    failures += 1;
                    break;
                }
            }
            let mut queue = queue();
            // Some may have been dropped meanwhile.
            let still = count.saturating_sub((queue.left - first) as usize);
            queue.spans.drain(..still);
            queue.left += still as u64;
        }
        if is_last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_collector_takes_is_kept_up_to_a_bound_and_the_newest_stay() {
        let mut spans = Spans::default();
        let mut queue = Queue::default();
        for count in [QUEUE - 1, 3] {
            queue.put((0..count).map(|_| spans::tests::a_move(&mut spans)).collect());
        }
        let last = spans::tests::a_move(&mut spans);
        let id = last.span_context.span_id();
        queue.put(vec![last]);
        assert_eq!((queue.spans.len(), queue.left), (QUEUE, 3));
        assert_eq!(queue.spans.back().unwrap().span_context.span_id(), id);
    }
}
