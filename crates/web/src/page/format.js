// Numbers as people read them, and elements as scripts make them.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

export function bytes(count) {
  let unit = 0;
  let value = count;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || Math.abs(value) >= 100 ? 0 : 1;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

export function duration(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

// How long something took.
export function took(seconds) {
  return seconds < 60 ? `${seconds.toFixed(seconds < 10 ? 2 : 1)} s` : duration(seconds);
}

// Six digits: what 32-bit floats hold.
export function number(value) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? 'none' : value > 0 ? '∞' : '−∞';
  if (value === 0) return '0';
  const size = Math.abs(value);
  const text = size >= 1e6 || size < 1e-4 ? value.toExponential(4) : String(Number(value.toPrecision(6)));
  return text.replace('-', '−');
}

export function element(name, className = '', text = '') {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

export function pairs(list, entries) {
  list.replaceChildren(
    ...entries.flatMap(([term, value]) => [element('dt', '', term), element('dd', '', value)]),
  );
}

// A name in an address: its parts encoded, its slashes kept.
export function address(name) {
  return name.split('/').map(encodeURIComponent).join('/');
}

export async function fetched(path, options) {
  const response = await fetch(path, options);
  if (!response.ok) {
    const told = await response.json().catch(() => ({}));
    throw Object.assign(new Error(told.error ?? `the server says ${response.status}`), { hint: told.hint });
  }
  return response;
}
