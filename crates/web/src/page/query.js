// The query box: SQL goes to the engine, its answer is a table, and a plot where it has numbers.
//
// Invariant: one query at a time. Its end is the end of the request: the server ends a query that nobody waits for.

import { element, fetched } from './format.js';
import { plotted } from './plot.js';

const byId = (id) => document.getElementById(id);
// How often the time that a query takes is told.
const CLOCK_MS = 200;

export class Query {
  // `told`: when the list of queries has changed.
  constructor(told) {
    this.told = told;
    this.running = null;
    byId('ask').addEventListener('submit', (event) => {
      event.preventDefault();
      this.ask();
    });
    byId('sql').addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) byId('ask').requestSubmit();
    });
    byId('ends').addEventListener('click', () => this.running?.abort());
    addEventListener('resize', () => this.plot?.resized());
  }

  async ask() {
    const text = byId('sql').value.trim();
    if (this.running || !text) return;
    this.running = new AbortController();
    const begun = performance.now();
    const seconds = () => `${((performance.now() - begun) / 1000).toFixed(1)} s`;
    const clock = setInterval(() => { byId('answered').textContent = `${seconds()} …`; }, CLOCK_MS);
    this.clear();
    this.runs(true);
    try {
      const asked = { method: 'POST', body: text, signal: this.running.signal };
      const answer = await (await fetched('/api/query', asked)).json();
      this.show(answer);
      byId('answered').textContent = `${count(answer)}, ${seconds()}`;
    } catch (error) {
      const isEnded = error.name === 'AbortError';
      byId('answered').textContent = isEnded ? `ended after ${seconds()}` : '';
      byId('refused').textContent = isEnded ? '' : [error.message, error.hint].filter(Boolean).join('\nhint: ');
    } finally {
      clearInterval(clock);
      this.running = null;
      this.runs(false);
      this.told();
    }
  }

  runs(does) {
    byId('asks').disabled = does;
    byId('ends').hidden = !does;
  }

  clear() {
    byId('refused').textContent = '';
    byId('answered').textContent = '';
    byId('rows').hidden = true;
    byId('plot').hidden = true;
    byId('plot').replaceChildren();
    this.plot = null;
  }

  show({ columns, rows }) {
    const table = element('table');
    const names = table.createTHead().insertRow();
    for (const { name, type, numbers } of columns) {
      const cell = element('th', numbers ? 'number' : '', name);
      cell.title = type;
      names.append(cell);
    }
    const body = table.createTBody();
    for (const row of rows) {
      const line = body.insertRow();
      row.forEach((text, i) => line.append(element('td', text === null ? 'quiet' : columns[i].numbers ? 'number' : '', text ?? 'null')));
    }
    byId('rows').replaceChildren(table);
    byId('rows').hidden = false;
    // Shown before it is drawn: a place that is hidden has no width.
    byId('plot').hidden = false;
    this.plot = plotted(byId('plot'), columns);
    byId('plot').hidden = this.plot === null;
  }
}

function count({ rows, count: all }) {
  const told = `${all.toLocaleString('en')} row${all === 1 ? '' : 's'}`;
  const more = all - rows.length;
  return more > 0 ? `${told}; the first ${rows.length.toLocaleString('en')} are shown, ${more.toLocaleString('en')} more are not` : told;
}
