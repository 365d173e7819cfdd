// Tiers, queues and flows of the agent, as it tells them every second.

import { axis, COLOURS } from './chart.js';
import { bytes, element, pairs } from './format.js';

// Seconds that the charts show.
const KEPT = 180;
// Steps of the axes: powers of two, as the units are.
const STEPS = Array.from({ length: 50 }, (_, i) => 2 ** i);

const fast = (status) => status.tiers.filter((tier) => !tier.durable);

// What comes into the tiers is what they hold more, and what has left them.
const FLOWS = [
  ['arriving', (status) => fast(status).reduce((sum, tier) => sum + tier.used_bytes, 0)
    + status.counters.evicted_bytes + status.counters.removed_bytes],
  ['flushed', (status) => status.counters.flushed_bytes],
  ['prefetched', (status) => status.counters.prefetched_bytes],
  ['evicted', (status) => status.counters.evicted_bytes],
];

export class Flows {
  constructor() {
    this.times = [];
    this.flows = FLOWS.map(() => []);
    this.used = [];
    this.before = null;
  }

  take(status) {
    const now = performance.now() / 1000;
    const totals = FLOWS.map(([, total]) => total(status));
    tiers(document.getElementById('tiers'), status);
    queues(status);
    if (!this.charts) this.begin(fast(status));
    if (this.before) {
      const seconds = Math.max(now - this.before.now, 0.05);
      this.times.push(Date.now() / 1000);
      totals.forEach((total, i) => this.flows[i].push(Math.max(0, total - this.before.totals[i]) / seconds));
      fast(status).forEach((tier, i) => this.used[i]?.push(tier.used_bytes));
      if (this.times.length > KEPT) [this.times, ...this.flows, ...this.used].forEach((series) => series.shift());
      this.charts[0].setData([this.times, ...this.flows]);
      this.charts[1].setData([this.times, ...this.used]);
    }
    this.before = { now, totals };
  }

  begin(tiers) {
    this.used = tiers.map(() => []);
    this.charts = [
      chart('flows', FLOWS.map(([name]) => name), '/s'),
      chart('used', tiers.map((tier) => tier.name), ''),
    ];
    addEventListener('resize', () =>
      this.charts.forEach((made) => made.setSize({ width: made.root.parentElement.clientWidth, height: 160 })),
    );
  }
}

function tiers(place, status) {
  place.replaceChildren(
    ...status.tiers.map((tier) => {
      const part = tier.capacity_bytes ? tier.used_bytes / tier.capacity_bytes : 0;
      const card = element('div', `tier ${part > 0.9 ? 'full' : ''}`);
      const names = element('div', 'names');
      const free = Math.max(0, tier.capacity_bytes - tier.used_bytes);
      names.append(element('strong', '', tier.name), element('span', '', tier.durable ? 'durable' : `${bytes(free)} free`));
      card.append(names);
      if (!tier.durable) {
        const bar = element('progress');
        bar.max = 1;
        bar.value = part;
        bar.title = `${Math.round(part * 100)} % used`;
        card.append(bar);
        card.append(element('small', '', `${bytes(tier.used_bytes)} of ${bytes(tier.capacity_bytes)}, ${tier.files} files`));
      } else {
        card.append(element('small', '', tier.paths.join(', ')));
      }
      card.title = tier.paths.join(', ');
      return card;
    }),
  );
}

function queues(status) {
  const counters = status.counters;
  pairs(document.getElementById('queues'), [
    ['not yet flushed', `${status.unflushed_files} files, ${bytes(status.unflushed_bytes)}`],
    ['moving now', String(status.moving.length)],
    ['flushed', `${counters.flushed_files} files, ${bytes(counters.flushed_bytes)}`],
    ['evicted', `${counters.evicted_files} files, ${bytes(counters.evicted_bytes)}`],
  ]);
  const trouble = [...status.failures.map((failure) => `${failure.path}: ${failure.reason}`), ...status.warnings];
  document.getElementById('failures').replaceChildren(...trouble.slice(-5).map((text) => element('li', '', text)));
}

function chart(id, names, unit) {
  const place = document.getElementById(id);
  const clock = (seconds) => new Date(seconds * 1000).toTimeString().slice(0, 8);
  const shown = (_, value) => (value == null ? '–' : bytes(value) + unit);
  return new uPlot(
    {
      width: place.clientWidth,
      height: 160,
      cursor: { y: false },
      scales: { y: { range: (_, low, high) => [0, Math.max(high, 1024)] } },
      axes: [axis(clock), axis((tick) => bytes(tick) + unit, { size: 78, incrs: STEPS })],
      series: [
        { value: (_, seconds) => (seconds == null ? '–' : clock(seconds)) },
        ...names.map((name, i) => ({
          label: name,
          stroke: COLOURS[i % COLOURS.length],
          fill: `${COLOURS[i % COLOURS.length]}22`,
          width: 1.5,
          points: { show: false },
          value: shown,
        })),
      ],
    },
    [[], ...names.map(() => [])],
    place,
  );
}
