// The page: one stream of events feeds the tiers, the flows and the viewer; the array that is drawn stands in the address.

import { Flows } from './flows.js';
import { duration } from './format.js';
import { Objects } from './objects.js';
import { Queries } from './queries.js';
import { Query } from './query.js';
import { Viewer } from './viewer.js';

// How often the open containers are listed again.
const LIST_MS = 3000;
const QUERIES_MS = 1500;

const byId = (id) => document.getElementById(id);
const flows = new Flows();
const viewer = new Viewer();
const objects = new Objects(byId('objects'), (path) => {
  location.hash = encodeURIComponent(path);
});
const queries = new Queries(byId('queries'));
new Query(() => queries.list());
let events = null;

function state(text, isLive) {
  byId('state').textContent = text;
  byId('state').className = `chip ${isLive ? 'live' : 'waiting'}`;
}

function take(status) {
  if (status.error) return state(status.error, false);
  state('live', true);
  byId('root').textContent = status.root;
  byId('uptime').textContent = `agent up ${duration(status.uptime_s)}`;
  byId('runs').textContent = `${status.runs.length} run${status.runs.length === 1 ? '' : 's'}`;
  return flows.take(status);
}

function listen(array) {
  events?.close();
  events = new EventSource(`/api/events${array ? `?array=${encodeURIComponent(array)}` : ''}`);
  events.addEventListener('status', (event) => take(JSON.parse(event.data)));
  events.addEventListener('shape', (event) => viewer.grown(JSON.parse(event.data)));
  events.onerror = () => state('the server does not answer', false);
}

// An address that somebody has typed may be badly encoded: then it is the name as it is.
function named() {
  const text = location.hash.slice(1);
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

async function chosen() {
  const array = named();
  if (array) {
    objects.mark(array);
    await viewer.choose(array);
  }
  listen(array);
}

async function list() {
  try {
    await objects.list();
  } catch (error) {
    state(error.message, false);
  }
}

addEventListener('hashchange', chosen);
byId('again').addEventListener('click', list);
setInterval(() => document.hidden || list(), LIST_MS);
setInterval(() => document.hidden || queries.list(), QUERIES_MS);
queries.list();
await chosen();
await list();
