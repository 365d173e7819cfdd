// The slice viewer: two dimensions of an array are drawn, the others stand at an index. With `follow` the growing one stands at its
// newest step, and moves on as steps arrive.
//
// Invariant: what is drawn is what was asked for last; an answer that comes late is dropped.

import { DIVERGING, draw, names, ramp, table } from './colours.js';
import { address, element, fetched, number, pairs } from './format.js';

const byId = (id) => document.getElementById(id);

export class Viewer {
  constructor() {
    this.array = null;
    this.asked = 0;
    this.seen = null;
    this.field = byId('field');
    this.colours = table(names[0]);
    byId('colours').append(...names.map((name) => new Option(name, name)));
    byId('colours').addEventListener('change', (event) => {
      this.colours = table(event.target.value);
      // A map with a middle is for values around zero.
      if (event.target.value === DIVERGING) byId('range').value = 'even';
      this.ranged();
    });
    byId('range').addEventListener('change', () => this.ranged());
    for (const id of ['low', 'high']) byId(id).addEventListener('input', () => this.paint());
    byId('follow').addEventListener('change', () => this.follows() && this.toNewest());
    this.field.addEventListener('mousemove', (event) => this.point(event));
    this.field.addEventListener('mouseleave', () => this.point(null));
  }

  async choose(name) {
    this.array = null;
    this.isGone = false;
    this.slice = null;
    this.seen = null;
    this.wanted = name;
    byId('viewer-title').textContent = name;
    byId('trouble').textContent = '';
    try {
      const array = await (await fetched(`/api/array/${address(name)}`)).json();
      if (this.wanted !== name) return;
      const rank = array.shape.length;
      this.array = array;
      this.coordinates = array.shape.map(() => null);
      // The last two are drawn; a growing one stands at its newest step, others in their middle.
      this.drawn = [...array.shape.keys()].slice(-2);
      this.at = array.shape.map((extent, d) => (array.unlimited[d] ? Math.max(0, extent - 1) : Math.floor(extent / 2)));
      this.controls();
      await Promise.all([this.show(), this.locate()]);
    } catch (error) {
      this.tell(error);
    }
  }

  // Reads the arrays that have the coordinates of the dimensions; few arrays have all.
  async locate() {
    const { name, coordinates } = this.array;
    const read = async (coordinate) => {
      if (!coordinate) return null;
      const path = address(coordinate);
      const about = await (await fetched(`/api/array/${path}`)).json();
      const response = await fetched(`/api/slice/${path}?at=*`);
      const isWhole = JSON.parse(response.headers.get('x-terrace-slice')).every === 1;
      const values = new Float32Array(await response.arrayBuffer());
      return isWhole ? { values, units: about.tags.units ?? '' } : null;
    };
    const found = await Promise.all(coordinates.map((coordinate) => read(coordinate).catch(() => null)));
    if (this.array?.name !== name) return;
    this.coordinates = found;
    this.controls();
    this.paint();
  }

  place(d, index) {
    const coordinate = this.coordinates[d];
    return coordinate && index < coordinate.values.length
      ? `${number(coordinate.values[index])} ${coordinate.units}`.trim()
      : String(index);
  }

  where(d) {
    const last = Math.max(0, this.array.shape[d] - 1);
    const place = this.place(d, this.at[d]);
    const index = `${this.at[d]} of 0–${last}`;
    return place === String(this.at[d]) ? index : `${place} (${index})`;
  }

  // The picture's first row is the dimension's first index.
  axis(d) {
    return `${this.label(d)}: ${this.place(d, 0)} to ${this.place(d, this.array.shape[d] - 1)}`;
  }

  follows() {
    return byId('follow').checked;
  }

  growing(d) {
    return this.array.unlimited[d] && !this.drawn.includes(d);
  }

  // The array has another shape now, or is gone, or there again.
  async grown({ name, shape, begun, identity, error }) {
    if (error) {
      this.isGone = true;
      return this.tell(new Error(error));
    }
    if (this.wanted !== name) return undefined;
    // One that was made anew may be of other dimensions, and has fewer steps than the one that is shown.
    const isAnother = !this.array || identity !== this.array.identity || shape.length !== this.array.shape.length || shape.some((extent, d) => extent < this.array.shape[d]);
    if (this.isGone || isAnother) return this.choose(name);
    const isSame = String(this.array.shape) === String(shape);
    this.array = { ...this.array, shape, begun };
    this.controls();
    if (isSame) return undefined;
    return Promise.all([this.follows() ? this.toNewest() : undefined, this.locate()]);
  }

  toNewest() {
    if (!this.array) return undefined;
    this.at = this.at.map((at, d) => (this.growing(d) ? Math.max(0, this.array.shape[d] - 1) : at));
    this.controls();
    return this.show();
  }

  label(d) {
    return this.array.dimensions[d] || `dimension ${d}`;
  }

  controls() {
    const { shape, type, begun } = this.array;
    const ahead = begun.some((extent, d) => extent > shape[d]);
    byId('described').textContent = `${type} ${shape.join(' × ') || 'scalar'}${ahead ? ', more is being written' : ''}`;
    const kept = document.activeElement?.dataset?.dimension;
    const rows = [];
    if (shape.length > 2) rows.push(this.planes());
    shape.forEach((extent, d) => {
      if (!this.drawn.includes(d)) rows.push(this.slider(d, extent));
    });
    byId('planes').replaceChildren(...rows);
    if (kept) byId('planes').querySelector(`[data-dimension="${kept}"]`)?.focus();
  }

