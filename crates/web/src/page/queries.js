// The list of queries: those that run, each with a button that ends it, and the last that ended.

import { bytes, element, fetched, took } from './format.js';

const COLUMNS = ['id', 'state', 'time', 'rows', 'bytes', 'who', 'query', ''];
const ENDED_MAX = 12;

export class Queries {
  constructor(place) {
    this.place = place;
    this.ending = new Map();
    this.asked = 0;
  }

  async list() {
    this.asked += 1;
    const own = this.asked;
    try {
      const { queries } = await (await fetched('/api/queries')).json();
      // An answer that comes late is dropped.
      if (own === this.asked) this.show(queries);
    } catch (error) {
      if (own === this.asked) this.place.replaceChildren(element('p', 'quiet', error.message));
    }
  }

  show(queries) {
    const running = queries.filter((query) => query.state === 'running');
    const ended = queries.filter((query) => query.state !== 'running').slice(0, ENDED_MAX);
    for (const id of this.ending.keys()) if (!running.some((query) => query.id === id)) this.ending.delete(id);
    if (queries.length === 0) {
      this.place.replaceChildren(element('p', 'quiet', 'No query was asked yet.'));
      return;
    }
    const table = element('table');
    const names = table.createTHead().insertRow();
    for (const name of COLUMNS) names.append(element('th', '', name));
    const body = table.createTBody();
    for (const query of [...running, ...ended]) body.append(this.row(query));
    const kept = document.activeElement?.dataset?.ends;
    this.place.replaceChildren(table);
    if (kept) this.place.querySelector(`[data-ends="${CSS.escape(kept)}"]`)?.focus();
  }

  row(query) {
    const row = element('tr', query.state === 'running' ? 'runs' : '');
    row.dataset.query = query.id;
    const state = element('td', ['failed', 'died', 'timed out'].includes(query.state) ? 'trouble' : '', query.state);
    state.title = query.error ?? '';
    if (query.state === 'running' && query.progress !== null) {
      const bar = element('progress');
      bar.max = 1;
      bar.value = query.progress;
      bar.title = `${Math.floor(query.progress * 100)} % of the cells that it reads`;
      state.append(bar);
    }
    const text = element('td', 'text');
    text.append(element('code', '', query.text));
    text.title = query.text;
    const end = element('td');
    if (query.state === 'running') end.append(this.button(query.id));
    row.append(
      element('td', '', query.id),
      state,
      element('td', 'number', took(query.elapsed_s)),
      element('td', 'number', query.rows.toLocaleString('en')),
      element('td', 'number', bytes(query.bytes)),
      element('td', 'quiet', query.who),
      text,
      end,
    );
    return row;
  }

  button(id) {
    const button = element('button', '', this.ending.get(id) ?? 'End');
    button.type = 'button';
    button.dataset.ends = id;
    button.disabled = this.ending.has(id);
    button.addEventListener('click', async () => {
      this.ending.set(id, 'Ending…');
      button.disabled = true;
      button.textContent = 'Ending…';
      // One that has ended meanwhile is as it was wanted.
      await fetched('/api/cancel', { method: 'POST', body: id }).catch(() => this.ending.delete(id));
      this.list();
    });
    return button;
  }
}
