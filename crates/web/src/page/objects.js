// The tree of objects: a container is listed when it is opened, and again while it is open.

import { address, bytes, element, fetched } from './format.js';

export class Objects {
  constructor(place, choose) {
    this.place = place;
    this.choose = choose;
    this.opened = new Set(['']);
    this.chosen = null;
    this.text = '';
  }

  async list() {
    const tree = await this.listed('');
    // Nothing has changed: a reader's place in the list is kept.
    if (JSON.stringify(tree) === this.text) return;
    this.text = JSON.stringify(tree);
    this.tree = tree;
    this.show();
  }

  async listed(container) {
    const answer = await (await fetched(`/api/objects/${address(container)}`)).json();
    const inside = await Promise.all(
      answer.objects.map(async (object) => {
        const path = container ? `${container}/${object.name}` : object.name;
        const below = object.kind === 'container' && this.opened.has(path);
        // Removed meanwhile.
        return { ...object, path, below: below ? await this.listed(path).catch(() => null) : null };
      }),
    );
    return { objects: inside, hidden: answer.count - answer.objects.length };
  }

  show() {
    const list = this.level(this.tree);
    if (!this.tree.objects.length) list.append(element('li', 'quiet', 'Nothing is below the root yet.'));
    this.place.replaceChildren(list);
  }

  level({ objects, hidden }) {
    const list = element('ul');
    list.setAttribute('role', 'group');
    list.append(...objects.map((object) => this.row(object)));
    if (hidden > 0) list.append(element('li', 'quiet', `… and ${hidden} more`));
    return list;
  }

  row(object) {
    const item = element('li');
    item.setAttribute('role', 'none');
    const button = element('button');
    const isOpen = this.opened.has(object.path);
    button.type = 'button';
    button.setAttribute('role', 'treeitem');
    button.setAttribute('aria-selected', String(object.path === this.chosen));
    button.dataset.path = object.path;
    button.title = object.error ?? `${object.path}: ${object.durable ? 'durable' : 'not yet durable'}, ${object.tier}`;
    const mark = object.kind === 'container' ? (isOpen ? '▾' : '▸') : object.kind === 'array' ? '▦' : '·';
    button.append(
      element('span', `mark ${object.durable ? '' : 'staged'}`, mark),
      element('span', 'name', object.name),
      element('span', 'what', what(object)),
    );
    button.addEventListener('click', () => this.clicked(object));
    item.append(button);
    if (object.below) item.append(this.level(object.below));
    return item;
  }

  async clicked(object) {
    if (object.kind === 'array') {
      this.choose(object.path);
    } else if (object.kind === 'container') {
      if (!this.opened.delete(object.path)) this.opened.add(object.path);
      await this.list();
    }
  }

  // Shows which array is drawn, with the containers that it lies in open.
  mark(path) {
    this.chosen = path;
    const parts = path.split('/');
    parts.slice(0, -1).forEach((_, i) => this.opened.add(parts.slice(0, i + 1).join('/')));
    if (this.tree) this.show();
  }
}

function what(object) {
  if (object.kind === 'array') return `${object.type ?? ''} ${(object.shape ?? []).join('×')}`;
  return object.kind === 'bytes' ? bytes(object.bytes ?? 0) : '';
}