  planes() {
    const label = element('label', 'field', 'Plane ');
    const select = element('select');
    select.id = 'plane';
    const rank = this.array.shape.length;
    for (let a = 0; a < rank; a += 1) {
      for (let b = a + 1; b < rank; b += 1) {
        select.append(new Option(`${this.label(a)} × ${this.label(b)}`, `${a},${b}`));
      }
    }
    select.value = String(this.drawn);
    select.addEventListener('change', () => {
      this.drawn = select.value.split(',').map(Number);
      this.seen = null;
      this.controls();
      this.show();
    });
    label.append(select);
    return label;
  }

  slider(d, extent) {
    const row = element('label', 'dimension', this.label(d));
    const told = element('output', '', this.where(d));
    const range = element('input');
    Object.assign(range, { type: 'range', min: 0, max: Math.max(0, extent - 1), value: this.at[d] });
    range.dataset.dimension = d;
    range.addEventListener('input', () => {
      this.at[d] = Number(range.value);
      told.textContent = this.where(d);
      // Whoever goes back wants to stay there.
      if (this.growing(d) && this.at[d] < extent - 1) byId('follow').checked = false;
      this.show();
    });
    row.append(told, range);
    return row;
  }

  async show() {
    if (!this.array) return undefined;
    this.asked += 1;
    const own = this.asked;
    const { name, shape } = this.array;
    if (shape.includes(0)) return this.tell(new Error('No step is complete yet.'));
    const at = shape.map((_, d) => (this.drawn.includes(d) ? '*' : this.at[d])).join(',');
    try {
      const response = await fetched(`/api/slice/${address(name)}?at=${encodeURIComponent(at)}`);
      const told = JSON.parse(response.headers.get('x-terrace-slice'));
      const values = new Float32Array(await response.arrayBuffer());
      if (own !== this.asked) return undefined;
      for (const key of ['min', 'max', 'mean']) told[key] = Number(told[key]);
      this.slice = { ...told, values };
      byId('trouble').textContent = '';
      this.paint();
    } catch (error) {
      if (own === this.asked) this.tell(error);
    }
    return undefined;
  }

  ranged() {
    const isFixed = byId('range').value === 'fixed';
    byId('fixed').hidden = !isFixed;
    if (isFixed && this.slice && byId('low').value === '') {
      byId('low').value = this.slice.min;
      byId('high').value = this.slice.max;
    }
    this.paint();
  }

  range() {
    const { min, max } = this.slice;
    this.seen = this.seen ? [Math.min(this.seen[0], min), Math.max(this.seen[1], max)] : [min, max];
    const widest = Math.max(Math.abs(min), Math.abs(max));
    switch (byId('range').value) {
      case 'kept': return this.seen;
      case 'even': return [-widest, widest];
      case 'fixed': return [Number(byId('low').value), Number(byId('high').value)];
      default: return [min, max];
    }
  }

  paint() {
    if (!this.slice) return;
    const { values, rows, columns, every, sampled, at, drawn } = this.slice;
    const [low, high] = this.range();
    draw(this.field, values, rows, columns, [low, high], this.colours);
    ramp(byId('ramp'), this.colours);
    const ticks = [4, 3, 2, 1, 0].map((part) => element('span', '', number(low + ((high - low) * part) / 4)));
    byId('ticks').replaceChildren(...ticks);
    byId('rows-name').textContent = drawn.length > 1 ? this.axis(drawn[0]) : '';
    byId('columns-name').textContent = drawn.length > 0 ? this.axis(drawn[drawn.length - 1]) : '';
    const cells = sampled ? `every ${every}th cell` : 'all cells';
    pairs(byId('statistics'), [
      ['min', number(this.slice.min)],
      ['max', number(this.slice.max)],
      ['mean', number(this.slice.mean)],
      ['count', `${this.slice.count.toLocaleString('en')} (${cells})`],
    ]);
    // What is drawn, for who reads the page by a program.
    this.field.dataset.at = at.join(',');
    this.field.dataset.range = `${low},${high}`;
    this.field.dataset.drawn = String(Number(this.field.dataset.drawn ?? 0) + 1);
  }

  // The value under the pointer: the canvas keeps its cells' proportions inside its box.
  point(event) {
    const place = byId('pointed');
    if (!event || !this.slice) {
      place.textContent = 'Point at a cell to see its value.';
      return;
    }
    const { rows, columns, values, every, drawn } = this.slice;
    const box = this.field.getBoundingClientRect();
    const scale = Math.min(box.width / columns, box.height / rows);
    const column = Math.floor((event.clientX - box.left - (box.width - columns * scale) / 2) / scale);
    const row = Math.floor((event.clientY - box.top - (box.height - rows * scale) / 2) / scale);
    if (row < 0 || column < 0 || row >= rows || column >= columns) return;
    // An array of one dimension is one row, one without dimensions one cell.
    const indices = drawn.length > 1 ? [row, column] : [column];
    const where = drawn.map((d, n) => `${this.label(d)} ${this.place(d, indices[n] * every)}`).join(', ') || 'value';
    place.textContent = `${where}: ${number(values[row * columns + column])}`;
  }

  tell(error) {
    byId('trouble').textContent = error.message;
  }
}
